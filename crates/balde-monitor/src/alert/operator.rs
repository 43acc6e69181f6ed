//! Events that say what operators did about alerts, for the timeline, the log and the receivers.

use super::event::{Event, EventKind, MONITOR, ResolveReason, Via};
use super::machine::{close_forecast, resolve};
use super::open::OpenAlert;
use super::rule::StalenessRule;
use super::silence::Silence;
use super::staleness::{StalenessCheck, close_staleness};
use super::state::AlertState;
use crate::severity::Severity;

/// The event of an acknowledgement. It goes wherever the alert has been sent: its severity is the worst
/// of the episode.
pub fn acknowledged(alert: &OpenAlert, by: &str, via: Option<Via>, now_us: u64) -> Event {
    let by = by.to_owned();
    about(alert, EventKind::Acknowledged { by, via }, now_us)
}

/// The event of an acknowledgement that was taken back.
pub fn unacknowledged(alert: &OpenAlert, by: &str, via: Option<Via>, now_us: u64) -> Event {
    let by = by.to_owned();
    about(alert, EventKind::Unacknowledged { by, via }, now_us)
}

/// Closes an alert of a bucket because somebody did so in another system: that about its level, together
/// with a forecast, or the forecast alone. If the cause is still there, the next sample raises a new
/// alert. `None` if the bucket has no open alert with this episode.
pub fn close(
    state: &AlertState,
    episode: &str,
    by: &str,
    via: Via,
    now_us: u64,
) -> Option<(AlertState, Vec<Event>)> {
    let is_of_level = state.open_episode().as_deref() == Some(episode);
    let is_of_forecast = state.forecast_episode().as_deref() == Some(episode);
    let (state, mut events) = if is_of_level {
        resolve(state, ResolveReason::Recovered, now_us)
    } else if is_of_forecast {
        close_forecast(state, now_us)
    } else {
        return None;
    };
    for event in &mut events {
        let from = match event.kind {
            EventKind::Resolved { from, .. } => from,
            EventKind::ForecastOver { .. } if is_of_forecast => event.severity,
            _ => continue,
        };
        set_closed(event, from, by, via);
    }
    Some((state, events))
}

/// Closes the alert about the stale data of a participant because somebody did so in another system.
/// If the data is still stale, the next check raises a new alert. `None` if the episode is over.
pub fn close_stale(
    state: &StalenessCheck,
    episode: &str,
    by: &str,
    via: Via,
    now_us: u64,
    rule: &StalenessRule,
) -> Option<(StalenessCheck, Vec<Event>)> {
    if state.open_episode().as_deref() != Some(episode) {
        return None;
    }
    let (state, mut events) = close_staleness(state, now_us, rule);
    for event in &mut events {
        set_closed(event, rule.stale_severity, by, via);
    }
    Some((state, events))
}

/// Makes the end of an episode one that a person has caused.
fn set_closed(event: &mut Event, from: Severity, by: &str, via: Via) {
    let by = by.to_owned();
    let before = event.kind.label();
    event.kind = EventKind::Closed { from, by, via };
    let prefix = event.key.strip_suffix(&before).unwrap_or(&event.key);
    event.key = format!("{prefix}{}", event.kind.label());
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

fn about(alert: &OpenAlert, kind: EventKind, now_us: u64) -> Event {
    Event {
        // Not numbered: the sequence belongs to the state machine, which does not see this.
        key: format!("{}/{}/{now_us}", alert.episode, kind.label()),
        episode: alert.episode.clone(),
        participant: alert.participant.clone(),
        policy: alert.policy.clone(),
        at_us: now_us,
        kind,
        severity: alert.peak,
        level: alert.level,
        capacity: alert.capacity,
        recovery_us: alert.recovery_us,
        silenced_by: None,
    }
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
