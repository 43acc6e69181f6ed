//! A bucket: what a store keeps of it, what it is at one moment, and what a command makes of it.

use crate::{Command, Decision, Limit, Start, Strategy};

/// What a store keeps for one bucket: how far it was below full, and when that was true.
///
/// For a token bucket `owed` counts units below full at `at_us`. For a fixed window it counts the
/// tokens used in the window that ends at `at_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    owed: u64,
    at_us: u64,
}

impl State {
    /// A state read back from a store. Anything is accepted: what is beyond the limit's largest
    /// debt is clamped when it is used.
    pub const fn new(owed: u64, at_us: u64) -> Self {
        Self { owed, at_us }
    }

    /// Units below full; for a fixed window, tokens used.
    pub const fn owed(self) -> u64 {
        self.owed
    }

    /// When `owed` was true; for a fixed window, when it ends.
    pub const fn at_us(self) -> u64 {
        self.at_us
    }
}

/// A bucket as of one moment: the refill up to `now_us` is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub(crate) owed: u64,
    /// The moment `owed` belongs to: now, unless the clock stepped behind the state. For an open
    /// window its end; for a closed one nothing.
    pub(crate) at_us: u64,
    pub(crate) now_us: u64,
}

impl Snapshot {
    /// A token bucket that is `owed` units below full at this very moment. For stores that keep
    /// the moment of being full instead of a [`State`].
    #[inline]
    pub const fn of_bucket(limit: &Limit, owed: u64, now_us: u64) -> Self {
        let owed_max = limit.owed_max();
        Self {
            owed: if owed < owed_max { owed } else { owed_max },
            at_us: limit.tick(now_us),
            now_us,
        }
    }

    /// A token bucket that is `owed` units below full at a moment that the clock has not reached:
    /// one whose state is ahead of whoever asks.
    pub const fn of_bucket_at(limit: &Limit, owed: u64, at_us: u64, now_us: u64) -> Self {
        Self {
            at_us,
            ..Self::of_bucket(limit, owed, now_us)
        }
    }

    /// A fixed window with `used` tokens gone, which ends at `end_us`.
    #[inline]
    pub const fn of_window(limit: &Limit, used: u64, end_us: u64, now_us: u64) -> Self {
        let open = used > 0 && end_us > now_us;
        let owed_max = limit.owed_max();
        Self {
            owed: if !open {
                0
            } else if used < owed_max {
                used
            } else {
                owed_max
            },
            at_us: if open { end_us } else { 0 },
            now_us,
        }
    }

    /// Units below full; for a fixed window, tokens used.
    pub const fn owed(&self) -> u64 {
        self.owed
    }
}

impl Limit {
    /// The bucket at `now_us`, given what the store kept of it (nothing, if it was never touched
    /// or has been forgotten).
    pub fn snapshot(&self, state: Option<State>, now_us: u64) -> Snapshot {
        let Some(State { owed, at_us }) = state else {
            return self.fresh(now_us);
        };
        if self.strategy() == Strategy::FixedWindow {
            return Snapshot::of_window(self, owed, at_us, now_us);
        }
        // A clock behind the state neither refills nor takes: the bucket stays as it was then.
        let then = self.tick(at_us);
        let at_us = self.tick(now_us).max(then);
        let refilled = (at_us - then).saturating_mul(self.refill_units());
        Snapshot {
            owed: owed.min(self.owed_max()).saturating_sub(refilled),
            at_us,
            now_us,
        }
    }

    /// A bucket that was never touched.
    #[inline]
    pub fn fresh(&self, now_us: u64) -> Snapshot {
        match (self.strategy(), self.start()) {
            (Strategy::FixedWindow, _) => Snapshot::of_window(self, 0, 0, now_us),
            (_, Start::Full) => Snapshot::of_bucket(self, 0, now_us),
            (_, Start::Empty) => Snapshot::of_bucket(self, self.capacity_units(), now_us),
        }
    }

    /// Runs `command` on the bucket as it stands. The decision holds the state to keep.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "most of a decision that is made where it is used is never made"
    )]
    pub fn decide(&self, snapshot: Snapshot, command: Command) -> Decision {
        let before = snapshot.owed;
        let full = self.capacity_units();
        let token = self.token_units();
        // More tokens than capacity and debt together mean no more than exactly that many, so the
        // product below stays within EXACT_MAX.
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
            Command::TakeUpTo { n } => {
                let whole = full.saturating_sub(before) / token;
                let granted = whole.min(n);
                (granted > 0 || n == 0, before + granted * token)
            }
            Command::Charge { n } => (true, (before + units(n)).min(self.owed_max())),
            Command::Credit { n } => (true, before.saturating_sub(units(n))),
            Command::SetLevel { level } => (true, self.owed_at_level(level)),
        };

        let at_us = match self.strategy() {
            // The window opens with its first token and is forgotten with its last.
            Strategy::FixedWindow if after == 0 => 0,
            Strategy::FixedWindow if snapshot.at_us == 0 => {
                snapshot.now_us.saturating_add(self.period_us())
            }
            _ => snapshot.at_us,
        };
        Decision::new(self, command, is_allowed, snapshot, after, at_us)
    }

    /// [`snapshot`](Limit::snapshot) and [`decide`](Limit::decide) in one step.
    pub fn apply(&self, state: Option<State>, command: Command, now_us: u64) -> Decision {
        self.decide(self.snapshot(state, now_us), command)
    }

    /// The clock as this limit sees it: stepwise refill happens at multiples of the period only.
    #[inline]
    pub const fn tick(&self, now_us: u64) -> u64 {
        match self.strategy() {
            Strategy::Stepwise => now_us - now_us % self.period_us(),
            _ => now_us,
        }
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
