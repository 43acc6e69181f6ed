//! The monitor is killed at random moments while a bucket rises and falls. Afterwards every change
//! that lasted for more than a poll has been sent once to every sink it is routed to, and nothing
//! else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use balde_monitor::alert::{AlertRule, AlertState, Event, Routes, SinkClass, evaluate};
use balde_monitor::analyse::{AnalysisSettings, Assessment};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::severity::Severity;

use crate::fake_dict::{Answer, FakeDict};
use crate::receiver::Receiver;
use crate::worker::{self, FastTime};

const KILLS: u64 = 200;
const PARTICIPANT: &str = "12345678";
const POLICY: &str = "ENTRIES_WRITE";
const CAPACITY: u64 = 1_000;
/// The twelve seconds between polls take 60 ms.
const SPEED: u32 = 200;
/// The lifetime of a process that is killed at any moment, even before the database is open.
const LIFETIME_MS: std::ops::Range<u64> = 5..200;
/// How many polls the other processes do, and how long they live after that.
const POLLS: std::ops::RangeInclusive<u64> = 1..=4;
const AFTER_MS: std::ops::Range<u64> = 0..60;
/// The longest wait for polls, even on a slow machine.
const POLLS_WITHIN: Duration = Duration::from_secs(10);
/// The longest time until everything has been delivered in the end.
const DELIVERED_WITHIN: Duration = Duration::from_secs(120);

const SINKS: [(&str, &[SinkClass]); 4] = [
    ("webhook", &[SinkClass::Event]),
    ("slack", &[SinkClass::Chat]),
    ("pagerduty", &[SinkClass::Page, SinkClass::PageUrgent]),
    ("incident", &[SinkClass::Incident]),
];

/// The actual levels of the bucket, in order. A level lasts until one process has polled it twice and
/// polls a third time: then the first of the three polls has certainly been judged.
struct Timeline {
    levels: Vec<i64>,
    polls: u32,
    process: u64,
    chance: fastrand::Rng,
    is_over: bool,
}

impl Timeline {
    fn polled(&mut self, process: u64) -> Answer {
        if self.process != process {
            (self.process, self.polls) = (process, 0);
        }
        self.polls += 1;
        if self.polls == 3 && !self.is_over {
            self.polls = 1;
            let level = [1_000, 800, 251, 200, 120, 60, 10, 0, -30];
            self.levels.push(*self.chance.choice(&level).unwrap());
        }
        buckets(*self.levels.last().unwrap())
    }
}

fn buckets(level: i64) -> Answer {
    Answer::Buckets(vec![(POLICY, level, CAPACITY, 0)])
}

fn config(dict: &str, receiver: &Receiver) -> String {
    let url = |sink: &str| receiver.url(sink);
    format!(
        "[history]\naddress = \"monitor.db\"\n\
         [alerts]\nresolve_after = '0 s'\npredict_within = '0 s'\nremind_warning = '0 s'\n\
         remind_critical = '0 s'\nremind_exhausted = '0 s'\nstale_after = '1 day'\n\
         [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"{dict}\"\n\
         [[sink]]\nname = \"webhook\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n\
         [[sink]]\nname = \"slack\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n\
         classes = [\"chat\"]\n\
         [[sink]]\nname = \"pagerduty\"\nkind = \"pagerduty\"\nurl = \"{}\"\n\
         routing_key_env = \"S\"\n\
         [[sink]]\nname = \"incident\"\nkind = \"incident\"\nurl = \"{}\"\nsecret_env = \"S\"\n",
        url("webhook"),
        url("slack"),
        url("pagerduty"),
        url("incident"),
    )
}

/// The events that the alert state machine, which has its own tests, produces for these levels.
fn expected(levels: &[i64]) -> Vec<Event> {
    let bucket = BucketId::new(PARTICIPANT, POLICY).unwrap();
    let limit = ReportedLimit::per_seconds(1_000, 0, 60).unwrap();
    let rule = Severity::ALL.into_iter().fold(
        AlertRule::default()
            .with_resolve_after_us(0)
            .with_predictions(
                0,
                AlertRule::default().predict_confidence(),
                Severity::Warning,
            ),
        |rule, severity| rule.with_reminders(severity, None),
    );
    let mut alert = AlertState::new(bucket.clone(), 0);
    let mut all = Vec::new();
    for (level, us) in levels.iter().zip(1_000_000..) {
        let sample = [Sample::new(bucket.clone(), limit, *level, us).unwrap()];
        let assessment = Assessment::of(&sample, rule.thresholds(), &AnalysisSettings::default());
        let (next, events) = evaluate(&alert, assessment.as_ref(), us, &rule, &[]);
        alert = next;
        all.extend(events);
    }
    all
}

