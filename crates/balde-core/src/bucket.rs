//! How a command changes a bucket.

use crate::{Command, Decision, Limit, Snapshot, Start, State, Strategy};

impl Limit {
    /// Refills a bucket up to `now_us`. A bucket without state was never used, or was removed because
    /// it was full.
    pub fn snapshot(&self, state: Option<State>, now_us: u64) -> Snapshot {
        let Some(state) = state else {
            return self.fresh(now_us);
        };
        let (owed, at_us) = (state.owed(), state.at_us());
        if self.strategy() == Strategy::FixedWindow {
            return Snapshot::of_window(self, owed, at_us, now_us);
        }
        // A clock behind the state neither refills nor takes: the bucket stays as it was.
        let then = self.tick(at_us);
        let at_us = self.tick(now_us).max(then);
        let refilled = (at_us - then).saturating_mul(self.refill_units());
        Snapshot {
            owed: owed.min(self.owed_max()).saturating_sub(refilled),
            at_us,
            now_us,
        }
    }

    /// The snapshot of a bucket without state.
    #[inline]
    pub fn fresh(&self, now_us: u64) -> Snapshot {
        match (self.strategy(), self.start()) {
            (Strategy::FixedWindow, _) => Snapshot::of_window(self, 0, 0, now_us),
            (_, Start::Full) => Snapshot::of_bucket(self, 0, now_us),
            (_, Start::Empty) => Snapshot::of_bucket(self, self.capacity_units(), now_us),
        }
    }

    /// Runs `command` on a snapshot of a bucket without holds. The decision contains the state to
    /// store. For a bucket with holds, see [`decide_held`](Limit::decide_held).
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "unused fields of the decision are optimised away"
    )]
    pub fn decide(&self, snapshot: Snapshot, command: Command) -> Decision {
        let command = command.without_holds();
        let before = snapshot.owed;
        let full = self.capacity_units();
        let token = self.token_units();
        // More tokens than capacity and debt together have the same effect as exactly that many, so
        // the product stays within EXACT_MAX.
        let units = |n: u64| n.min(self.capacity() + self.debt_max()) * token;

        let (is_allowed, after) = match command {
            Command::Peek => (true, before),
            Command::Take { n } => {
                let after = before + units(n);
                if n <= self.capacity() && after <= full {
                    (true, after)
                } else {
                    (false, before)
                }
            }
            Command::TakeIf { n, needed } => {
                if needed <= self.capacity() && before + units(needed) <= full {
                    (true, (before + units(n)).min(self.owed_max()))
                } else {
                    (false, before)
                }
            }
            Command::TakeUpTo { n } => {
                let whole = full.saturating_sub(before) / token;
                let granted = whole.min(n);
                (granted > 0 || n == 0, before + granted * token)
            }
            Command::Charge { n } => (true, (before + units(n)).min(self.owed_max())),
            Command::Credit { n } => (true, before.saturating_sub(units(n))),
            Command::SetLevel { level } => (true, self.owed_at_level(level)),
            Command::Hold { .. } | Command::Settle { .. } => {
                unreachable!("a bucket without holds has no such commands")
            }
        };

        let at_us = match self.strategy() {
            // A window opens with its first token, and is removed when all are credited.
            Strategy::FixedWindow if after == 0 => 0,
            Strategy::FixedWindow if snapshot.at_us == 0 => {
                snapshot.now_us.saturating_add(self.period_us())
            }
            _ => snapshot.at_us,
        };
        Decision::new(self, command, is_allowed, snapshot, after, at_us)
    }

    /// Runs `command` on a bucket with this state: [`snapshot`](Limit::snapshot) and
    /// [`decide`](Limit::decide) in one step.
    pub fn apply(&self, state: Option<State>, command: Command, now_us: u64) -> Decision {
        self.decide(self.snapshot(state, now_us), command)
    }

    fn owed_at_level(&self, level: i64) -> u64 {
        let missing = if level >= 0 {
            self.capacity().saturating_sub(level.unsigned_abs())
        } else {
            self.capacity() + level.unsigned_abs().min(self.debt_max())
        };
        missing * self.token_units()
    }
}
