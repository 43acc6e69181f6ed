//! Which events are sent: laws of the alert state machine over random levels.

use balde_monitor::alert::{AlertRule, AlertState, Event, EventKind, Silence, evaluate};
use balde_monitor::analyse::{AnalysisSettings, Assessment, Confidence};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::severity::{Severity, Thresholds};
use proptest::prelude::*;
use std::collections::BTreeSet;

const CAPACITY: i64 = 1_000;
const SECOND_US: u64 = 1_000_000;

fn limit() -> ReportedLimit {
    ReportedLimit::per_seconds(CAPACITY, 10, 60).unwrap()
}

fn bucket() -> BucketId {
    BucketId::new("12345678", "ANY").unwrap()
}

/// Levels that wander, jump and linger around the thresholds, each some seconds after the last.
fn walk() -> impl Strategy<Value = Vec<(u64, i64)>> {
    let level = prop_oneof![
        -50..=CAPACITY,
        90..=110_i64,
        145..=155_i64,
        240..=260_i64,
        295..=305_i64,
        -5..=55_i64,
        Just(CAPACITY),
    ];
    prop::collection::vec((1..200_u64, level), 1..80)
}

fn samples(walk: &[(u64, i64)]) -> Vec<Sample> {
    let mut at_us = 0;
    let sample = |&(gap_s, level): &(u64, i64)| {
        at_us += gap_s * SECOND_US;
        Sample::new(bucket(), limit(), level, at_us).unwrap()
    };
    walk.iter().map(sample).collect()
}

/// Levels only: no predictions, no reminders.
fn plain(resolve_after_us: u64) -> AlertRule {
    let mut rule = AlertRule::default()
        .with_resolve_after_us(resolve_after_us)
        .with_predictions(0, Confidence::Low, Severity::Warning);
    for severity in Severity::ALL {
        rule = rule.with_reminders(severity, None);
    }
    rule
}

/// Everything at once, with calm and reminders so short that walks meet them.
fn lively() -> AlertRule {
    Severity::ALL.into_iter().fold(
        AlertRule::default().with_resolve_after_us(90 * SECOND_US),
        |rule, s| rule.with_reminders(s, Some(300 * SECOND_US)),
    )
}

fn see(history: &[Sample]) -> Assessment<'_> {
    Assessment::of(history, Thresholds::default(), &AnalysisSettings::default()).unwrap()
}

fn run(
    walk: &[(u64, i64)],
    rule: &AlertRule,
    silences: &[Silence],
) -> (Vec<AlertState>, Vec<Vec<Event>>) {
    let history = samples(walk);
    let mut alert = AlertState::new(bucket(), 0);
    let mut alerts = Vec::new();
    let mut told = Vec::new();
    for end in 1..=history.len() {
        let now_us = history[end - 1].taken_us();
        let (next, events) = evaluate(&alert, Some(&see(&history[..end])), now_us, rule, silences);
        alert = next;
        alerts.push(alert.clone());
        told.push(events);
    }
    (alerts, told)
}

/// The slow model: for each severity a switch that is on from its threshold down and off from the
/// band above it up.
#[derive(Default)]
struct Switches([bool; 3]);

