//! DICT does everything but answer: each time there is a clear reason, no sample is made up, and
//! stale data is told in time.

#[expect(dead_code, reason = "nobody watches the questions here")]
#[path = "support/fake_dict.rs"]
mod fake_dict;

use std::sync::Arc;
use std::time::Duration;

use balde::ManualClock;
use balde_monitor::alert::{Event, EventKind};
use balde_monitor::history::EventFilter;
use balde_monitor::schedule::{PollPlan, embedded};
use balde_monitor::severity::Severity;
use balde_monitor::{Config, Monitor, TimeSource};
use fake_dict::{Answer, FakeDict};

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

struct World {
    clock: ManualClock,
    dict: FakeDict,
    monitor: Monitor,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new(speed: u32) -> Self {
        let clock = ManualClock::at_us(START_US);
        let dict = FakeDict::start(buckets(36_000)).await;
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[history]\naddress = \"monitor.db\"\n\
             [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"{}\"\ntimeout_ms = 200\n",
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
async fn every_kind_of_bad_answer_has_its_reason_leaves_no_sample_and_grows_stale_in_time() {
    for (answer, label, expected) in [
        (
            Answer::Status(403, None, FORBIDDEN),
            "forbidden",
            "does not let this participant",
        ),
        (
            Answer::Status(503, Some(120), ""),
            "unavailable",
            "not available (503)",
        ),
        (Answer::Status(429, Some(60), ""), "rate_limited", "429"),
        (Answer::Status(500, None, "oops"), "status", "status 500"),
        (
            Answer::Garbage("<html>Welcome to the hotel</html>"),
            "invalid_response",
            "cannot be read",
        ),
        (Answer::Garbage(""), "invalid_response", "cannot be read"),
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
        (Answer::Truncated, "truncated", "ends before its end"),
        (Answer::Nothing, "unreachable", "cannot be reached"),
        (Answer::Silence, "timeout", "in time"),
    ] {
        let world = World::new(1).await;
        assert_eq!(world.cycle().await, []);
        let case = format!("{answer:?}");
        world.dict.answer(answer);
        world.clock.advance(MINUTE);
        let cycle = world.monitor.cycle();
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
        world.clock.advance(9 * MINUTE);
        assert_eq!(cycle.check_timers(PARTICIPANT).await.unwrap(), [], "{case}");
        world.clock.advance(MINUTE + Duration::from_secs(1));
        let told = cycle.check_timers(PARTICIPANT).await.unwrap();
        let [stale] = &told[..] else {
            panic!("{case}: {told:?}");
        };
        assert_eq!(stale.severity, Severity::Critical);
        assert!(
            matches!(stale.kind, EventKind::Stale { newest_us } if newest_us == START_US),
            "{case}: {stale:?}"
        );
        let states = cycle.components().history.latest_samples().await.unwrap();
        assert_eq!(states.len(), 2, "{case}");
        assert!(states.iter().all(|sample| sample.taken_us() == START_US));

        // And it is over with the first good answer.
        world.dict.answer(buckets(36_000));
        world.clock.advance(MINUTE);
        let told = world.cycle().await;
        let [fresh] = &told[..] else {
            panic!("{case}: {told:?}");
        };
        assert!(matches!(fresh.kind, EventKind::Fresh { .. }), "{case}");
        assert_eq!(fresh.episode, stale.episode);
    }
}

/// The same with the loop that runs it all: an hour of nothing but failures costs DICT no more
/// requests than its bucket gives, Retry-After is kept, and the loop goes on afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn an_hour_of_failures_stays_within_the_budget_and_ends_with_the_first_answer() {
    const SPEED: u32 = 1_000;
    let world = World::new(SPEED).await;
    world.dict.answer(Answer::Status(503, Some(600), ""));
    let cycle = world.monitor.cycle().clone();
    let status = Arc::clone(world.monitor.status());
    let parts = cycle.components().history.clone();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(embedded::run(
        cycle,
        PollPlan::default(),
        Arc::clone(&status),
        async move {
            let _told_or_gone = ended.await;
        },
    ));
    let mover = world.clock.clone();
    let moving = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            mover.advance(Duration::from_millis(1) * SPEED);
        }
    });
    let until_us = START_US + 3_600_000_000;
    while world.clock.now_us() < until_us {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asked = world.dict.asked();
    assert!(
        (2..=16).contains(&asked),
        "{asked}: twice at most every ten minutes, as it was told"
    );
    assert_eq!(parts.states().await.unwrap(), [], "nothing is made up");
    let told = parts.events(&EventFilter::default(), 10).await.unwrap();
    assert!(
        told.iter()
            .any(|event| matches!(event.kind, EventKind::Stale { .. })),
        "{told:?}"
    );
    assert!(status.participants()[PARTICIPANT].failures["unavailable"] >= 2);

    world.dict.answer(buckets(36_000));
    let start = std::time::Instant::now();
    while parts.states().await.unwrap().is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it never recovered"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(status.participants()[PARTICIPANT].trouble, None);
    moving.abort();
    end.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn another_category_capacity_or_list_of_policies_is_told() {
    let world = World::new(1).await;
    assert_eq!(world.cycle().await, []);
    world.clock.advance(MINUTE);
    world.dict.category('H');
    world.dict.answer(Answer::Buckets(vec![
        ("ENTRIES_WRITE", 1_200, 1_200, 800),
        ("KEYS_CHECK", 70, 70, 70),
    ]));
    let told = world.cycle().await;
    let labels: Vec<String> = told.iter().map(|event| event.kind.label()).collect();
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
    world.clock.advance(MINUTE);
    assert_eq!(world.cycle().await, [], "once");
}
