//! A peak that empties a small bucket, end to end in virtual time: a simulated DICT over HTTP, the
//! four steps of the cycle with a SQLite file, and polls charged to `POLICIES_LIST` and
//! `POLICIES_READ`, which stay above two thirds.

use std::net::Ipv4Addr;
use std::time::Duration;

use balde::ManualClock;
use balde_monitor::alert::{Event, EventKind};
use balde_monitor::cycle::Cycle;
use balde_monitor::schedule::PollPlan;
use balde_monitor::schedule::{NextAction, Planner};
use balde_monitor::{Config, Monitor, TimeSource};
use balde_simulator::{self as simulator, Simulator};
use tokio::net::TcpListener;

const PARTICIPANT: &str = "12345678";
const SMALL: &str = "CLAIMS_LIST_WITHOUT_ROLE";
const TICK: Duration = Duration::from_millis(500);
const SECOND_US: u64 = 1_000_000;

struct SimulatorRun {
    clock: ManualClock,
    http: reqwest::Client,
    base: String,
    cycle: Cycle,
    planner: Planner,
    polls_us: Vec<u64>,
    events: Vec<Event>,
    _folder: tempfile::TempDir,
}

impl SimulatorRun {
    async fn start() -> Self {
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
        let config = Config::parse(&text, "monitor.toml", folder.path(), |_| None).unwrap();
        let monitor = Monitor::build(&config, TimeSource::manual(&clock, 1))
            .await
            .unwrap();
        let PollPlan {
            schedule, budget, ..
        } = config.plan;
        let mut planner = Planner::new(schedule, budget).unwrap();
        planner.add(PARTICIPANT, clock.now_us(), &[]).unwrap();
        Self {
            clock,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            base,
            cycle: monitor.cycle().clone(),
            planner,
            polls_us: Vec::new(),
            events: Vec::new(),
            _folder: folder,
        }
    }

    /// Sends one listClaims without a role. Returns true if it was allowed.
    async fn list_claims(&self) -> bool {
        let url = format!("{}/claims/?Participant={PARTICIPANT}", self.base);
        let answer = self.http.get(url).send().await.unwrap();
        assert!(matches!(answer.status().as_u16(), 200 | 429));
        answer.status().is_success()
    }

    /// Runs a cycle if the planner says so.
    async fn cycle_if_due(&mut self) {
        let now_us = self.clock.now_us();
        let (participant, poll) = match self.planner.next(now_us) {
            NextAction::Poll { participant } => {
                let poll = self.cycle.fetch(&participant).await;
                (participant, poll)
            }
            NextAction::Read {
                participant,
                policy,
            } => {
                let poll = self.cycle.fetch_policy(&participant, &policy).await;
                (participant, poll)
            }
            NextAction::Wait { .. } | NextAction::Idle => return,
        };
        let poll = poll.expect("the limits of polling itself are never exhausted");
        for (policy, two_thirds) in [("POLICIES_LIST", 14), ("POLICIES_READ", 134)] {
            let own = poll.sample(policy);
            assert!(own.is_none_or(|own| own.level() >= two_thirds), "{own:?}");
        }
        if poll.sample(SMALL).is_some() {
            self.polls_us.push(now_us);
        }
        self.cycle.store(poll).await.unwrap();
        let findings = self.cycle.analyse(&participant).await.unwrap();
        self.events.extend_from_slice(findings.events());
        let components = self.cycle.components();
        let assessments = findings.assessments(&components.rules, &components.analysis);
        self.planner.polled(&participant, now_us, &assessments);
    }
}

/// Consumption of eight a minute, then a peak of one every second from `peak_s` until the first
/// refusal, then none. All 29 buckets of a participant are polled.
async fn simulate(peak_s: u64, whole_s: u64) {
    let mut run = SimulatorRun::start().await;
    let began_us = run.clock.now_us();
    let mut empty_us = None;
    for tick in 0..whole_s * 2 {
        let since_s = tick / 2;
        let is_use = since_s < peak_s && tick % 15 == 0;
        let is_peak = since_s >= peak_s && empty_us.is_none() && tick % 2 == 0;
        if (is_use || is_peak) && !run.list_claims().await {
            empty_us = Some(run.clock.now_us());
        }
        run.cycle_if_due().await;
        run.clock.advance(TICK);
    }
    let empty_us = empty_us.expect("the peak empties the bucket");
    let peak_us = began_us + peak_s * SECOND_US;
    assert!(
        empty_us - peak_us <= 70 * SECOND_US,
        "within a minute or so"
    );
    let about_it = |event: &&Event| event.policy.as_deref() == Some(SMALL);
    let alerted = run.events.iter().filter(about_it).find(|event| {
        matches!(
            event.kind,
            EventKind::Raised { .. } | EventKind::Predicted { .. }
        ) && event.at_us >= peak_us
    });
    let alerted_us = alerted.expect("an alert is raised").at_us;
    let next_poll_us = run.polls_us.iter().find(|us| **us >= empty_us).unwrap();
    assert!(
        alerted_us <= *next_poll_us,
        "before it is empty or within one poll"
    );
    assert!(
        alerted_us <= empty_us + 60 * SECOND_US,
        "and not four minutes late"
    );
    let early = run.events.iter().find(|event| event.at_us < peak_us);
    assert_eq!(early, None, "normal consumption raises no alert");
    let resolved = run.events.iter().filter(about_it);
    let resolved = resolved.filter(|event| matches!(event.kind, EventKind::Resolved { .. }));
    assert_eq!(resolved.count(), 1, "and it is over in the end");
}

#[tokio::test]
async fn a_peak_that_empties_a_small_bucket_raises_an_alert_in_time_whenever_it_begins() {
    for peak_s in [301, 317, 335, 352, 399] {
        simulate(peak_s, 900).await;
    }
}

/// The severity of the levels of `ENTRIES_WRITE`, by tokens left.
#[tokio::test]
async fn the_levels_of_entries_write_are_judged_by_tokens_left() {
    use balde_monitor::severity::Severity;
    let run = SimulatorRun::start().await;
    let sim = run.base.replace("/api/v2", "/sim/buckets");
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
        let set = run
            .http
            .put(&sim)
            .header("Content-Type", "application/json");
        let set = set.body(body).send().await.unwrap();
        assert!(set.status().is_success());
        let poll = run.cycle.fetch(PARTICIPANT).await.unwrap();
        let sample = poll.sample("ENTRIES_WRITE").unwrap();
        assert_eq!(sample.level(), level);
        run.cycle.store(poll).await.unwrap();
        let findings = run.cycle.analyse(PARTICIPANT).await.unwrap();
        let components = run.cycle.components();
        let assessments = findings.assessments(&components.rules, &components.analysis);
        let assessment = assessments
            .iter()
            .find(|assessment| assessment.sample().bucket().policy() == "ENTRIES_WRITE");
        assert_eq!(assessment.unwrap().severity(), expected, "{level}");
        assert_eq!(assessment.unwrap().fill_us(), Some(1_800 * SECOND_US));
        run.clock.advance(Duration::from_secs(30));
    }
}
