//! The operations on a bucket. Commands are data, so that the same command runs in memory, in a
//! Redis script and in a test's model.

/// One operation on one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Reads the bucket without changing it.
    Peek,
    /// Takes `n` tokens, or none: passes if the level is at least `n`.
    Take {
        /// How many tokens.
        n: u64,
    },
    /// Takes `n` tokens, or none: passes if the level is at least `needed`. If that is more than `n`, the
    /// difference stays in the bucket as a reserve; if it is less, the bucket goes into debt for the
    /// rest, down to the limit's largest debt.
    TakeIf {
        /// How many tokens.
        n: u64,
        /// The level that the bucket must have.
        needed: u64,
    },
    /// Takes as many whole tokens as are available, at most `n`: passes if there is at least one, or
    /// `n` is zero.
    TakeUpTo {
        /// The most tokens to take.
        n: u64,
    },
    /// Debits `n` tokens for work that has already happened. Always passes; goes into debt if the
    /// bucket has fewer, down to the limit's largest debt.
    Charge {
        /// How many tokens.
        n: u64,
    },
    /// Gives `n` tokens back. Always passes; stops at the capacity.
    Credit {
        /// How many tokens.
        n: u64,
    },
    /// Holds `n` tokens until the outcome of a request is known: passes if at least `needed` tokens are
    /// available. Held tokens stay in the bucket and are not available to anybody else. See
    /// [`Limit::decide_held`](crate::Limit::decide_held).
    Hold {
        /// How many tokens.
        n: u64,
        /// How many tokens must be available.
        needed: u64,
    },
    /// Ends a hold of `held` tokens and debits `price` tokens. Always passes; goes into debt like a
    /// [`Charge`](Command::Charge).
    Settle {
        /// How many tokens were held.
        held: u64,
        /// How many tokens the request costs.
        price: u64,
    },
    /// Sets the level to a value known from elsewhere, clamped between the largest debt and the
    /// capacity.
    SetLevel {
        /// The level in tokens; negative is debt.
        level: i64,
    },
}

impl Command {
    /// Returns whether this command can change the bucket.
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::Peek)
    }

    /// The same command for a bucket without holds: tokens are taken instead of held, and a settlement
    /// charges or gives back the difference.
    #[inline]
    pub const fn without_holds(self) -> Self {
        match self {
            Self::Hold { n, needed } => Self::TakeIf { n, needed },
            Self::Settle { held, price } if price >= held => Self::Charge { n: price - held },
            Self::Settle { held, price } => Self::Credit { n: held - price },
            other => other,
        }
    }
}
