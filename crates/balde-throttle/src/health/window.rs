//! How many of a partition's latest requests failed.

/// The parts of a window. Outcomes leave the window one part at a time.
const SLOTS: usize = 8;

/// Counts outcomes over a sliding interval of time. Pure: time is an argument, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    slots: [Counts; SLOTS],
    /// The number of the newest slot, counted from time zero.
    newest: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) outcomes: u64,
    pub(super) errors: u64,
}

impl Window {
    /// Adds an outcome to a window of `window_us`.
    pub(super) fn record(&mut self, is_error: bool, window_us: u64, now_us: u64) {
        self.advance(window_us, now_us);
        let slot = &mut self.slots[index_of(self.newest)];
        slot.outcomes += 1;
        slot.errors += u64::from(is_error);
    }

    /// The outcomes in the `window_us` before now.
    pub(super) fn counts(mut self, window_us: u64, now_us: u64) -> Counts {
        self.advance(window_us, now_us);
        let mut sum = Counts::default();
        for slot in &self.slots {
            sum.outcomes += slot.outcomes;
            sum.errors += slot.errors;
        }
        sum
    }

    /// Empties the slots that are older than the window. A clock that steps back changes nothing.
    fn advance(&mut self, window_us: u64, now_us: u64) {
        let slot_us = (window_us / SLOTS as u64).max(1);
        let newest = now_us / slot_us;
        let passed = newest.saturating_sub(self.newest);
        for behind in 1..=passed.min(SLOTS as u64) {
            self.slots[index_of(self.newest + behind)] = Counts::default();
        }
        self.newest = self.newest.max(newest);
    }
}

fn index_of(slot: u64) -> usize {
    usize::try_from(slot % SLOTS as u64).expect("less than the number of slots")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_for_the_length_of_the_window_and_at_most_one_slot_less() {
        let mut window = Window::default();
        let at = |window: &Window, now_us| {
            let counts = window.counts(800, now_us);
            (counts.outcomes, counts.errors)
        };
        window.record(true, 800, 1_000);
        window.record(false, 800, 1_350);
        assert_eq!(at(&window, 1_350), (2, 1));
        assert_eq!(at(&window, 1_799), (2, 1));
        assert_eq!(at(&window, 1_800), (1, 0));
        assert_eq!(at(&window, 2_099), (1, 0));
        assert_eq!(at(&window, 2_100), (0, 0));
        assert_eq!(at(&window, u64::MAX), (0, 0));
        // A clock behind the newest outcome finds what was counted.
        assert_eq!(at(&window, 0), (2, 1));
    }
}
