//! Alerts and incidents as last read, which the pages show while the database does not answer, with what
//! has happened since.

use std::time::{Duration, Instant};

use super::App;
use crate::alert::{Event, EventKind};
use crate::history::{EventFilter, Incident};

/// How many of the newest events and incidents are kept in memory.
const EVENTS_MAX: usize = 200;
const INCIDENTS_MAX: usize = 100;

/// How often they are read again: if something has changed, and in any case, because another monitor may
/// have changed it.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const REFRESH: Duration = Duration::from_secs(30);

/// The newest events and incidents, the newest first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    events: parking_lot::Mutex<Vec<Event>>,
    incidents: parking_lot::Mutex<Vec<Incident>>,
}

impl Recent {
    /// Adds what an operator has just done.
    pub(super) fn remember(&self, event: &Event) {
        self.remember_events(std::slice::from_ref(event));
        add(&mut self.incidents.lock(), event);
    }

    /// Adds events that were read for a page.
    pub(super) fn remember_events(&self, events: &[Event]) {
        let mut known = self.events.lock();
        for event in events {
            if known.iter().all(|known| known.key != event.key) {
                known.push(event.clone());
            }
        }
        known.sort_by_key(|event| std::cmp::Reverse(event.at_us));
        known.truncate(EVENTS_MAX);
    }

    /// Replaces incidents by those that were read for a page.
    pub(super) fn remember_incidents(&self, incidents: &[Incident]) {
        let mut known = self.incidents.lock();
        known.retain(|known| incidents.iter().all(|new| new.episode != known.episode));
        known.extend_from_slice(incidents);
        known.sort_by_key(|incident| std::cmp::Reverse(incident.opened_us));
        known.truncate(INCIDENTS_MAX);
    }

    /// The events that match, with those that only memory has.
    pub(super) fn events(
        &self,
        unstored: Vec<Event>,
        filter: &EventFilter,
        max: usize,
    ) -> Vec<Event> {
        let mut events = unstored;
        let incidents = self.incidents.lock();
        let of_incidents = incidents.iter().flat_map(|incident| &incident.timeline);
        for event in self.events.lock().iter().chain(of_incidents) {
            if events.iter().all(|known| known.key != event.key) {
                events.push(event.clone());
            }
        }
        drop(incidents);
        events.retain(|event| filter.matches(event));
        events.sort_by_key(|event| std::cmp::Reverse(event.at_us));
        events.truncate(max);
        events
    }

    /// The incidents, continued by the events that only memory has.
    pub(super) fn incidents(&self, unstored: &[Event], max: usize) -> Vec<Incident> {
        let mut incidents = self.incidents.lock().clone();
        for event in unstored {
            add(&mut incidents, event);
        }
        incidents.sort_by_key(|incident| std::cmp::Reverse(incident.opened_us));
        incidents.truncate(max);
        incidents
    }
}

/// Adds an event to the incident of its episode, or opens one.
fn add(incidents: &mut Vec<Incident>, event: &Event) {
    let is_end = event.kind.is_end() || matches!(event.kind, EventKind::Changed(_));
    let closed_us = is_end.then_some(event.at_us);
    let mut known = incidents.iter_mut();
    if let Some(incident) = known.find(|incident| incident.episode == event.episode) {
        if incident.timeline.iter().any(|known| known.key == event.key) {
            return;
        }
        incident.severity = incident.severity.max(event.severity);
        incident.closed_us = incident.closed_us.or(closed_us);
        incident.timeline.push(event.clone());
    } else if !event.kind.is_end() && !event.kind.is_by_operator() {
        incidents.push(Incident {
            episode: event.episode.clone(),
            participant: event.participant.clone(),
            policy: event.policy.clone(),
            severity: event.severity,
            opened_us: event.at_us,
            closed_us,
            timeline: vec![event.clone()],
        });
    }
}

/// Reads the newest events and incidents regularly, for as long as the future is polled. What was read
/// last stays while the database fails.
pub(super) async fn keep_fresh(app: App) -> std::convert::Infallible {
    let mut last: Option<(u64, Instant)> = None;
    loop {
        let revision = app.0.status.revision();
        let is_fresh = last.is_some_and(|(seen, at)| seen == revision && at.elapsed() < REFRESH);
        if !is_fresh && read(&app).await {
            last = Some((revision, Instant::now()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns false if the database does not answer.
async fn read(app: &App) -> bool {
    let history = &app.0.cycle.components().history;
    if history.health().failure().is_some() {
        return false;
    }
    let filter = EventFilter::default();
    let (Ok(events), Ok(incidents)) = (
        history.events(&filter, EVENTS_MAX).await,
        history.incidents(INCIDENTS_MAX).await,
    ) else {
        return false;
    };
    *app.0.recent.events.lock() = events;
    *app.0.recent.incidents.lock() = incidents;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::ResolveReason;
    use crate::severity::Severity;
    use crate::sink::test_events::event;

    fn at(kind: EventKind, key: &str, at_us: u64) -> Event {
        Event {
            key: key.to_owned(),
            at_us,
            ..event(kind, Severity::Critical, 0)
        }
    }

    #[test]
    fn what_was_read_is_continued_by_what_only_memory_has() {
        let raised = EventKind::Raised {
            from: Severity::Normal,
            to: Severity::Critical,
        };
        let resolved = EventKind::Resolved {
            from: Severity::Critical,
            reason: ResolveReason::Recovered,
        };
        let recent = Recent::default();
        let stored = at(raised.clone(), "a", 10);
        *recent.events.lock() = vec![stored.clone()];
        let mut incidents = Vec::new();
        add(&mut incidents, &stored);
        *recent.incidents.lock() = incidents;
        // The end of the stored one, and another alert.
        let end = at(resolved, "b", 20);
        let mut other = at(raised, "c", 30);
        other.episode = "another".to_owned();
        let unstored = vec![stored.clone(), end, other];
        let events = recent.events(unstored.clone(), &EventFilter::default(), 10);
        let keys: Vec<&str> = events.iter().map(|event| event.key.as_str()).collect();
        assert_eq!(keys, ["c", "b", "a"]);
        let later = EventFilter {
            from_us: Some(20),
            ..EventFilter::default()
        };
        assert_eq!(recent.events(unstored.clone(), &later, 10).len(), 2);
        let incidents = recent.incidents(&unstored, 10);
        assert_eq!((incidents[0].opened_us, incidents[0].closed_us), (30, None));
        assert_eq!(
            (incidents[1].opened_us, incidents[1].closed_us),
            (10, Some(20))
        );
        assert_eq!(incidents[1].timeline.len(), 2, "no event twice");
        assert_eq!(recent.incidents(&unstored, 1).len(), 1);
    }
}
