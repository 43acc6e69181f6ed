//! From the cron schedule to the alert, with the worker killed in between.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::fake_dict::{Answer, FakeDict};
use crate::receiver::Receiver;
use crate::server::{Server, activities, start_attributes};
use crate::until;
use crate::worker::{self, FastTime};

const WORKFLOW: &str = "monitor-rate-limits-cron";
const STEPS: [&str; 4] = [
    "GetPoliciesActivity",
    "StorePolicyStateActivity",
    "AnalyzeBalanceActivity",
    "PublishAlertActivity",
];
/// The shortest time between two polls.
const POLL_INTERVAL_MIN_S: u64 = 12;

fn buckets(level: i64) -> Answer {
    Answer::Buckets(vec![("ENTRIES_WRITE", level, 1_000, 0)])
}

/// How many different events of a kind arrived.
fn arrived(receiver: &Receiver, kind: &str) -> usize {
    let keys: BTreeSet<String> = receiver.keys("hook").into_iter().collect();
    keys.iter().filter(|key| key.ends_with(kind)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_still_sends_every_alert_once() {
    let Some(mut server) = Server::planned() else {
        return;
    };
    // The first request is never answered.
    let dict = FakeDict::start(Answer::Hang).await;
    let receiver = Receiver::start(1, 0).await;
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[schedule]\nkind = \"temporal\"\ncron = \"* * * * *\"\ntemporal_address = \"{}\"\n\
         [alerts]\nresolve_after = '0 s'\npredict_within = '0 s'\n\
         [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n\
         [[sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n",
        server.address(),
        dict.url(),
        receiver.url("hook"),
    );
    let time = FastTime::begin(1);
    let start = Instant::now();
    let begin = |log: &str| worker::start(&config, folder.path(), log, time);
    let log = |log: &str| std::fs::read_to_string(folder.path().join(log)).unwrap_or_default();

    // The worker waits for a server that is unavailable.
    let mut monitor = begin("first");
    until(
        "the worker reports that the server is unavailable",
        async || log("first").contains("temporal_unavailable"),
    )
    .await;
    server.start().await;

    // Killed during a poll; the next worker polls again and sends the alert.
    until("a poll", async || dict.requests() > 0).await;
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    dict.answer(buckets(200));
    let mut monitor = begin("second");
    until("an alert", async || {
        arrived(&receiver, "/raised-WARNING") > 0
    })
    .await;

    // Killed again at an arbitrary moment; the run of the cron workflow goes on.
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let mut monitor = begin("third");
    until("a run of the cron workflow", async || {
        let runs = server.histories(WORKFLOW);
        runs.iter().any(|run| activities(run).contains(&STEPS[2]))
    })
    .await;
    dict.answer(buckets(0));
    until("a worse alert", async || {
        arrived(&receiver, "EXHAUSTED") > 0
    })
    .await;
    // The second at which the test began decides whether the poll that raised the alert belongs to a run of
    // the cron workflow, or to the one that the first worker started at once.
    let at_once = format!("{WORKFLOW}-at-once");
    until("all four steps", async || {
        let mut runs = server.histories(WORKFLOW);
        runs.extend(server.histories(&at_once));
        let steps = runs.iter().flat_map(|run| activities(run));
        steps.collect::<BTreeSet<_>>() == BTreeSet::from(STEPS)
    })
    .await;
    let took = start.elapsed();
    monitor.kill().unwrap();
    monitor.wait().unwrap();

    let runs = server.histories(WORKFLOW);
    for run in &runs {
        let started = start_attributes(run);
        assert_eq!(started["cronSchedule"], "* * * * *");
        assert_eq!(started["taskQueue"]["name"], "dict-task-queue");
        assert_eq!(started["workflowType"]["name"], "MonitorRateLimitsWorkflow");
        println!("a run: {:?}", activities(run));
    }
    println!("{:?}: {:?}", took, receiver.keys("hook"));
    assert_eq!(arrived(&receiver, "/raised-WARNING"), 1);
    assert_eq!(arrived(&receiver, "EXHAUSTED"), 1);
    let all: BTreeSet<String> = receiver.keys("hook").into_iter().collect();
    assert_eq!(all.len(), 2, "and nothing else: {all:?}");
    // Each of the three workers polls at once and then at most every twelve seconds.
    let polls_max = 3 + (took + Duration::from_secs(1)).as_secs() / POLL_INTERVAL_MIN_S;
    assert!(dict.requests() <= polls_max, "{} polls", dict.requests());
}
