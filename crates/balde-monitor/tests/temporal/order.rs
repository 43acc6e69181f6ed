//! What stands at the server: brought in line where it can be, told clearly where it cannot.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use balde_monitor::schedule::temporal::TemporalError;
use balde_monitor::{Config, Monitor, RunError, Time};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fake_dict::{Answer, FakeDict};
use crate::server::{Server, activities, begun};
use crate::until;

const KIND: &str = "MonitorRateLimitsWorkflow";

/// A monitor in this process, and how to end it.
struct Running {
    end: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), RunError>>,
}

async fn run(address: &str, dict: &FakeDict, id: &str, folder: &Path) -> Running {
    let config = format!(
        "[schedule]\nkind = \"temporal\"\ntemporal_address = \"{address}\"\n\
         temporal_workflow_id = \"{id}\"\n\
         [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n",
        dict.url(),
    );
    let config = Config::parse(&config, "test", folder, |_| None).unwrap();
    let monitor = Monitor::build(&config, Time::real()).await.unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (end, ending) = oneshot::channel();
    let shutdown = async {
        let _gone_is_an_end_too = ending.await;
    };
    Running {
        end,
        ended: tokio::spawn(monitor.run(listener, "", shutdown)),
    }
}

/// Whatever happens on a busy machine, an end is one within this.
async fn ended(running: JoinHandle<Result<(), RunError>>) -> Result<(), RunError> {
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
    ended.expect("it ends").expect("it does not panic")
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
    let running = run(&server.address(), &dict, "w", folder.path()).await;
    drop(running.end);
    ended(running.ended).await.unwrap();
    assert_eq!(dict.asked(), 0, "nobody schedules, nobody asks");
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
    let running = run(&server.address(), &dict, "taken", folder.path()).await;
    let error = ended(running.ended).await.unwrap_err();
    println!("{error}");
    let RunError::Temporal(TemporalError::Taken { kind, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(kind, "Payroll");
    assert_eq!(dict.asked(), 0);

    // An earlier monitor of ours, once a year.
    begin(KIND, "ours");
    let running = run(&server.address(), &dict, "ours", folder.path()).await;
    until("the calendar is ours", async || {
        let runs = server.histories("ours");
        runs.iter()
            .any(|run| begun(run)["cronSchedule"] == "*/5 * * * *")
    })
    .await;
    until("and somebody asks at once", async || dict.asked() > 0).await;
    until(
        "and it is over until the calendar's next time",
        async || {
            let runs = server.histories("ours-at-once");
            let is_over = |run: &[serde_json::Value]| {
                let last = run.last().map(|entry| &entry["eventType"]);
                last.is_some_and(|kind| kind == "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED")
            };
            // Unless the calendar's was so near that its own run came first.
            let runs = runs.into_iter().chain(server.histories("ours"));
            runs.into_iter()
                .any(|run| activities(&run).len() >= 3 && is_over(&run))
        },
    )
    .await;
    // The calendar may have struck meanwhile.
    assert!(dict.asked() <= 2, "a full bucket is looked at once a run");
    drop(running.end);
    ended(running.ended).await.unwrap();
}
