//! The figures of the requirements: severities, recovery times and routes.

use balde_monitor::alert::{AlertRule, AlertRules, AlertState, Routes, SinkClass, evaluate};
use balde_monitor::analyse::{AnalysisSettings, Assessment};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::severity::{Severity, Thresholds};

fn entries_write(level: i64) -> Sample {
    let bucket = BucketId::new("12345678", "ENTRIES_WRITE").unwrap();
    let limit = ReportedLimit::per_seconds(36_000, 1_200, 60).unwrap();
    Sample::new(bucket, limit, level, 60_000_000).unwrap()
}

/// WARNING at or below 25 % left, CRITICAL at or below 10 %, EXHAUSTED at or below zero.
#[test]
fn the_levels_of_entries_write() {
    use Severity::{Critical, Exhausted, Normal, Warning};
    for (level, utilisation_bp, severity) in [
        (36_000, 0, Normal),
        (27_000, 2_500, Normal),
        (18_000, 5_000, Normal),
        (9_001, 7_500, Normal),
        (9_000, 7_500, Warning),
        (7_200, 8_000, Warning),
        (5_000, 8_612, Warning),
        (3_601, 9_000, Warning),
        (3_600, 9_000, Critical),
        (3_000, 9_167, Critical),
        (1_000, 9_723, Critical),
        (1, 10_000, Critical),
        (0, 10_000, Exhausted),
        (-15, 10_005, Exhausted),
        (-36_000, 20_000, Exhausted),
    ] {
        let history = [entries_write(level)];
        let seen = Assessment::of(
            &history,
            Thresholds::default(),
            &AnalysisSettings::default(),
        )
        .unwrap();
        assert_eq!(seen.severity(), severity, "{level}");
        assert_eq!(seen.utilisation_bp(), utilisation_bp, "{level}");

        let alert = AlertState::new(history[0].bucket().clone(), 0);
        let (alert, events) = evaluate(&alert, Some(&seen), 60_000_000, &AlertRule::default(), &[]);
        assert_eq!(alert.severity, severity);
        assert_eq!(events.len(), usize::from(severity > Normal));
    }
}

#[test]
fn an_emptied_bucket_recovers_in_thirty_minutes() {
    let history = [entries_write(0)];
    let seen = Assessment::of(
        &history,
        Thresholds::default(),
        &AnalysisSettings::default(),
    )
    .unwrap();
    assert_eq!(seen.recovery_us(), Some(1_800 * 1_000_000));
    assert_eq!(seen.fill_us(), Some(1_800 * 1_000_000));
    assert_eq!(seen.time_to_full().unwrap().at_most_us, 1_800 * 1_000_000);
}

#[test]
fn each_severity_is_routed_to_its_sinks() {
    use SinkClass::{Chat, Event, Gauge, Incident, Log, Page, PageUrgent};
    let routes = Routes::default();
    for (level, sinks) in [
        (9_000, vec![Log, Event, Gauge]),
        (3_600, vec![Log, Event, Gauge, Page, Chat]),
        (0, vec![Log, Event, Gauge, PageUrgent, Chat, Incident]),
    ] {
        let history = [entries_write(level)];
        let seen = Assessment::of(
            &history,
            Thresholds::default(),
            &AnalysisSettings::default(),
        )
        .unwrap();
        let alert = AlertState::new(history[0].bucket().clone(), 0);
        let (_, events) = evaluate(&alert, Some(&seen), 60_000_000, &AlertRule::default(), &[]);
        assert_eq!(routes.sinks(&events[0]), sinks.into_iter().collect());
    }
}

#[test]
fn thresholds_per_policy_and_per_bucket() {
    let early = Thresholds::new(5_000, 2_000, 500).unwrap();
    let late = Thresholds::new(500, 100, 100).unwrap();
    let own = BucketId::new("87654321", "ENTRIES_WRITE").unwrap();
    let rules = AlertRules::default()
        .with_policy("ENTRIES_WRITE", AlertRule::default().with_thresholds(early))
        .with_bucket(own.clone(), AlertRule::default().with_thresholds(late));
    let thresholds = |participant, policy| {
        let bucket = BucketId::new(participant, policy).unwrap();
        rules.rule(&bucket).thresholds()
    };
    assert_eq!(thresholds("12345678", "ENTRIES_WRITE"), early);
    assert_eq!(thresholds("87654321", "ENTRIES_WRITE"), late);
    assert_eq!(thresholds("87654321", "CLAIMS_READ"), Thresholds::default());
}

