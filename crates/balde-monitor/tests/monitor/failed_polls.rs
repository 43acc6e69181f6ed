//! Failed polls: each kind has its label and its reason, no sample is stored, and stale data raises
//! an alert in time.

use std::sync::Arc;
use std::time::Duration;

use crate::fake_dict::{Answer, FakeDict};
use balde::ManualClock;
use balde_monitor::alert::{Event, EventKind};
use balde_monitor::history::EventFilter;
use balde_monitor::schedule::{PollPlan, embedded};
use balde_monitor::severity::Severity;
use balde_monitor::{Config, Monitor, TimeSource};

const PARTICIPANT: &str = "12345678";
const MINUTE: Duration = Duration::from_secs(60);
const START_US: u64 = 1_767_225_600_000_000;

const FORBIDDEN: &str = "<problem xmlns=\"urn:ietf:rfc:7807\"><type>https://dict.pi.rsfn.net.br/api/v2/error/Forbidden</type>\
     <title>Forbidden</title><status>403</status></problem>";

fn buckets(level: i64) -> Answer {
    Answer::Buckets(vec![
        ("ENTRIES_WRITE", level, 36_000, 1_200),
        ("POLICIES_LIST", 20, 20, 6),
    ])
}

struct TestMonitor {
    clock: ManualClock,
    dict: FakeDict,
    monitor: Monitor,
    _folder: tempfile::TempDir,
}

impl TestMonitor {
    async fn new(speed: u32) -> Self {
        let clock = ManualClock::at_us(START_US);
        let dict = FakeDict::start(buckets(36_000)).await;
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[history]\naddress = \"monitor.db\"\n\
             [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"{}\"\ntimeout = '200 ms'\n",
            dict.url()
        );
        let config = Config::parse(&text, "story", folder.path(), |_| None).unwrap();
        let time = TimeSource::manual(&clock, speed);
        let monitor = Monitor::build(&config, time).await.unwrap();
        Self {
            clock,
            dict,
            monitor,
            _folder: folder,
        }
    }

    async fn cycle(&self) -> Vec<Event> {
        let cycle = self.monitor.cycle();
        let poll = cycle.fetch(PARTICIPANT).await.unwrap();
        cycle.store(poll).await.unwrap();
        let findings = cycle.analyse(PARTICIPANT).await.unwrap();
        findings.events().to_vec()
    }
}

#[tokio::test]
async fn every_kind_of_failure_has_its_label_stores_no_sample_and_becomes_stale_in_time() {
    for (answer, label, expected) in [
        (
            Answer::Status(403, None, FORBIDDEN),
            "forbidden",
            "does not accept this participant",
        ),
        (
            Answer::Status(503, Some(120), ""),
            "unavailable",
            "unavailable (503)",
        ),
        (Answer::Status(429, Some(60), ""), "rate_limited", "429"),
        (Answer::Status(500, None, "oops"), "status", "status 500"),
        (
            Answer::Body("<html>Welcome to the hotel</html>"),
            "invalid_response",
            "cannot be read",
        ),
        (Answer::Body(""), "invalid_response", "cannot be read"),
        (
            Answer::Buckets(vec![("ENTRIES_WRITE", 1, u64::MAX, 3)]),
            "invalid_response",
            "cannot be",
        ),
        (Answer::Buckets(vec![]), "invalid_sample", "lists no policy"),
        (
            Answer::Buckets(vec![("A", 1, 2, 3), ("A", 1, 2, 3)]),
            "invalid_sample",
            "listed twice",
        ),
        (Answer::Truncated, "truncated", "is incomplete"),
        (Answer::Close, "unreachable", "cannot be reached"),
        (Answer::Hang, "timeout", "in time"),
    ] {
        let test = TestMonitor::new(1).await;
        assert_eq!(test.cycle().await, []);
        let case = format!("{answer:?}");
        test.dict.answer(answer);
        test.clock.advance(MINUTE);
        let cycle = test.monitor.cycle();
        let error = cycle.fetch(PARTICIPANT).await.expect_err(&case);
        assert!(error.to_string().contains(expected), "{case}: {error}");
        let balde_monitor::cycle::FetchError::Source(source) = &error else {
            panic!("{case}: {error}");
        };
        assert_eq!(source.label(), label, "{case}");
        if label == "unavailable" {
            assert_eq!(source.retry_after(), Some(Duration::from_secs(120)));
        }

        // Ten minutes are not too long yet; eleven are.
        test.clock.advance(9 * MINUTE);
        assert_eq!(cycle.check_timers(PARTICIPANT).await.unwrap(), [], "{case}");
        test.clock.advance(MINUTE + Duration::from_secs(1));
        let events = cycle.check_timers(PARTICIPANT).await.unwrap();
        let [stale] = &events[..] else {
            panic!("{case}: {events:?}");
        };
        assert_eq!(stale.severity, Severity::Critical);
        assert!(
            matches!(stale.kind, EventKind::Stale { newest_us, .. } if newest_us == START_US),
            "{case}: {stale:?}"
        );
        let states = cycle.components().history.latest_samples().await.unwrap();
        assert_eq!(states.len(), 2, "{case}");
        assert!(states.iter().all(|sample| sample.taken_us() == START_US));

        // The first successful poll resolves it.
        test.dict.answer(buckets(36_000));
        test.clock.advance(MINUTE);
        let events = test.cycle().await;
        let [fresh] = &events[..] else {
            panic!("{case}: {events:?}");
        };
        assert!(matches!(fresh.kind, EventKind::Fresh { .. }), "{case}");
        assert_eq!(fresh.episode, stale.episode);
    }
}

