//! Samples, alarms and events to tell stories with.

use balde_monitor::alert::{Event, Kind, SinkClass, Why};
use balde_monitor::history::{Step, Told};
use balde_monitor::sample::{BucketId, Poll, Sample, Terms};
use balde_monitor::severity::Severity;

pub(crate) const PARTICIPANT: &str = "12345678";
pub(crate) const MINUTE_US: u64 = 60 * 1_000_000;
pub(crate) const HOUR_US: u64 = 60 * MINUTE_US;
pub(crate) const DAY_US: u64 = 24 * HOUR_US;
/// 1 November 2026, 00:00.
pub(crate) const NOVEMBER_US: u64 = 1_793_491_200_000_000;

pub(crate) fn bucket(policy: &str) -> BucketId {
    BucketId::new(PARTICIPANT, policy).expect("a bucket")
}

pub(crate) fn sample(policy: &str, level: i64, taken_us: u64) -> Sample {
    let terms = Terms::per_seconds(36_000, 1_200, 60).expect("terms");
    Sample::new(bucket(policy), terms, level, taken_us).expect("a sample")
}

pub(crate) fn poll(taken_us: u64, levels: &[(&str, i64)]) -> Poll {
    let sample = |(policy, level): &(&str, i64)| sample(policy, *level, taken_us);
    Poll::new(levels.iter().map(sample).collect()).expect("a poll")
}

pub(crate) fn raised(number: u64, episode: &str, severity: Severity, at_us: u64) -> Event {
    let kind = Kind::Raised {
        from: Severity::Normal,
        to: severity,
    };
    event(number, episode, kind, severity, at_us)
}

pub(crate) fn resolved(number: u64, episode: &str, severity: Severity, at_us: u64) -> Event {
    let kind = Kind::Resolved {
        from: severity,
        why: Why::Recovered,
    };
    event(number, episode, kind, severity, at_us)
}

pub(crate) fn reminder(number: u64, episode: &str, severity: Severity, at_us: u64) -> Event {
    let kind = Kind::Reminder { since_us: at_us };
    event(number, episode, kind, severity, at_us)
}

fn event(number: u64, episode: &str, kind: Kind, severity: Severity, at_us: u64) -> Event {
    Event {
        key: format!("{PARTICIPANT}/A/0/{number}/{}", kind.label()),
        episode: format!("{PARTICIPANT}/A/0/{episode}"),
        participant: PARTICIPANT.to_owned(),
        policy: Some("A".to_owned()),
        at_us,
        kind,
        severity,
        level: Some(-7),
        capacity: Some(36_000),
        silenced_by: None,
    }
}

pub(crate) fn told(event: Event, classes: &[SinkClass], sinks: &[(&str, SinkClass)]) -> Told {
    let sinks = sinks
        .iter()
        .map(|(name, class)| ((*name).to_owned(), *class));
    Told {
        event,
        classes: classes.to_vec(),
        sinks: sinks.collect(),
    }
}

/// To one webhook each.
pub(crate) fn to_hook(event: Event) -> Told {
    told(event, &[SinkClass::Event], &[("hook", SinkClass::Event)])
}

/// Commits events without any other change of the machines.
pub(crate) async fn tell(history: &balde_monitor::history::History, told: Vec<Told>) {
    let machines = history.machines(PARTICIPANT, 0).await.expect("machines");
    let step = Step {
        version: machines.version,
        watch: machines.watch,
        alarms: machines.alarms,
        told,
    };
    history.commit(&step).await.expect("a commit");
}
