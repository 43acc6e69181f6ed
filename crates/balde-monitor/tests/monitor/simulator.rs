//! The documents' story of a small bucket, end to end in virtual time: a simulated DICT over HTTP,
//! the monitor's own four steps over a SQLite file, polls paid from `POLICIES_LIST` itself.

use std::net::Ipv4Addr;
use std::time::Duration;

use balde::ManualClock;
use balde_dict::simulator::{self, Simulator};
use balde_monitor::alert::{Event, EventKind};
use balde_monitor::cycle::Cycle;
use balde_monitor::schedule::PollPlan;
use balde_monitor::schedule::{NextAction, Planner};
use balde_monitor::{Config, Monitor, TimeSource};
use tokio::net::TcpListener;

const PARTICIPANT: &str = "12345678";
const SMALL: &str = "CLAIMS_LIST_WITHOUT_ROLE";
const TICK: Duration = Duration::from_millis(500);
const SECOND_US: u64 = 1_000_000;

struct Story {
    clock: ManualClock,
    http: reqwest::Client,
    base: String,
    cycle: Cycle,
    planner: Planner,
    polls_us: Vec<u64>,
    told: Vec<Event>,
    _folder: tempfile::TempDir,
}

impl Story {
    async fn begin() -> Self {
        let clock = ManualClock::at_us(1_767_225_600 * SECOND_US);
        let simulator = Simulator::builder().manual_clock(&clock).build().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}/api/v2", listener.local_addr().unwrap());
        tokio::spawn(simulator::run(listener, simulator, std::future::pending()));
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[history]\naddress = \"monitor.db\"\n\
             [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"{base}\"\n"
        );
        let config = Config::parse(&text, "story", folder.path(), |_| None).unwrap();
        let monitor = Monitor::build(&config, TimeSource::manual(&clock, 1))
            .await
            .unwrap();
        let PollPlan {
            schedule,
            budget,
            reserve,
            ..
        } = config.plan;
        let mut planner = Planner::new(schedule, budget, reserve).unwrap();
        planner.add(PARTICIPANT, clock.now_us(), None).unwrap();
        Self {
            clock,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            base,
            cycle: monitor.cycle().clone(),
            planner,
            polls_us: Vec::new(),
            told: Vec::new(),
            _folder: folder,
        }
    }

    /// One listClaims without a role; whether it was let through.
    async fn list_claims(&self) -> bool {
        let url = format!("{}/claims/?Participant={PARTICIPANT}", self.base);
        let answer = self.http.get(url).send().await.unwrap();
        assert!(matches!(answer.status().as_u16(), 200 | 429));
        answer.status().is_success()
    }

    /// What the monitor does at this moment, if it does anything.
    async fn turn(&mut self) {
        let now_us = self.clock.now_us();
        let NextAction::Poll { participant } = self.planner.next(now_us) else {
            return;
        };
        let poll = self.cycle.fetch(&participant).await;
        let poll = poll.expect("POLICIES_LIST itself is never exhausted");
        let own = poll.sample("POLICIES_LIST").unwrap();
        assert!(own.level() >= 2, "some of the budget is left to others");
        self.polls_us.push(now_us);
        self.cycle.store(poll).await.unwrap();
        let findings = self.cycle.analyse(&participant).await.unwrap();
        self.told.extend_from_slice(findings.events());
        let parts = self.cycle.components();
        let seen = findings.assessments(&parts.rules, &parts.analysis);
        self.planner.polled(&participant, now_us, &seen);
    }
}

