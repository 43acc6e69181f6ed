//! Replacing the limit of a bucket that is in use.

use crate::{Limit, Start, State, Strategy};

impl Limit {
    /// Converts the state of a bucket under this limit to its state under `new`, at `now_us`.
    ///
    /// The bucket keeps its deficit in tokens: one that was 30 tokens below full stays 30 below full
    /// under the new capacity. Two bounds apply. A bucket without debt gets none, so it is empty if
    /// the new capacity is smaller than its deficit; and a debt does not grow. A fraction of a token
    /// that the new rate cannot express is rounded against the bucket, so a change never adds tokens.
    ///
    /// ```
    /// use balde_core::{Command, Limit};
    ///
    /// let old: Limit = "10/s burst 100".parse()?;
    /// let new: Limit = "20/s burst 50".parse()?;
    /// let taken = old.apply(None, Command::Take { n: 30 }, 0);
    /// let state = old.change_to(&new, taken.state(), 0);
    /// assert_eq!(new.apply(state, Command::Peek, 0).level(), 20);
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn change_to(&self, new: &Limit, state: Option<State>, now_us: u64) -> Option<State> {
        let state = state?;
        let snapshot = self.snapshot(Some(state), now_us);
        if self == new {
            return Some(state);
        }
        let owed = self.owed_under(new, snapshot.owed);
        // A full bucket of a limit that starts full may have been removed at any time, so the result
        // must not depend on that.
        if owed == 0 && (self.start() == Start::Full || new.start() == Start::Full) {
            return None;
        }
        let at_us = match (self.strategy(), new.strategy()) {
            // An open window keeps its end, but never lasts longer than a new one would.
            (Strategy::FixedWindow, Strategy::FixedWindow) => {
                snapshot.at_us.min(now_us.saturating_add(new.period_us()))
            }
            (_, Strategy::FixedWindow) => now_us.saturating_add(new.period_us()),
            (Strategy::FixedWindow, _) => new.tick(now_us),
            // Not before the state, nor before now: no time is refilled twice, except that a stepwise
            // limit refills a whole step at the end of the current period.
            _ => new.tick(snapshot.at_us.max(now_us)),
        };
        Some(State::new(owed, at_us))
    }

    /// Converts the state of a bucket under this limit to its state under a limit that differs in its
    /// capacity only. The bucket keeps its level, where [`change_to`](Limit::change_to) keeps its deficit.
    ///
    /// ```
    /// use balde_core::{Command, Limit};
    ///
    /// let old: Limit = "10/s burst 100".parse()?;
    /// let new: Limit = "10/s burst 150".parse()?;
    /// let taken = old.apply(None, Command::Take { n: 30 }, 0);
    /// let state = old.resize_to(&new, taken.state());
    /// assert_eq!(new.apply(state, Command::Peek, 0).level(), 70);
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn resize_to(&self, new: &Limit, state: Option<State>) -> Option<State> {
        let state = state?;
        let owed = state.owed() + new.capacity_units();
        let owed = owed.saturating_sub(self.capacity_units());
        Some(State::new(owed, state.at_us()))
    }

    /// Converts a deficit from this limit's units to the units of `new`, rounded up. As in
    /// [`change_to`](Limit::change_to), the result is a debt only if `owed` is one, and that debt does
    /// not grow.
    pub fn owed_under(&self, new: &Limit, owed: u64) -> u64 {
        let kept = convert(owed, self, new);
        let debt = convert(owed.saturating_sub(self.capacity_units()), self, new);
        kept.min(new.capacity_units() + debt.min(new.debt_max() * new.token_units()))
    }
}

/// The same number of tokens in the other limit's units, rounded up.
fn convert(units: u64, old: &Limit, new: &Limit) -> u64 {
    let scaled = u128::from(units) * u128::from(new.token_units());
    let exact = scaled.div_ceil(u128::from(old.token_units()));
    u64::try_from(exact).map_or(new.owed_max(), |units| units.min(new.owed_max()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn it_does_not_matter_whether_a_full_bucket_was_removed_before_the_change() {
        let limits: [Limit; 2] = ["10/s burst 5", "3/s burst 5 empty"].map(|t| t.parse().unwrap());
        let [full, empty] = limits;
        let taken = full.apply(None, Command::Take { n: 5 }, 0).state();
        // A second later the bucket is full again, and equals one that was never used.
        assert_eq!(full.change_to(&empty, taken, 1_000_000), None);
        assert_eq!(full.change_to(&empty, None, 1_000_000), None);
        // One that started empty and has filled keeps its tokens under the same kind of limit.
        let touched = empty.apply(None, Command::Take { n: 1 }, 0).state();
        let other = empty.with_capacity(4).unwrap();
        let kept = empty.change_to(&other, touched, 10_000_000);
        assert_eq!(other.apply(kept, Command::Peek, 10_000_000).level(), 4);
    }
}
