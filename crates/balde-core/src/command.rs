//! What can be asked of a bucket. Commands are data, so that one and the same command can run in
//! memory, in a script beside the data, and in a test's model.

/// One operation on one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Look, change nothing.
    Peek,
    /// Take `n` tokens, or none: passes when the level is at least `n`.
    Take {
        /// How many tokens.
        n: u64,
    },
    /// Take as many whole tokens as there are, at most `n`: passes when there is at least one, or
    /// none was asked for.
    TakeUpTo {
        /// The most tokens to take.
        n: u64,
    },
    /// Debit what has already happened. Always passes, goes into debt if need be, and stops at the
    /// limit's largest debt.
    Charge {
        /// How many tokens.
        n: u64,
    },
    /// Give tokens back. Always passes, never above capacity.
    Credit {
        /// How many tokens.
        n: u64,
    },
    /// Set the level to what somebody knows it to be, clamped between the largest debt and
    /// capacity.
    SetLevel {
        /// The level in tokens; negative is debt.
        level: i64,
    },
}

impl Command {
    /// Whether this command can leave the bucket other than it found it.
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::Peek)
    }
}
