//! Messages of one sink that are delivered without the outbox, while the database accepts no writes.

use std::collections::{BTreeSet, VecDeque};

use crate::alert::OutboxMessage;

/// The most messages in memory, delivered ones included; beyond, the oldest delivered one is
/// forgotten, else the oldest.
const MESSAGES_MAX: usize = 10_000;

/// The messages in the order of their events. A delivered message is remembered until it appears in
/// the outbox, where it is marked instead of being sent again.
#[derive(Debug, Default)]
pub(super) struct MemoryQueue {
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    message: OutboxMessage,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting { due_us: u64 },
    InFlight,
    Delivered { at_us: u64 },
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Send(Box<OutboxMessage>),
    WaitUntil { us: u64 },
    Nothing,
}

/// What the outbox has to do with a message that is in memory, too.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InOutbox {
    /// Send it: it has not been sent from memory, and will not be.
    Send,
    /// Leave it alone: it is being sent from memory.
    Leave,
    /// Mark it: it was delivered from memory at this time.
    Mark { at_us: u64 },
}

impl MemoryQueue {
    /// Adds a message. One of the same key is not added again. Returns a message that was dropped
    /// undelivered because the queue is full.
    pub(super) fn push(&mut self, message: OutboxMessage) -> Option<OutboxMessage> {
        if self.position(&message.event.key).is_some() {
            return None;
        }
        let mut dropped = None;
        if self.entries.len() >= MESSAGES_MAX {
            let is_delivered = |entry: &Entry| matches!(entry.progress, Progress::Delivered { .. });
            let oldest = self.entries.iter().position(is_delivered).unwrap_or(0);
            dropped = self
                .entries
                .remove(oldest)
                .filter(|entry| !is_delivered(entry));
        }
        self.entries.push_back(Entry {
            message,
            progress: Progress::Waiting { due_us: 0 },
        });
        dropped.map(|entry| entry.message)
    }

