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
