//! The state machine of the alert about a database that accepts no writes. It lives in memory only:
//! where it would be stored is what has failed.

use super::event::{Event, EventKind, MONITOR, episode, key};
use super::open::OpenAlert;
use super::silence::Silence;
use crate::severity::Severity;

/// What works while the database does not: the same sentence on the pages, in `/readyz`, in the log and in
/// the alert about it. The dashboard has it in both languages.
pub(crate) const WITHOUT_STORAGE: &str = "Levels, alerts, deliveries, metrics, acknowledgements and \
     silences go on from memory and are stored when the database is back; older history and incidents \
     cannot be read until then.";

/// The alert about the monitor's own database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageAlert {
    epoch_us: u64,
    sequence: u64,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    episode: u64,
    since_us: u64,
    notified_us: u64,
}

impl StorageAlert {
    /// Creates the state of a monitor that has just started.
    pub const fn new(now_us: u64) -> Self {
        Self {
            epoch_us: now_us,
            sequence: 0,
            open: None,
        }
    }

    /// Reports that writes have failed since `since_us`. Returns an event when they have for
    /// `alert_after_us`, and then one every `remind_every_us`, unless the alert is acknowledged.
    pub fn failing(
        &mut self,
        since_us: u64,
        cause: &str,
        now_us: u64,
        (alert_after_us, remind_every_us): (u64, Option<u64>),
        silences: &[Silence],
    ) -> Option<Event> {
        let cause = cause.to_owned();
        match self.open {
            None if now_us.saturating_sub(since_us) >= alert_after_us => {
                self.open = Some(Open {
                    episode: self.sequence,
                    since_us,
                    notified_us: now_us,
                });
                Some(self.event(EventKind::StorageFailed { since_us, cause }, now_us))
            }
            None => None,
            Some(open) => {
                let waited_us = now_us.saturating_sub(open.notified_us);
                remind_every_us.filter(|us| waited_us >= (*us).max(1))?;
                if self.is_acknowledged(silences, now_us) {
                    return None;
                }
                self.open = Some(Open {
                    notified_us: now_us,
                    ..open
                });
                let since_us = open.since_us;
                Some(self.event(EventKind::StorageStillFailing { since_us, cause }, now_us))
            }
        }
    }

    /// Reports that writes succeed again. Returns an event if the failure was reported.
    pub fn recovered(&mut self, now_us: u64) -> Option<Event> {
        let since_us = self.open?.since_us;
        let event = self.event(EventKind::StorageRecovered { since_us }, now_us);
        self.open = None;
        Some(event)
    }

    /// The open alert.
    pub fn open_alert(&self) -> Option<OpenAlert> {
        let open = self.open?;
        let episode = episode(MONITOR, self.epoch_us, open.episode, "storage");
        Some(OpenAlert::about_storage(episode))
    }

    /// Only an acknowledgement keeps reminders back: a silence of all participants is about DICT.
    fn is_acknowledged(&self, silences: &[Silence], now_us: u64) -> bool {
        let Some(alert) = self.open_alert() else {
            return false;
        };
        let is_of_it = |silence: &&Silence| silence.acknowledged_episode() == Some(&alert.episode);
        let mut acknowledgements = silences.iter().filter(is_of_it);
        acknowledgements.any(|silence| silence.covers(MONITOR, None, alert.severity, now_us))
    }

    fn event(&mut self, kind: EventKind, at_us: u64) -> Event {
        let group = self.open.map_or(self.sequence, |open| open.episode);
        let event = Event {
            key: key(MONITOR, self.epoch_us, self.sequence, &kind.label()),
            episode: episode(MONITOR, self.epoch_us, group, "storage"),
            participant: MONITOR.to_owned(),
            policy: None,
            at_us,
            kind,
            severity: Severity::Critical,
            level: None,
            capacity: None,
            recovery_us: None,
            silenced_by: None,
        };
        self.sequence += 1;
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_failure_has_no_reminders_until_it_is_taken_back() {
        let timing = (15, Some(100));
        let mut alert = StorageAlert::new(7);
        alert.failing(10, "disk full", 25, timing, &[]).unwrap();
        let open = alert.open_alert().unwrap();
        let acknowledged = [Silence::acknowledgement(&open, "Ana", 30)];
        assert_eq!(
            alert.failing(10, "disk full", 300, timing, &acknowledged),
            None
        );
        let reminder = alert.failing(10, "disk full", 301, timing, &[]).unwrap();
        assert_eq!(reminder.episode, open.episode);
        // The acknowledgement of an earlier failure does not cover the next one.
        alert.recovered(310).unwrap();
        assert_eq!(alert.open_alert(), None);
        alert
            .failing(400, "disk full", 420, timing, &acknowledged)
            .unwrap();
        assert!(
            alert
                .failing(400, "disk full", 520, timing, &acknowledged)
                .is_some()
        );
    }

    #[test]
    fn a_failure_is_reported_once_reminded_of_and_resolved_under_one_episode() {
        let timing = (15, Some(100));
        let mut alert = StorageAlert::new(7);
        assert_eq!(alert.failing(10, "disk full", 24, timing, &[]), None);
        let failed = alert.failing(10, "disk full", 25, timing, &[]).unwrap();
        assert_eq!(failed.key, "monitor/7/0/storage-failed");
        assert_eq!(failed.episode, "monitor/7/storage-0");
        assert_eq!(alert.failing(10, "disk full", 124, timing, &[]), None);
        let again = alert.failing(10, "disk full", 125, timing, &[]).unwrap();
        assert_eq!(again.key, "monitor/7/1/storage-still-failing");
        let over = alert.recovered(130).unwrap();
        assert!(over.kind.is_end());
        assert_eq!(
            (&over.episode, &again.episode),
            (&failed.episode, &failed.episode)
        );
        assert_eq!(alert.recovered(131), None);
        // A short failure is not reported, and neither is its end.
        assert_eq!(alert.failing(200, "lock", 205, timing, &[]), None);
        assert_eq!(alert.recovered(206), None);
        let next = alert.failing(300, "lock", 400, timing, &[]).unwrap();
        assert_eq!(next.episode, "monitor/7/storage-3");
    }
}