/// A participant that DICT has never known is an alert with the first answer, and the log of the first
/// good answer says what is in it.
#[tokio::test]
async fn a_participant_that_dict_never_knew_is_an_alert_at_once() {
    for (answer, reason) in [
        (
            Answer::Status(403, None, FORBIDDEN),
            "does not accept this participant",
        ),
        (Answer::Status(404, None, ""), "status 404"),
        (Answer::Buckets(vec![]), "lists no policy"),
    ] {
        let test = TestMonitor::new(1).await;
        test.dict.answer(answer);
        let cycle = test.monitor.cycle();
        assert_eq!(cycle.check_timers(PARTICIPANT).await.unwrap(), []);
        cycle.fetch(PARTICIPANT).await.unwrap_err();
        let events = cycle.check_timers(PARTICIPANT).await.unwrap();
        let [stale] = &events[..] else {
            panic!("{reason}: {events:?}");
        };
        let EventKind::Stale {
            reason: Some(found),
            ..
        } = &stale.kind
        else {
            panic!("{reason}: {stale:?}");
        };
        assert!(found.contains(reason), "{found}");
        assert_eq!(stale.severity, Severity::Critical);
        test.dict.answer(buckets(36_000));
        test.clock.advance(MINUTE);
        let events = test.cycle().await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0].kind.label(), "fresh");
    }
}

