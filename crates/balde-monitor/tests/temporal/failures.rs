//! A DICT that refuses one participant: asked sparingly, told as stale, and nobody else's problem.

use serde_json::Value;

use crate::fake_dict::{Answer, FakeDict};
use crate::receiver::Receiver;
use crate::running::Running;
use crate::server::{Server, activities};
use crate::until;

/// Entries of a kind in all runs of the monitor.
fn entries(server: &Server, attributes: &str) -> Vec<Value> {
    let mut runs = server.histories("monitor-rate-limits-cron");
    runs.extend(server.histories("monitor-rate-limits-cron-at-once"));
    let entries = runs.into_iter().flatten();
    let told = entries.map(|entry| entry[attributes].clone());
    told.filter(Value::is_object).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_is_refused_is_told_as_stale_and_stops_nobody() {
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
         [alerts]\nstale_after_s = 2\n\
         [[participant]]\nispb = \"11111111\"\ndict = \"{}\"\n\
         [[participant]]\nispb = \"22222222\"\ndict = \"{}\"\n\
         [[sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n",
        server.address(),
        refusing.url(),
        answering.url(),
        receiver.url("hook"),
    );
    let running = Running::start(&config, folder.path()).await;

    until("the other one is asked about", async || {
        answering.requests() > 0
    })
    .await;
    until("the refused one's data is stale", async || {
        let keys = receiver.keys("hook");
        keys.iter()
            .any(|key| key.starts_with("11111111/") && key.ends_with("/stale"))
    })
    .await;
    until("the refusal is in the history", async || {
        !entries(&server, "activityTaskFailedEventAttributes").is_empty()
    })
    .await;
    for failed in entries(&server, "activityTaskFailedEventAttributes") {
        println!("{failed}");
        assert_eq!(failed["retryState"], "RETRY_STATE_NON_RETRYABLE_FAILURE");
        let kind = &failed["failure"]["applicationFailureInfo"]["type"];
        assert_eq!(kind, "forbidden");
    }
    until("it is judged nevertheless", async || {
        let mut runs = server.histories("monitor-rate-limits-cron");
        runs.extend(server.histories("monitor-rate-limits-cron-at-once"));
        let steps: Vec<&str> = runs.iter().flat_map(|run| activities(run)).collect();
        let count = |step: &str| steps.iter().filter(|one| **one == step).count();
        count("AnalyzeBalance") > count("StorePolicyState") && count("StorePolicyState") > 0
    })
    .await;
    running.end().await.unwrap();
}
