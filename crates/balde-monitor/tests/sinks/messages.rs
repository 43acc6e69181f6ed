//! Events and messages to deliver.

use balde_monitor::alert::{
    Event, EventKind, ForecastResult, OutboxMessage, ResolveReason, SinkClass,
};
use balde_monitor::analyse::{Change, Confidence};
use balde_monitor::history::{History, RoutedEvent, StateUpdate};
use balde_monitor::severity::Severity;
use tempfile::TempDir;

/// 2026-11-15 10:00:00 UTC.
pub(crate) const TEN_US: u64 = 1_794_736_800_000_000;

pub(crate) const SECOND_US: u64 = 1_000_000;

pub(crate) fn event(participant: &str, policy: &str, sequence: u64, kind: EventKind) -> Event {
    Event {
        key: format!("{participant}/{policy}/7/{sequence}/{}", kind.label()),
        episode: format!("{participant}/{policy}/7/level-0"),
        participant: participant.to_owned(),
        policy: Some(policy.to_owned()),
        at_us: TEN_US + sequence * SECOND_US,
        kind,
        severity: Severity::Critical,
        level: Some(3_600),
        capacity: Some(36_000),
        recovery_us: None,
        silenced_by: None,
    }
}

/// An alert that is raised, sent again and resolved.
pub(crate) fn episode(policy: &str) -> Vec<Event> {
    let kinds = [
        EventKind::Raised {
            from: Severity::Normal,
            to: Severity::Critical,
        },
        EventKind::Reminder { since_us: TEN_US },
        EventKind::Resolved {
            from: Severity::Critical,
            reason: ResolveReason::Recovered,
        },
    ];
    let kinds = (0..).zip(kinds);
    kinds
        .map(|(sequence, kind)| event("12345678", policy, sequence, kind))
        .collect()
}

/// One event of each kind, and of each again with names that are as long and as awkward as names
/// may be.
pub(crate) fn every_kind() -> Vec<Event> {
    use Severity::{Critical, Exhausted, Normal, Warning};
    let newest_us = TEN_US;
    let kinds = |policy: &str| {
        let policy = policy.to_owned();
        let changes = [
            Change::Category {
                from: "A".to_owned(),
                to: "H".to_owned(),
            },
            Change::Capacity {
                policy: policy.clone(),
                from: 50,
                to: 40,
            },
            Change::Refill {
                policy: policy.clone(),
                from: (10, 60_000_000),
                to: (1, 6_000_001),
            },
            Change::PolicyAdded {
                policy: policy.clone(),
            },
            Change::PolicyRemoved { policy },
        ];
        let mut kinds = vec![
            EventKind::Raised {
                from: Normal,
                to: Warning,
            },
            EventKind::Raised {
                from: Warning,
                to: Exhausted,
            },
            EventKind::Lowered {
                from: Exhausted,
                to: Critical,
            },
            EventKind::Resolved {
                from: Critical,
                reason: ResolveReason::Recovered,
            },
            EventKind::Resolved {
                from: Critical,
                reason: ResolveReason::Vanished,
            },
            EventKind::Reminder { since_us: u64::MAX },
            EventKind::Predicted {
                empty_at_us: TEN_US,
                confidence: Confidence::Medium,
            },
            EventKind::ForecastOver {
                result: ForecastResult::CameTrue,
            },
            EventKind::ForecastOver {
                result: ForecastResult::Averted,
            },
            EventKind::Stale {
                newest_us,
                reason: None,
            },
            EventKind::StillStale {
                newest_us,
                reason: None,
            },
            EventKind::Fresh { newest_us },
        ];
        kinds.extend(changes.map(EventKind::Changed));
        kinds
    };
    let awkward = ["&", "<", ">", "\"", "'", "\\", "😀", "é", " ", "%"].concat();
    let long = format!(
        "<!channel>{awkward}{}",
        "&".repeat(128 - 10 - awkward.len())
    );
    let mut events = Vec::new();
    for (participant, policy) in [("12345678", "ENTRIES_WRITE"), (&long, &long)] {
        for (sequence, kind) in (0..).zip(kinds(policy)) {
            let event = event(participant, policy, sequence, kind);
            events.push(Event {
                policy: None,
                level: None,
                capacity: None,
                ..event.clone()
            });
            for level in [36_000, 0, -1_000_000] {
                let level = Some(level);
                events.push(Event {
                    level,
                    ..event.clone()
                });
            }
        }
    }
    events
}

pub(crate) fn message(event: Event, class: SinkClass) -> OutboxMessage {
    OutboxMessage {
        id: 1,
        sink: "sink".to_owned(),
        class,
        event,
        attempts: 0,
    }
}

/// A history in a temporary folder.
pub(crate) async fn history() -> (TempDir, History) {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("monitor.db");
    let history = History::open(file.to_str().expect("a path of text")).await;
    (folder, history.expect("a history"))
}

/// Commits events to be delivered to each of the sinks, as an analysis would.
pub(crate) async fn commit_events(history: &History, events: &[Event], sinks: &[&str]) {
    for event in events {
        let state = history
            .participant_state(&event.participant, event.at_us)
            .await;
        let state = state.expect("state");
        let update = StateUpdate {
            version: state.version,
            staleness: state.staleness,
            alerts: state.alerts,
            events: vec![RoutedEvent {
                event: event.clone(),
                classes: vec![SinkClass::Event],
                sinks: sinks
                    .iter()
                    .map(|sink| ((*sink).to_owned(), SinkClass::Event))
                    .collect(),
            }],
        };
        history.commit(&update).await.expect("a commit");
    }
}

pub(crate) fn keys(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.key.clone()).collect()
}
