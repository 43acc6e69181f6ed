//! Events that say what operators did about alerts, for the timeline, the log and the receivers.

use super::event::{Event, EventKind, MONITOR, ResolveReason, Via};
use super::machine::resolve;
use super::silence::Silence;
use super::state::AlertState;

/// The event of an acknowledgement. It goes wherever the alert has been sent: its severity is the worst
/// of the episode. `None` if the bucket has no open alert.
pub fn acknowledged(alert: &AlertState, by: &str, via: Option<Via>, now_us: u64) -> Option<Event> {
    let by = by.to_owned();
    about(alert, EventKind::Acknowledged { by, via }, now_us)
}

/// The event of an acknowledgement that was taken back. `None` if the bucket has no open alert.
pub fn unacknowledged(
    alert: &AlertState,
    by: &str,
    via: Option<Via>,
    now_us: u64,
) -> Option<Event> {
    let by = by.to_owned();
    about(alert, EventKind::Unacknowledged { by, via }, now_us)
}

/// Closes the alert of a bucket because somebody did so in another system. If the level is still low,
/// the next sample raises a new alert.
pub fn close(state: &AlertState, by: &str, via: Via, now_us: u64) -> (AlertState, Vec<Event>) {
    let (state, mut events) = resolve(state, ResolveReason::Recovered, now_us);
    for event in &mut events {
        let EventKind::Resolved { from, .. } = event.kind else {
            continue;
        };
        let by = by.to_owned();
        let before = event.kind.label();
        event.kind = EventKind::Closed { from, by, via };
        let prefix = event.key.strip_suffix(&before).unwrap_or(&event.key);
        event.key = format!("{prefix}{}", event.kind.label());
    }
    (state, events)
}

/// The event of a new silence.
pub fn silenced(silence: &Silence, by: &str, now_us: u64) -> Event {
    let kind = EventKind::Silenced {
        by: by.to_owned(),
        until_us: silence.until_us(),
        up_to: silence.up_to(),
    };
    of_silence(silence, kind, now_us)
}

/// The event of a silence that was ended before its time.
pub fn silence_ended(silence: &Silence, by: &str, now_us: u64) -> Event {
    let kind = EventKind::SilenceEnded { by: by.to_owned() };
    of_silence(silence, kind, now_us)
}

fn about(alert: &AlertState, kind: EventKind, now_us: u64) -> Option<Event> {
    let episode = alert.open_episode()?;
    Some(Event {
        // Not numbered: the sequence belongs to the state machine, which does not see this.
        key: format!("{episode}/{}/{now_us}", kind.label()),
        episode,
        participant: alert.bucket.participant().to_owned(),
        policy: Some(alert.bucket.policy().to_owned()),
        at_us: now_us,
        kind,
        severity: alert.peak,
        level: alert.level,
        capacity: alert.capacity,
        recovery_us: alert.recovery_us,
        silenced_by: None,
    })
}

fn of_silence(silence: &Silence, kind: EventKind, now_us: u64) -> Event {
    let episode = format!("silence/{}", silence.id());
    Event {
        key: format!("{episode}/{}/{now_us}", kind.label()),
        episode,
        participant: silence.participant().unwrap_or(MONITOR).to_owned(),
        policy: silence.policy().map(str::to_owned),
        at_us: now_us,
        kind,
        severity: silence.up_to(),
        level: None,
        capacity: None,
        recovery_us: None,
        silenced_by: None,
    }
}