/// Normal use of eight a minute, a peak of one every second from `peak_s` on that ends with the
/// first refusal, and quiet after it. All 29 buckets of a participant are there.
async fn tell(peak_s: u64, whole_s: u64) {
    let mut story = Story::begin().await;
    let began_us = story.clock.now_us();
    let mut empty_us = None;
    for tick in 0..whole_s * 2 {
        let since_s = tick / 2;
        let is_use = since_s < peak_s && tick % 15 == 0;
        let is_peak = since_s >= peak_s && empty_us.is_none() && tick % 2 == 0;
        if (is_use || is_peak) && !story.list_claims().await {
            empty_us = Some(story.clock.now_us());
        }
        story.turn().await;
        story.clock.advance(TICK);
    }
    let empty_us = empty_us.expect("the peak empties the bucket");
    let peak_us = began_us + peak_s * SECOND_US;
    assert!(
        empty_us - peak_us <= 70 * SECOND_US,
        "within a minute or so"
    );
    let about_it = |event: &&Event| event.policy.as_deref() == Some(SMALL);
    let alerted = story.told.iter().filter(about_it).find(|event| {
        matches!(
            event.kind,
            EventKind::Raised { .. } | EventKind::Predicted { .. }
        ) && event.at_us >= peak_us
    });
    let alerted_us = alerted.expect("somebody is told").at_us;
    let next_poll_us = story.polls_us.iter().find(|us| **us >= empty_us).unwrap();
    assert!(
        alerted_us <= *next_poll_us,
        "before it is empty or within one poll"
    );
    assert!(
        alerted_us <= empty_us + 60 * SECOND_US,
        "and not four minutes late"
    );
    // In any minute at most what DICT gives in one.
    for window in story.polls_us.windows(7) {
        assert!(window[6] - window[0] >= 60 * SECOND_US, "{window:?}");
    }
    let early = story.told.iter().find(|event| event.at_us < peak_us);
    assert_eq!(early, None, "normal use is no news");
    let resolved = story.told.iter().filter(about_it);
    let resolved = resolved.filter(|event| matches!(event.kind, EventKind::Resolved { .. }));
    assert_eq!(resolved.count(), 1, "and it is over in the end");
}

#[tokio::test]
async fn a_peak_that_empties_a_small_bucket_is_told_in_time_whenever_it_begins() {
    for peak_s in [301, 317, 335, 352, 399] {
        tell(peak_s, 900).await;
    }
}

/// The documents' table of levels, as design decides it: by tokens left.
#[tokio::test]
async fn the_documents_levels_of_entries_write_are_judged_by_what_is_left() {
    use balde_monitor::severity::Severity;
    let story = Story::begin().await;
    let sim = story.base.replace("/api/v2", "/sim/buckets");
    for (level, expected) in [
        (36_000, Severity::Normal),
        (27_000, Severity::Normal),
        (18_000, Severity::Normal),
        (9_001, Severity::Normal),
        (9_000, Severity::Warning),
        (5_000, Severity::Warning),
        (3_601, Severity::Warning),
        (3_600, Severity::Critical),
        (1_000, Severity::Critical),
        (1, Severity::Critical),
        (0, Severity::Exhausted),
        (-15, Severity::Exhausted),
    ] {
        let body = format!(
            "{{\"policy\":\"ENTRIES_WRITE\",\"participant\":\"{PARTICIPANT}\",\"level\":{level}}}"
        );
        let set = story.http.put(&sim).body(body).send().await.unwrap();
        assert!(set.status().is_success());
        let poll = story.cycle.fetch(PARTICIPANT).await.unwrap();
        let sample = poll.sample("ENTRIES_WRITE").unwrap();
        assert_eq!(sample.level(), level);
        story.cycle.store(poll).await.unwrap();
        let findings = story.cycle.analyse(PARTICIPANT).await.unwrap();
        let parts = story.cycle.components();
        let seen = findings.assessments(&parts.rules, &parts.analysis);
        let seen = seen
            .iter()
            .find(|seen| seen.sample().bucket().policy() == "ENTRIES_WRITE");
        assert_eq!(seen.unwrap().severity(), expected, "{level}");
        assert_eq!(seen.unwrap().recovery_us(), Some(1_800 * SECOND_US));
        story.clock.advance(Duration::from_secs(30));
    }
}