/// The document's burst: 36,000 → 21,000 → 7,200 → 0 → 1,200, half a minute apart.
#[test]
fn the_timeline_of_a_burst() {
    const HALF_MINUTE_US: u64 = 30_000_000;
    use Severity::{Exhausted, Normal, Warning};
    let levels = [36_000, 21_000, 7_200, 0, 1_200];
    let bucket = BucketId::new("12345678", "ENTRIES_WRITE").unwrap();
    let limit = ReportedLimit::per_seconds(36_000, 1_200, 60).unwrap();
    let history: Vec<Sample> = (1..)
        .zip(levels)
        .map(|(n, level)| Sample::new(bucket.clone(), limit, level, n * HALF_MINUTE_US).unwrap())
        .collect();
    let rule = AlertRule::default();
    let settings = AnalysisSettings::default();
    let mut alert = AlertState::new(bucket, 0);
    let mut told = Vec::new();
    // After the refill of 1,200 the bucket is at 3.3 %: no longer empty, but still EXHAUSTED until it
    // has been above the band for two minutes.
    let severities = [Normal, Normal, Warning, Exhausted, Exhausted];
    for (seen, expected) in (1..).zip(severities) {
        let history = &history[..seen];
        let now = Assessment::of(history, rule.thresholds(), &settings).unwrap();
        let at_us = now.sample().taken_us();
        let (next, events) = evaluate(&alert, Some(&now), at_us, &rule, &[]);
        told.extend(events.iter().map(|event| event.kind.label()));
        alert = next;
        assert_eq!(alert.severity, expected, "after {seen} samples");
    }
    let raised: Vec<&String> = told
        .iter()
        .filter(|one| one.starts_with("raised"))
        .collect();
    assert_eq!(raised, ["raised-WARNING", "raised-EXHAUSTED"], "{told:?}");
    assert!(told.iter().all(|one| one != "resolved"), "{told:?}");
    // The utilisation that the document draws: 0 %, 41.7 %, 80 %, 100 %, 96.7 %.
    let shares = history.iter().map(|sample| {
        let one = std::slice::from_ref(sample);
        let seen = Assessment::of(one, rule.thresholds(), &settings).unwrap();
        seen.utilisation_bp()
    });
    assert_eq!(shares.collect::<Vec<_>>(), [0, 4_167, 8_000, 10_000, 9_667]);
}

/// The document's equilibrium: at 35,979 tokens as many are consumed as are refilled.
#[test]
fn the_equilibrium_at_35_979() {
    let bucket = BucketId::new("12345678", "ENTRIES_WRITE").unwrap();
    let limit = ReportedLimit::per_seconds(36_000, 1_200, 60).unwrap();
    let history: Vec<Sample> = (1..=10)
        .map(|minute| Sample::new(bucket.clone(), limit, 35_979, minute * 60_000_000).unwrap())
        .collect();
    let settings = AnalysisSettings::default();
    let seen = Assessment::of(&history, Thresholds::default(), &settings).unwrap();
    assert_eq!(seen.severity(), Severity::Normal);
    // 1,200 a minute are consumed although the level does not move.
    let burn_rates = seen.burn_rates();
    let burn = burn_rates.last().unwrap();
    let per_minute = burn.expected_milli_per_minute();
    assert!(
        (1_190_000..=1_210_000).contains(&per_minute),
        "{per_minute}"
    );
    let alert = AlertState::new(bucket, 0);
    let at_us = seen.sample().taken_us();
    let (_, events) = evaluate(&alert, Some(&seen), at_us, &AlertRule::default(), &[]);
    assert!(events.is_empty(), "{events:?}");
}