    /// Takes the oldest message that is due. Of each episode only the oldest undelivered message is
    /// sent, so that a resolution never overtakes its alert.
    pub(super) fn next(&mut self, now_us: u64) -> Next {
        let mut blocked: BTreeSet<&str> = BTreeSet::new();
        let mut due = None;
        let mut wait_us: Option<u64> = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let episode = entry.message.event.episode.as_str();
            match entry.progress {
                Progress::Delivered { .. } => continue,
                Progress::Waiting { due_us } if !blocked.contains(episode) => {
                    if due_us <= now_us {
                        due = Some(index);
                        break;
                    }
                    wait_us = Some(wait_us.map_or(due_us, |us| us.min(due_us)));
                }
                Progress::Waiting { .. } | Progress::InFlight => {}
            }
            blocked.insert(episode);
        }
        match (due, wait_us) {
            (Some(index), _) => {
                let entry = &mut self.entries[index];
                entry.progress = Progress::InFlight;
                Next::Send(Box::new(entry.message.clone()))
            }
            (None, Some(us)) => Next::WaitUntil { us },
            (None, None) => Next::Nothing,
        }
    }

    pub(super) fn delivered(&mut self, key: &str, at_us: u64) {
        if let Some(index) = self.position(key) {
            self.entries[index].progress = Progress::Delivered { at_us };
        }
    }

    pub(super) fn failed(&mut self, key: &str, due_us: u64) {
        if let Some(index) = self.position(key) {
            let entry = &mut self.entries[index];
            entry.message.attempts = entry.message.attempts.saturating_add(1);
            entry.progress = Progress::Waiting { due_us };
        }
    }

    /// Makes everything due: the sink works again.
    pub(super) fn hurry(&mut self) {
        for entry in &mut self.entries {
            if let Progress::Waiting { due_us } = &mut entry.progress {
                *due_us = 0;
            }
        }
    }

    /// Decides who sends a message that has appeared in the outbox. One that waits here is removed,
    /// because the outbox sends it from now on.
    pub(super) fn in_outbox(&mut self, key: &str) -> InOutbox {
        let Some(index) = self.position(key) else {
            return InOutbox::Send;
        };
        match self.entries[index].progress {
            Progress::InFlight => InOutbox::Leave,
            Progress::Delivered { at_us } => InOutbox::Mark { at_us },
            Progress::Waiting { .. } => {
                self.entries.remove(index);
                InOutbox::Send
            }
        }
    }

    /// Forgets a message that has been marked in the outbox.
    pub(super) fn forget(&mut self, key: &str) {
        if let Some(index) = self.position(key) {
            self.entries.remove(index);
        }
    }

    /// The number of messages that have not been delivered.
    pub(super) fn waiting(&self) -> usize {
        let is_waiting = |entry: &&Entry| !matches!(entry.progress, Progress::Delivered { .. });
        self.entries.iter().filter(is_waiting).count()
    }

    fn position(&self, key: &str) -> Option<usize> {
        let mut entries = self.entries.iter();
        entries.position(|entry| entry.message.event.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::{Event, EventKind, SinkClass};
    use crate::severity::Severity;

    fn message(key: &str, episode: &str) -> OutboxMessage {
        OutboxMessage {
            id: 0,
            sink: "hook".to_owned(),
            class: SinkClass::Event,
            event: Event {
                key: key.to_owned(),
                episode: episode.to_owned(),
                participant: "12345678".to_owned(),
                policy: None,
                at_us: 0,
                kind: EventKind::Reminder { since_us: 0 },
                severity: Severity::Critical,
                level: None,
                capacity: None,
                recovery_us: None,
                silenced_by: None,
            },
            attempts: 0,
        }
    }

    fn key(next: &Next) -> &str {
        match next {
            Next::Send(message) => &message.event.key,
            _ => "",
        }
    }

    #[test]
    fn episodes_are_in_order_and_a_failure_delays_only_its_own() {
        let mut queue = MemoryQueue::default();
        for (key, episode) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a1", "a")] {
            assert_eq!(queue.push(message(key, episode)), None);
        }
        assert_eq!(queue.waiting(), 3, "a1 is there once");
        assert_eq!(key(&queue.next(0)), "a1");
        assert_eq!(key(&queue.next(0)), "b1");
        assert_eq!(queue.next(0), Next::Nothing, "both episodes are in flight");
        queue.failed("a1", 50);
        queue.delivered("b1", 3);
        assert_eq!(queue.next(10), Next::WaitUntil { us: 50 });
        assert_eq!(key(&queue.next(50)), "a1");
        queue.failed("a1", 500);
        queue.hurry();
        assert_eq!(key(&queue.next(51)), "a1");
        queue.delivered("a1", 60);
        assert_eq!(key(&queue.next(60)), "a2");
    }

    #[test]
    fn the_outbox_marks_what_was_delivered_and_takes_over_what_waits() {
        let mut queue = MemoryQueue::default();
        for key in ["a", "b", "c"] {
            queue.push(message(key, key));
        }
        assert_eq!(key(&queue.next(0)), "a");
        assert_eq!(key(&queue.next(0)), "b");
        queue.delivered("a", 7);
        assert_eq!(queue.in_outbox("a"), InOutbox::Mark { at_us: 7 });
        assert_eq!(queue.in_outbox("b"), InOutbox::Leave);
        assert_eq!(queue.in_outbox("c"), InOutbox::Send);
        assert_eq!(queue.in_outbox("d"), InOutbox::Send);
        queue.forget("a");
        queue.delivered("b", 8);
        assert_eq!(queue.waiting(), 0);
        assert_eq!(queue.next(u64::MAX), Next::Nothing);
    }

    #[test]
    fn a_full_queue_forgets_delivered_messages_first() {
        let mut queue = MemoryQueue::default();
        for n in 0..MESSAGES_MAX {
            assert_eq!(queue.push(message(&n.to_string(), &n.to_string())), None);
        }
        assert_eq!(key(&queue.next(0)), "0");
        queue.delivered("0", 1);
        assert_eq!(queue.push(message("next", "next")), None);
        let dropped = queue.push(message("last", "last")).unwrap();
        assert_eq!(dropped.event.key, "1");
    }
}