/// With the scheduling loop: an hour of failures costs DICT no more requests than its bucket allows,
/// Retry-After is honoured, and polling goes on afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn an_hour_of_failures_stays_within_the_budget_and_polling_recovers() {
    const SPEED: u32 = 1_000;
    let test = TestMonitor::new(SPEED).await;
    test.dict.answer(Answer::Status(503, Some(600), ""));
    let cycle = test.monitor.cycle().clone();
    let status = Arc::clone(test.monitor.status());
    let history = cycle.components().history.clone();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(embedded::run(
        cycle,
        PollPlan::default(),
        Arc::clone(&status),
        async move {
            let _sent_or_dropped = ended.await;
        },
    ));
    let mover = test.clock.clone();
    let moving = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            mover.advance(Duration::from_millis(1) * SPEED);
        }
    });
    let until_us = START_US + 3_600_000_000;
    while test.clock.now_us() < until_us {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let requests = test.dict.requests();
    assert!(
        (2..=16).contains(&requests),
        "{requests}: at most two attempts every ten minutes, as Retry-After says"
    );
    assert_eq!(
        history.latest_samples().await.unwrap(),
        [],
        "no sample is stored"
    );
    let events = history.events(&EventFilter::default(), 10).await.unwrap();
    assert!(
        events
            .iter()
            .any(|event| matches!(event.kind, EventKind::Stale { .. })),
        "{events:?}"
    );
    assert!(status.participants()[PARTICIPANT].failures["unavailable"] >= 2);

    test.dict.answer(buckets(36_000));
    let start = std::time::Instant::now();
    while history.latest_samples().await.unwrap().is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it never recovered"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(status.participants()[PARTICIPANT].last_error, None);
    moving.abort();
    end.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_changed_category_capacity_or_list_of_policies_is_an_event() {
    let test = TestMonitor::new(1).await;
    assert_eq!(test.cycle().await, []);
    test.clock.advance(MINUTE);
    test.dict.category('H');
    test.dict.answer(Answer::Buckets(vec![
        ("ENTRIES_WRITE", 1_200, 1_200, 800),
        ("KEYS_CHECK", 70, 70, 70),
    ]));
    let events = test.cycle().await;
    let labels: Vec<String> = events.iter().map(|event| event.kind.label()).collect();
    assert_eq!(
        labels,
        [
            "changed-category-H",
            "changed-capacity-ENTRIES_WRITE-1200",
            "changed-refill-ENTRIES_WRITE-800-60000000",
            "changed-policy-removed-POLICIES_LIST",
            "changed-policy-added-KEYS_CHECK",
        ]
    );
    test.clock.advance(MINUTE);
    assert_eq!(test.cycle().await, [], "once");
}

/// One DICT never ends its answer, one sends a megabyte of elements, one sends nothing: the polls of
/// another participant go on at their own pace.
#[tokio::test(flavor = "multi_thread")]
async fn slow_and_huge_answers_delay_no_other_participant() {
    let huge: &'static str = Box::leak(
        format!(
            "<ListPoliciesResponse>{}</ListPoliciesResponse>",
            "é<a/>".repeat(160_000)
        )
        .into_boxed_str(),
    );
    let healthy = FakeDict::start(buckets(40)).await;
    let others = [
        FakeDict::start(Answer::Hang).await,
        FakeDict::start(Answer::Body(huge)).await,
        FakeDict::start(Answer::Truncated).await,
    ];
    let folder = tempfile::tempdir().unwrap();
    let dicts = others.iter().chain([&healthy]).enumerate();
    let sections = dicts.map(|(number, dict)| {
        let url = dict.url();
        format!("[[participant]]\nispb = \"1234567{number}\"\ndict = \"{url}\"\n")
    });
    let sections: Vec<String> = sections.collect();
    let text = format!("[history]\naddress = \"monitor.db\"\n{}", sections.concat());
    let clock = ManualClock::at_us(balde::Clock::wall().now_us());
    let config = Config::parse(&text, "story", folder.path(), |_| None).unwrap();
    let monitor = Monitor::build(&config, TimeSource::manual(&clock, 1));
    let monitor = monitor.await.unwrap();
    let cycle = monitor.cycle().clone();
    let stuck: Vec<_> = (0..3)
        .map(|number| {
            let cycle = cycle.clone();
            let participant = format!("1234567{number}");
            tokio::spawn(async move { cycle.fetch(&participant).await.is_ok() })
        })
        .collect();
    for dict in &others {
        while dict.requests() == 0 {
            tokio::task::yield_now().await;
        }
    }
    // The one that hangs has not answered yet when the healthy one has answered five times.
    for round in 1..=5 {
        let poll = cycle.fetch("12345673").await.unwrap();
        assert_eq!(poll.samples().len(), 2, "round {round}");
        clock.advance(Duration::from_secs(60));
    }
    assert!(!stuck[0].is_finished(), "it hangs for its timeout");
    stuck[0].abort();
    for (number, task) in stuck.into_iter().enumerate().skip(1) {
        assert!(!task.await.unwrap(), "answer {number} is no states");
    }
}
