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
}
