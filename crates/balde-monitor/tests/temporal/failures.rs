//! A DICT that refuses one participant: few polls, an alert for stale data, and no effect on others.

use serde_json::Value;

use crate::fake_dict::{Answer, FakeDict};
use crate::receiver::Receiver;
use crate::running::Running;
use crate::server::{Server, activities};
use crate::until;

/// The attributes of one kind of event in all runs.
fn attributes(server: &Server, kind: &str) -> Vec<Value> {
    let mut runs = server.histories("monitor-rate-limits-cron");
    runs.extend(server.histories("monitor-rate-limits-cron-at-once"));
    let events = runs.into_iter().flatten();
    let attributes = events.map(|event| event[kind].clone());
    attributes.filter(Value::is_object).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_participant_becomes_stale_and_does_not_stop_the_others() {
    let Some(mut server) = Server::planned() else {
        return;
    };
    server.start().await;
    let refusing = FakeDict::start(Answer::Status(403, None, "no")).await;
    let answering = FakeDict::start(Answer::Buckets(vec![("ENTRIES_WRITE", 9, 9, 0)])).await;
    let receiver = Receiver::start(1, 0).await;
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[schedule]\nkind = \"temporal\"\ntemporal_address = \"{}\"\n\
         [alerts]\nstale_after = '2 s'\n\
         [[participant]]\nispb = \"11111111\"\ndict = \"{}\"\n\
         [[participant]]\nispb = \"22222222\"\ndict = \"{}\"\n\
         [[sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n",
        server.address(),
        refusing.url(),
        answering.url(),
        receiver.url("hook"),
    );
    let running = Running::start(&config, folder.path()).await;

    until("the other participant is polled", async || {
        answering.requests() > 0
    })
    .await;
    until("the data of the refused participant is stale", async || {
        let keys = receiver.keys("hook");
        keys.iter()
            .any(|key| key.starts_with("11111111/") && key.ends_with("/stale"))
    })
    .await;
    until("the refusal is in the event history", async || {
        !attributes(&server, "activityTaskFailedEventAttributes").is_empty()
    })
    .await;
    for failed in attributes(&server, "activityTaskFailedEventAttributes") {
        println!("{failed}");
        assert_eq!(failed["retryState"], "RETRY_STATE_NON_RETRYABLE_FAILURE");
        let kind = &failed["failure"]["applicationFailureInfo"]["type"];
        assert_eq!(kind, "forbidden");
    }
    until("it is analysed nevertheless", async || {
        let mut runs = server.histories("monitor-rate-limits-cron");
        runs.extend(server.histories("monitor-rate-limits-cron-at-once"));
        let steps: Vec<&str> = runs.iter().flat_map(|run| activities(run)).collect();
        let count = |step: &str| steps.iter().filter(|one| **one == step).count();
        count("AnalyzeBalanceActivity") > count("StorePolicyStateActivity")
            && count("StorePolicyStateActivity") > 0
    })
    .await;
    running.end().await.unwrap();
}
