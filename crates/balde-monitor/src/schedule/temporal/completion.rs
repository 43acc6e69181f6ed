//! When a run is over: once nobody has a turn before the calendar brings the next run.

use std::collections::BTreeMap;

/// How long before a turn a run has to be over. Closer than that the next run might be reckoned
/// from after the turn, and the turn would be nobody's.
const MARGIN_US: u64 = 2_000_000;

/// Who has nothing to do but wait for the calendar, and until when.
#[derive(Clone, Debug, Default)]
pub(super) struct RunCompletion {
    participants: usize,
    resting: BTreeMap<String, u64>,
    is_over: bool,
}

impl RunCompletion {
    /// Everybody is at work.
    pub(super) fn new(participants: usize) -> Self {
        Self {
            participants,
            ..Self::default()
        }
    }

    /// This one is done until `due_us`. The last of all ends the run, unless the next turn is so
    /// near that this run had better do it.
    pub(super) fn rest(&mut self, participant: &str, now_us: u64, due_us: u64) {
        self.resting.insert(participant.to_owned(), due_us);
        let first_us = self.resting.values().copied().min().unwrap_or(u64::MAX);
        if self.resting.len() >= self.participants && first_us > now_us.saturating_add(MARGIN_US) {
            self.is_over = true;
        }
    }

    /// This one's time has come before the run was over.
    pub(super) fn work(&mut self, participant: &str) {
        self.resting.remove(participant);
    }

    /// Whether the run is over.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_US: u64 = 60_000_000;

    #[test]
    fn the_last_to_rest_ends_the_run() {
        let mut completion = RunCompletion::new(2);
        completion.rest("a", 0, MINUTE_US);
        assert!(!completion.is_over(), "b is at work");
        completion.rest("b", 10_000_000, MINUTE_US);
        assert!(completion.is_over());
    }

    #[test]
    fn a_run_that_is_late_does_the_turns_of_the_next() {
        let mut completion = RunCompletion::new(2);
        completion.rest("a", 0, MINUTE_US);
        // b is done after a's time has come.
        completion.work("a");
        completion.rest("b", MINUTE_US + 1, 2 * MINUTE_US);
        assert!(!completion.is_over(), "a is at work again");
        completion.rest("a", MINUTE_US + 2, 2 * MINUTE_US);
        assert!(completion.is_over());
    }

    #[test]
    fn nobody_leaves_a_moment_before_a_turn() {
        let mut completion = RunCompletion::new(2);
        completion.rest("a", 0, MINUTE_US);
        completion.rest("b", MINUTE_US - 1_000_000, 2 * MINUTE_US);
        assert!(!completion.is_over(), "a's turn is a second away");
        completion.work("a");
        completion.rest("a", MINUTE_US + 3, 2 * MINUTE_US);
        assert!(completion.is_over());
    }
}
