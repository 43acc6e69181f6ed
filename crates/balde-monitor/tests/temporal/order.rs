//! The cron workflow at the server: replaced where it differs, an error where its id is in use.

use balde_monitor::RunError;
use balde_monitor::schedule::temporal::TemporalError;
use serde_json::Value;

use crate::fake_dict::{Answer, FakeDict};
use crate::running::Running;
use crate::server::{Server, activities, start_attributes};
use crate::until;

const WORKFLOW_TYPE: &str = "MonitorRateLimitsWorkflow";

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
async fn without_a_server_it_shuts_down_on_request() {
    let Some(server) = Server::planned() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let dict = full().await;
    let running = Running::start(&config(&server, &dict, "w"), folder.path()).await;
    running.end().await.unwrap();
    assert_eq!(dict.requests(), 0, "nothing is polled without a server");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_address_is_an_error_at_once() {
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
async fn a_workflow_with_another_cron_expression_is_replaced_and_one_of_another_type_left_alone() {
    let Some(mut server) = Server::planned() else {
        return;
    };
    server.start().await;
    let folder = tempfile::tempdir().unwrap();
    let dict = full().await;
    let begin = |workflow_type: &str, id: &str| {
        let queue = ["--task-queue", "dict-task-queue", "--cron", "0 0 1 1 *"];
        let start = [
            "workflow",
            "start",
            "--type",
            workflow_type,
            "--workflow-id",
            id,
        ];
        let started = server.run(&[start.as_slice(), &queue].concat());
        assert!(started.status.success(), "{started:?}");
    };

    // The id is in use by a workflow of another type.
    begin("Payroll", "in-use");
    let running = Running::start(&config(&server, &dict, "in-use"), folder.path()).await;
    let error = running.ended().await.unwrap_err();
    println!("{error}");
    let RunError::Temporal(TemporalError::IdInUse { workflow_type, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(workflow_type, "Payroll");
    assert_eq!(dict.requests(), 0);

    // A workflow of an earlier monitor, which runs once a year.
    begin(WORKFLOW_TYPE, "ours");
    let running = Running::start(&config(&server, &dict, "ours"), folder.path()).await;
    until("the cron expression is replaced", async || {
        let runs = server.histories("ours");
        runs.iter()
            .any(|run| start_attributes(run)["cronSchedule"] == "*/5 * * * *")
    })
    .await;
    until("and a run polls at once", async || dict.requests() > 0).await;
    until(
        "and the run completes before the next cron time",
        async || {
            let is_over = |run: &[Value]| {
                let last = run.last().map(|entry| &entry["eventType"]);
                last.is_some_and(|kind| kind == "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED")
            };
            let mut runs = server.histories("ours-at-once");
            // Unless the next cron time was so near that no additional run was started.
            runs.extend(server.histories("ours"));
            runs.iter()
                .any(|run| activities(run).len() >= 3 && is_over(run))
        },
    )
    .await;
    // A cron time may have passed meanwhile.
    assert!(dict.requests() <= 2, "a full bucket is polled once per run");
    running.end().await.unwrap();
}
