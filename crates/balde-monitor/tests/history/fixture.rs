//! Samples, alerts and events for the tests of the history.

use balde_monitor::alert::{Event, EventKind, ResolveReason, SinkClass};
use balde_monitor::history::{RoutedEvent, StateUpdate};
use balde_monitor::sample::{BucketId, Poll, ReportedLimit, Sample};
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
    let limit = ReportedLimit::per_seconds(36_000, 1_200, 60).expect("limit");
    Sample::new(bucket(policy), limit, level, taken_us).expect("a sample")
}

pub(crate) fn poll(taken_us: u64, levels: &[(&str, i64)]) -> Poll {
    let sample = |(policy, level): &(&str, i64)| sample(policy, *level, taken_us);
    Poll::new(levels.iter().map(sample).collect()).expect("a poll")
}

pub(crate) fn raised(number: u64, episode: &str, severity: Severity, at_us: u64) -> Event {
    let kind = EventKind::Raised {
        from: Severity::Normal,
        to: severity,
    };
    event(number, episode, kind, severity, at_us)
}

pub(crate) fn resolved(number: u64, episode: &str, severity: Severity, at_us: u64) -> Event {
    let kind = EventKind::Resolved {
        from: severity,
        reason: ResolveReason::Recovered,
    };
    event(number, episode, kind, severity, at_us)
}

pub(crate) fn reminder(number: u64, episode: &str, severity: Severity, at_us: u64) -> Event {
    let kind = EventKind::Reminder { since_us: at_us };
    event(number, episode, kind, severity, at_us)
}

fn event(number: u64, episode: &str, kind: EventKind, severity: Severity, at_us: u64) -> Event {
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
        recovery_us: None,
        silenced_by: None,
    }
}

pub(crate) fn routed(
    event: Event,
    classes: &[SinkClass],
    sinks: &[(&str, SinkClass)],
) -> RoutedEvent {
    let sinks = sinks
        .iter()
        .map(|(name, class)| ((*name).to_owned(), *class));
    RoutedEvent {
        event,
        classes: classes.to_vec(),
        sinks: sinks.collect(),
    }
}

/// To one webhook each.
pub(crate) fn to_hook(event: Event) -> RoutedEvent {
    routed(event, &[SinkClass::Event], &[("hook", SinkClass::Event)])
}

/// Commits events without any other change of the state.
pub(crate) async fn commit_events(
    history: &balde_monitor::history::History,
    events: Vec<RoutedEvent>,
) {
    let state = history
        .participant_state(PARTICIPANT, 0)
        .await
        .expect("state");
    let update = StateUpdate {
        version: state.version,
        staleness: state.staleness,
        alerts: state.alerts,
        events,
    };
    history.commit(&update).await.expect("a commit");
}
