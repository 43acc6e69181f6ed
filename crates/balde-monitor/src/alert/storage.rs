//! The state machine of the alert about a database that accepts no writes. It lives in memory only:
//! where it would be stored is what has failed.

use super::event::{Event, EventKind, MONITOR, episode, key};
use crate::severity::Severity;

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
    /// `alert_after_us`, and then one every `remind_every_us`.
    pub fn failing(
        &mut self,
        since_us: u64,
        cause: &str,
        now_us: u64,
        (alert_after_us, remind_every_us): (u64, Option<u64>),
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
    fn a_failure_is_reported_once_reminded_of_and_resolved_under_one_episode() {
        let timing = (15, Some(100));
        let mut alert = StorageAlert::new(7);
        assert_eq!(alert.failing(10, "disk full", 24, timing), None);
        let failed = alert.failing(10, "disk full", 25, timing).unwrap();
        assert_eq!(failed.key, "monitor/7/0/storage-failed");
        assert_eq!(failed.episode, "monitor/7/storage-0");
        assert_eq!(alert.failing(10, "disk full", 124, timing), None);
        let again = alert.failing(10, "disk full", 125, timing).unwrap();
        assert_eq!(again.key, "monitor/7/1/storage-still-failing");
        let over = alert.recovered(130).unwrap();
        assert!(over.kind.is_end());
        assert_eq!(
            (&over.episode, &again.episode),
            (&failed.episode, &failed.episode)
        );
        assert_eq!(alert.recovered(131), None);
        // A short failure is not reported, and neither is its end.
        assert_eq!(alert.failing(200, "lock", 205, timing), None);
        assert_eq!(alert.recovered(206), None);
        let next = alert.failing(300, "lock", 400, timing).unwrap();
        assert_eq!(next.episode, "monitor/7/storage-3");
    }
}