impl Switches {
    fn see(&mut self, level: i64) -> Severity {
        for (on, threshold) in self.0.iter_mut().zip([250, 100, 0]) {
            if level <= threshold {
                *on = true;
            } else if level > threshold + 50 {
                *on = false;
            }
        }
        let worst = self.0.iter().rposition(|on| *on);
        worst.map_or(Severity::Normal, |index| Severity::ALL[index + 1])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// So a threshold is told once each time the band above it is crossed, and no transition that
    /// a poll saw is missed.
    #[test]
    fn the_machine_is_three_switches_each_with_its_band(walk in walk()) {
        let (alerts, told) = run(&walk, &plain(0), &[]);
        let mut model = Switches::default();
        let mut was = Severity::Normal;
        for ((alert, events), (_, level)) in alerts.iter().zip(&told).zip(&walk) {
            let is = model.see(*level);
            prop_assert_eq!(alert.severity, is);
            let kinds: Vec<&EventKind> = events.iter().map(|event| &event.kind).collect();
            match (was, is) {
                (was, is) if was == is => prop_assert!(kinds.is_empty()),
                (was, is) if is > was => {
                    prop_assert_eq!(kinds, [&EventKind::Raised { from: was, to: is }]);
                }
                (_, Severity::Normal) => {
                    let is_resolved = matches!(kinds[..], [EventKind::Resolved { .. }]);
                    prop_assert!(is_resolved);
                }
                (was, is) => prop_assert_eq!(kinds, [&EventKind::Lowered { from: was, to: is }]),
            }
            was = is;
        }
    }

    /// With a calm, too, it is never told to be better than it is; and it gets better only after
    /// every sample of the calm said so.
    #[test]
    fn the_severity_is_lowered_only_after_resolve_after(walk in walk(), calm_s in 1..400_u64) {
        let resolve_after_us = calm_s * SECOND_US;
        let (alerts, _) = run(&walk, &plain(resolve_after_us), &[]);
        let history = samples(&walk);
        let thresholds = Thresholds::default();
        let mut was = Severity::Normal;
        for (index, alert) in alerts.iter().enumerate() {
            let now_us = history[index].taken_us();
            prop_assert!(alert.severity >= thresholds.severity(walk[index].1, limit()));
            if alert.severity < was {
                // Back to the sample at which the calm began, all were better than what it was.
                let first = history[..=index]
                    .iter()
                    .rposition(|sample| now_us - sample.taken_us() >= resolve_after_us)
                    .expect("the calm was as long as it must be");
                for sample in &history[first..=index] {
                    let still = thresholds.severity_with_hysteresis(sample.level(), limit());
                    prop_assert!(still < was && still <= alert.severity);
                }
            }
            was = alert.severity;
        }
    }

    #[test]
    fn a_bucket_that_stays_full_is_resolved_after_two_calms(walk in walk(), calm_s in 1..400_u64) {
        let mut walk = walk;
        // One sample to begin, two calms, and a poll's delay for each.
        let quiet = 2 * calm_s.div_ceil(50) + 3;
        walk.extend((0..quiet).map(|_| (50, CAPACITY)));
        let (alerts, _) = run(&walk, &plain(calm_s * SECOND_US), &[]);
        prop_assert_eq!(alerts.last().unwrap().severity, Severity::Normal);
    }

    /// Every key once, every episode closed by at most one resolution, and what is open is what the
    /// state says.
    #[test]
    fn every_transition_has_its_own_key(walk in walk()) {
        let (alerts, told) = run(&walk, &lively(), &[]);
        let events: Vec<Event> = told.into_iter().flatten().collect();
        let keys: BTreeSet<&str> = events.iter().map(|event| event.key.as_str()).collect();
        prop_assert_eq!(keys.len(), events.len());
        let mut open = BTreeSet::new();
        for event in &events {
            match event.kind {
                EventKind::Raised { from: Severity::Normal, .. } => {
                    prop_assert!(open.insert(event.episode.clone()));
                }
                // Again when less time is left.
                EventKind::Predicted { .. } => {
                    open.insert(event.episode.clone());
                }
                EventKind::Resolved { .. } | EventKind::ForecastOver { .. } => {
                    prop_assert!(open.remove(&event.episode));
                }
                _ => prop_assert!(open.contains(&event.episode)),
            }
        }
        let last = alerts.last().unwrap();
        let expected = usize::from(last.severity > Severity::Normal)
            + usize::from(last.forecast.is_some());
        prop_assert_eq!(open.len(), expected);
    }

    /// Crashes: before the commit both state and events are lost, and the step is taken again;
    /// after it the same sample may be seen again. Neither changes the events.
    #[test]
    fn crashes_before_and_after_the_commit_change_nothing(
        walk in walk(),
        crashes in prop::collection::vec(any::<bool>(), 80),
    ) {
        let (_, told) = run(&walk, &lively(), &[]);
        let calmly: Vec<Event> = told.into_iter().flatten().collect();

        let history = samples(&walk);
        let mut alert = AlertState::new(bucket(), 0);
        let mut committed = Vec::new();
        for end in 1..=history.len() {
            let now_us = history[end - 1].taken_us();
            let seen = see(&history[..end]);
            let take = |alert: &AlertState| evaluate(alert, Some(&seen), now_us, &lively(), &[]);
            let lost = take(&alert);
            let (next, events) = take(&alert);
            prop_assert_eq!(&lost, &(next.clone(), events.clone()));
            alert = next;
            committed.extend(events);
            if crashes[end - 1] {
                let (again, events) = take(&alert);
                prop_assert_eq!(&again, &alert);
                prop_assert_eq!(events, []);
            }
        }
        prop_assert_eq!(committed, calmly);
    }

    /// A silence delays, it does not lose: what it covered is told when it ends, or was over.
    #[test]
    fn a_silence_hides_nothing_that_outlives_it(
        walk in walk(), from_s in 0..2_000_u64, length_s in 1..4_000_u64
    ) {
        let until_us = (from_s + length_s) * SECOND_US;
        let from_us = from_s * SECOND_US;
        let silence = Silence::new("work", Severity::Exhausted, from_us, until_us).unwrap();
        let (alerts, told) = run(&walk, &plain(0), std::slice::from_ref(&silence));
        let history = samples(&walk);
        let mut heard = Severity::Normal;
        for ((alert, events), sample) in alerts.iter().zip(&told).zip(&history) {
            let is_silent = (from_us..until_us).contains(&sample.taken_us());
            for event in events.iter().filter(|event| event.silenced_by.is_none()) {
                heard = match event.kind {
                    EventKind::Raised { to, .. } | EventKind::Lowered { to, .. } => to,
                    EventKind::Reminder { .. } => event.severity,
                    EventKind::Resolved { .. } => Severity::Normal,
                    _ => heard,
                };
            }
            if is_silent {
                prop_assert!(heard <= alert.severity || heard == Severity::Normal);
            } else {
                prop_assert_eq!(heard, alert.severity);
            }
        }
    }
}
