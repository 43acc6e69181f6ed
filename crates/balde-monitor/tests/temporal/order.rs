//! What stands at the server: brought in line where it can be, told clearly where it cannot.

use balde_monitor::RunError;
use balde_monitor::schedule::temporal::TemporalError;
use serde_json::Value;

use crate::fake_dict::{Answer, FakeDict};
use crate::running::Running;
use crate::server::{Server, activities, begun};
use crate::until;

const KIND: &str = "MonitorRateLimitsWorkflow";

fn config(server: &Server, dict: &FakeDict, id: &str) -> String {
    format!(
        "[schedule]\nkind = \"temporal\"\ntemporal_address = \"{}\"\n\
         temporal_workflow_id = \"{id}\"\n\
         [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n",
        server.address(),
        dict.url(),
    )
}

async fn full() -> FakeDict {
    FakeDict::start(Answer::Buckets(vec![("ENTRIES_WRITE", 9, 9, 0)])).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_it_ends_when_it_is_told_to() {
    let Some(server) = Server::planned() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let dict = full().await;
    let running = Running::start(&config(&server, &dict, "w"), folder.path()).await;
    running.end().await.unwrap();
    assert_eq!(dict.requests(), 0, "nobody schedules, nobody asks");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_none_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let dict = full().await;
    let config = format!(
        "[schedule]\nkind = \"temporal\"\ntemporal_address = \"ftp://there\"\n\
         [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n",
        dict.url(),
    );
    let running = Running::start(&config, folder.path()).await;
    let error = running.ended().await.unwrap_err();
    assert!(error.to_string().contains("temporal_address"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_calendar_is_brought_in_line_and_a_stranger_is_left_alone() {
    let Some(mut server) = Server::planned() else {
        return;
    };
    server.start().await;
    let folder = tempfile::tempdir().unwrap();
    let dict = full().await;
    let begin = |kind: &str, id: &str| {
        let queue = ["--task-queue", "dict-task-queue", "--cron", "0 0 1 1 *"];
        let start = ["workflow", "start", "--type", kind, "--workflow-id", id];
        let started = server.run(&[start.as_slice(), &queue].concat());
        assert!(started.status.success(), "{started:?}");
    };

    // Somebody else's workflow has the name.
    begin("Payroll", "taken");
    let running = Running::start(&config(&server, &dict, "taken"), folder.path()).await;
    let error = running.ended().await.unwrap_err();
    println!("{error}");
    let RunError::Temporal(TemporalError::IdInUse { workflow_type: kind, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(kind, "Payroll");
    assert_eq!(dict.requests(), 0);

    // An earlier monitor of ours, once a year.
    begin(KIND, "ours");
    let running = Running::start(&config(&server, &dict, "ours"), folder.path()).await;
    until("the calendar is ours", async || {
        let runs = server.histories("ours");
        runs.iter()
            .any(|run| begun(run)["cronSchedule"] == "*/5 * * * *")
    })
    .await;
    until("and somebody asks at once", async || dict.requests() > 0).await;
    until(
        "and it is over until the calendar's next time",
        async || {
            let is_over = |run: &[Value]| {
                let last = run.last().map(|entry| &entry["eventType"]);
                last.is_some_and(|kind| kind == "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED")
            };
            let mut runs = server.histories("ours-at-once");
            // Unless the calendar's next time was so near that its own run came first.
            runs.extend(server.histories("ours"));
            runs.iter()
                .any(|run| activities(run).len() >= 3 && is_over(run))
        },
    )
    .await;
    // The calendar may have struck meanwhile.
    assert!(
        dict.requests() <= 2,
        "a full bucket is looked at once a run"
    );
    running.end().await.unwrap();
}