/// The sequence number and the kind of an event: the end of its key.
fn tail(key: &str) -> (u64, String) {
    let mut parts = key.rsplit('/');
    let kind = parts.next().unwrap().to_owned();
    (parts.next().unwrap().parse().unwrap(), kind)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_monitor_killed_two_hundred_times_sends_every_change_once() {
    let seed = std::env::var("BALDE_SEED").map_or(20_261_115, |seed| seed.parse().unwrap());
    println!("BALDE_SEED={seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let truth = Arc::new(Mutex::new(Timeline {
        levels: vec![1_000],
        polls: 0,
        process: 0,
        chance: fastrand::Rng::with_seed(seed + 1),
        is_over: false,
    }));
    let process = Arc::new(AtomicU64::new(0));
    let dict = FakeDict::start(buckets(1_000)).await;
    let (levels, current) = (Arc::clone(&truth), Arc::clone(&process));
    dict.on_request(move |_| {
        let process = current.load(Ordering::SeqCst);
        Some(levels.lock().unwrap().polled(process))
    });
    let receiver = Receiver::start(seed + 2, 20).await;
    let config = config(&dict.url(), &receiver);
    let folder = tempfile::tempdir().unwrap();
    let time = FastTime::begin(SPEED);

    for number in 1..=KILLS {
        process.store(number, Ordering::SeqCst);
        let mut child = worker::start(&config, folder.path(), "log", time);
        wait_for_kill(&dict, &mut chance).await;
        child.kill().expect("it runs until it is killed");
        child.wait().unwrap();
    }
    // The last process lives until everything has been delivered.
    process.store(KILLS + 1, Ordering::SeqCst);
    let mut child = worker::start(&config, folder.path(), "log", time);
    let before = dict.requests();
    let start = Instant::now();
    let is_done = |receiver: &Receiver, events: &[Event]| {
        SINKS.iter().all(|(sink, classes)| {
            let arrived: BTreeSet<_> = receiver.keys(sink).iter().map(|key| tail(key)).collect();
            arrived.is_superset(&wanted(events, classes))
        })
    };
    let mut events = Vec::new();
    while start.elapsed() < DELIVERED_WITHIN {
        let levels = {
            let mut truth = truth.lock().unwrap();
            truth.is_over = true;
            truth.levels.clone()
        };
        events = expected(&levels);
        if dict.requests() > before + 3 && is_done(&receiver, &events) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let levels = truth.lock().unwrap().levels.clone();
    println!(
        "{} levels, {} polls, {} events over {KILLS} kills",
        levels.len(),
        dict.requests(),
        events.len()
    );
    assert!(events.len() > 20, "the buckets did rise and fall");
    for (sink, classes) in SINKS {
        let keys = receiver.keys(sink);
        let arrived: BTreeSet<_> = keys.iter().map(|key| tail(key)).collect();
        let wanted = wanted(&events, classes);
        println!(
            "{sink}: {} arrived, {} of them different",
            keys.len(),
            arrived.len()
        );
        assert_eq!(arrived, wanted, "{sink}");
        let different: BTreeSet<&String> = keys.iter().collect();
        assert_eq!(
            different.len(),
            arrived.len(),
            "{sink}: one key for one event"
        );
    }
    let logged = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let logged: BTreeSet<_> = logged
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|line| line["event_type"] == "alert")
        .map(|line| tail(line["key"].as_str().unwrap()))
        .collect();
    assert_eq!(logged, wanted(&events, &[SinkClass::Log]), "log");
}

/// Waits until the process is to be killed: after a random time, or some time after a number of polls.
async fn wait_for_kill(dict: &FakeDict, chance: &mut fastrand::Rng) {
    let ends_ms = if chance.bool() {
        chance.u64(LIFETIME_MS)
    } else {
        let enough = dict.requests() + chance.u64(POLLS);
        let start = Instant::now();
        while dict.requests() < enough && start.elapsed() < POLLS_WITHIN {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        chance.u64(AFTER_MS)
    };
    tokio::time::sleep(Duration::from_millis(ends_ms)).await;
}

fn wanted(events: &[Event], classes: &[SinkClass]) -> BTreeSet<(u64, String)> {
    let routes = Routes::default();
    let concerns = |event: &&Event| {
        let sinks = routes.sinks(event);
        classes.iter().any(|class| sinks.contains(class))
    };
    let events = events.iter().filter(concerns);
    events.map(|event| tail(&event.key)).collect()
}
