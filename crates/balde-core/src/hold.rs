//! Tokens that are held until the outcome of a request is known.
//!
//! A bucket with holds is a [`State`] and a number of held tokens beside it. The level does not change
//! while tokens are held, so the bucket refills as if the request had not been made; what is available
//! is the level less what is held. A settlement ends the hold and debits the price at that moment.
//!
//! Why not take at admission and give back the difference? Somebody else, such as Bacen, counts the
//! request at an unknown moment between its admission and its answer. A bucket that was charged at
//! admission has refilled since then and may show tokens that the other one does not have yet.

use crate::{Command, Decision, EXACT_MAX, Limit, Snapshot, State};

/// What happens to the tokens of a holder that was not heard of in time, such as a killed process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnExpiry {
    /// They are charged at the time of their expiry: the requests may have been answered.
    #[default]
    Charge,
    /// They are available again.
    GiveBack,
}

/// What one holder, such as a process, holds of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// How many tokens.
    pub tokens: u64,
    /// When the hold expires, if its holder does not renew it before.
    pub expires_us: u64,
    /// What happens then.
    pub on_expiry: OnExpiry,
}

impl Held {
    /// Ends a hold of `held` tokens at a price. Returns what is left of the price to charge: less, if a
    /// part of the hold has expired and was charged then.
    ///
    /// ```
    /// use balde_core::{Held, OnExpiry};
    ///
    /// let mut held = Held { tokens: 10, expires_us: 0, on_expiry: OnExpiry::Charge };
    /// assert_eq!((held.settle(7, 20), held.tokens), (20, 3));
    /// // Four of these seven have expired.
    /// assert_eq!((held.settle(7, 20), held.tokens), (16, 0));
    /// ```
    pub fn settle(&mut self, held: u64, price: u64) -> u64 {
        let expired = held.saturating_sub(self.tokens);
        self.tokens = self.tokens.saturating_sub(held);
        match self.on_expiry {
            OnExpiry::Charge => price.saturating_sub(expired),
            OnExpiry::GiveBack => price,
        }
    }
}

impl Limit {
    /// Runs `command` on a snapshot of a bucket of which `held` tokens are held.
    /// [`Decision::held`] returns how many are held afterwards.
    ///
    /// ```
    /// use balde_core::{Command, Limit};
    ///
    /// let limit: Limit = "10/s burst 20".parse()?;
    /// let hold = limit.decide_held(limit.fresh(0), 0, Command::Hold { n: 15, needed: 15 });
    /// assert_eq!((hold.held(), hold.level()), (15, 5));
    ///
    /// // Five tokens are available, and no others until the hold is settled.
    /// let snapshot = limit.snapshot(hold.state(), 1_000_000);
    /// let take = limit.decide_held(snapshot, hold.held(), Command::Take { n: 6 });
    /// assert!(!take.is_allowed());
    /// let settled = limit.decide_held(snapshot, 15, Command::Settle { held: 15, price: 1 });
    /// assert_eq!((settled.held(), settled.level()), (0, 19));
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn decide_held(&self, snapshot: Snapshot, held: u64, command: Command) -> Decision {
        let plus_held = |n: u64| n.saturating_add(held);
        // The same command on the level, which has to be higher by what is held.
        let on_level = match command {
            Command::Take { n } => Command::TakeIf {
                n,
                needed: plus_held(n),
            },
            Command::TakeIf { n, needed } => Command::TakeIf {
                n,
                needed: plus_held(needed),
            },
            Command::Hold { needed, .. } => Command::TakeIf {
                n: 0,
                needed: plus_held(needed),
            },
            Command::Settle { price, .. } => Command::Charge { n: price },
            Command::TakeUpTo { n } if n > 0 => {
                let level = self.decide(snapshot, Command::Peek).remaining();
                let granted = level.saturating_sub(held).min(n);
                Command::TakeIf {
                    n: granted,
                    needed: plus_held(granted.max(1)),
                }
            }
            Command::Peek
            | Command::TakeUpTo { .. }
            | Command::Charge { .. }
            | Command::Credit { .. }
            | Command::SetLevel { .. } => command,
        };
        let decision = self.decide(snapshot, on_level);
        let held = match command {
            Command::Hold { n, .. } if decision.is_allowed() => plus_held(n).min(EXACT_MAX),
            Command::Settle { held: ended, .. } => held.saturating_sub(ended),
            _ => held,
        };
        decision.with_held(command, held)
    }

    /// The state of a bucket after a holder's hold has expired: charged at the time of expiry, or
    /// unchanged. Several holds expire in the order of their times.
    pub fn expire(&self, state: Option<State>, held: &Held) -> Option<State> {
        match held.on_expiry {
            OnExpiry::Charge => {
                let charge = Command::Charge { n: held.tokens };
                self.apply(state, charge, held.expires_us).state()
            }
            OnExpiry::GiveBack => state,
        }
    }
}
