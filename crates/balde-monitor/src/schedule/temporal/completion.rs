//! When a workflow run is complete: once every participant is due only at the next cron time.

use std::collections::BTreeMap;

/// The shortest time between the end of a run and the next due poll. If a run ended later than that,
/// the server might compute the next cron time from after the poll, and the poll would be skipped.
const MARGIN_US: u64 = 2_000_000;

/// Tracks which participants wait for the next cron time, and until when.
#[derive(Clone, Debug, Default)]
pub(super) struct RunCompletion {
    participants: usize,
    waiting: BTreeMap<String, u64>,
    is_complete: bool,
}

impl RunCompletion {
    /// A run in which no participant is waiting yet.
    pub(super) fn new(participants: usize) -> Self {
        Self {
            participants,
            ..Self::default()
        }
    }

    /// Marks a participant as waiting until `due_us`. If all are waiting, the run is complete, unless
    /// the next poll is so close that this run has to do it.
    pub(super) fn wait(&mut self, participant: &str, now_us: u64, due_us: u64) {
        self.waiting.insert(participant.to_owned(), due_us);
        let first_us = self.waiting.values().copied().min().unwrap_or(u64::MAX);
        if self.waiting.len() >= self.participants && first_us > now_us.saturating_add(MARGIN_US) {
            self.is_complete = true;
        }
    }

    /// Marks a participant as active: it became due before the run was complete.
    pub(super) fn resume(&mut self, participant: &str) {
        self.waiting.remove(participant);
    }

    /// Returns true if the run is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_US: u64 = 60_000_000;

    #[test]
    fn the_last_participant_to_wait_completes_the_run() {
        let mut completion = RunCompletion::new(2);
        completion.wait("a", 0, MINUTE_US);
        assert!(!completion.is_complete(), "b is active");
        completion.wait("b", 10_000_000, MINUTE_US);
        assert!(completion.is_complete());
    }

    #[test]
    fn a_late_run_does_the_polls_of_the_next() {
        let mut completion = RunCompletion::new(2);
        completion.wait("a", 0, MINUTE_US);
        // b waits only after a has become due.
        completion.resume("a");
        completion.wait("b", MINUTE_US + 1, 2 * MINUTE_US);
        assert!(!completion.is_complete(), "a is active again");
        completion.wait("a", MINUTE_US + 2, 2 * MINUTE_US);
        assert!(completion.is_complete());
    }

    #[test]
    fn a_run_does_not_complete_a_moment_before_a_poll() {
        let mut completion = RunCompletion::new(2);
        completion.wait("a", 0, MINUTE_US);
        completion.wait("b", MINUTE_US - 1_000_000, 2 * MINUTE_US);
        assert!(!completion.is_complete(), "a is due in a second");
        completion.resume("a");
        completion.wait("a", MINUTE_US + 3, 2 * MINUTE_US);
        assert!(completion.is_complete());
    }
}
