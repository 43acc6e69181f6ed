//! What callers ask for, as values: every protocol's adapter makes these, and one place runs them.

use std::time::Duration;

use balde::Limit;

use crate::access::Right;

/// A limit: one of the file, or one that the request brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitRef<'c> {
    /// The limit with this name in the file.
    Named(&'c str),
    /// These numbers. A key has one bucket for all limits that requests bring along.
    Given(Limit),
}

/// The bucket of a key under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket<'c> {
    /// The limit.
    pub limit: LimitRef<'c>,
    /// The key.
    pub key: &'c [u8],
}

impl<'c> Bucket<'c> {
    /// The bucket of a key under a limit of the file.
    pub const fn named(limit: &'c str, key: &'c [u8]) -> Self {
        let limit = LimitRef::Named(limit);
        Self { limit, key }
    }
}

/// Tokens of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tokens<'c> {
    /// Where the tokens are taken from, charged or given back.
    pub bucket: Bucket<'c>,
    /// How many tokens; 0 takes nothing.
    pub tokens: u64,
}

/// What becomes of held tokens if nobody settles them in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IfExpired {
    /// They stay taken.
    #[default]
    Charge,
    /// They go back to the bucket.
    GiveBack,
}

/// In which order buckets are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Those with the fewest tokens first.
    Emptiest,
    /// Those with the most tokens first.
    Fullest,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command<'c> {
    /// Takes tokens, or refuses.
    Check(Tokens<'c>),
    /// Takes the tokens of all buckets, or of none.
    CheckAll(&'c [Tokens<'c>]),
    /// Takes the tokens of all buckets or of none, for work whose price is known afterwards.
    Hold {
        /// The tokens.
        tokens: &'c [Tokens<'c>],
        /// How long the hold stays open.
        ttl: Duration,
        /// What becomes of it then.
        if_expired: IfExpired,
    },
    /// Ends a hold at a price: the difference to what was taken is charged or given back.
    Settle {
        /// The id that the answer to `Hold` has.
        hold: &'c str,
        /// The price in tokens, in each of its buckets.
        price: u64,
    },
    /// Debits tokens for work that has happened, into debt if the bucket has fewer.
    Charge(Tokens<'c>),
    /// Gives tokens back, never above capacity.
    Credit(Tokens<'c>),
    /// Reads a bucket.
    Peek(Bucket<'c>),
    /// Waits in the key's queue until the tokens are there, and takes them.
    Wait {
        /// The tokens.
        tokens: Tokens<'c>,
        /// The longest wait.
        within: Duration,
    },
    /// Forgets a key: its bucket is full afterwards, and it has no tier.
    Reset(Bucket<'c>),
    /// Sets a bucket to a level; negative is debt.
    SetLevel {
        /// The bucket whose level is set; its limit is one of the file.
        bucket: Bucket<'c>,
        /// The level, in tokens.
        level: i64,
    },
    /// Moves a key to a tier of its limit, or to none.
    MoveToTier {
        /// The key and its limit, which is one of the file.
        bucket: Bucket<'c>,
        /// The name of the tier; `None` takes the key out of its tier.
        tier: Option<&'c str>,
    },
    /// Refuses every check of a key, for a time or until it is unblocked.
    Block {
        /// The key and its limit, which is one of the file.
        bucket: Bucket<'c>,
        /// How long the key is blocked; `None` until it is unblocked.
        time: Option<Duration>,
    },
    /// Ends a block.
    Unblock(Bucket<'c>),
    /// Lists buckets of a limit whose buckets are in Redis.
    Buckets {
        /// The name of the limit.
        limit: &'c str,
        /// In which order.
        order: Order,
        /// The most buckets.
        most: usize,
    },
    /// Describes all limits.
    State,
}

impl Command<'_> {
    /// The right that a caller needs.
    pub const fn right(&self) -> Right {
        match self {
            Self::Check(_)
            | Self::CheckAll(_)
            | Self::Hold { .. }
            | Self::Peek(_)
            | Self::Wait { .. }
            | Self::State => Right::Check,
            Self::Settle { .. } | Self::Charge(_) | Self::Credit(_) => Right::Settle,
            Self::Reset(_)
            | Self::SetLevel { .. }
            | Self::MoveToTier { .. }
            | Self::Block { .. }
            | Self::Buckets { .. }
            | Self::Unblock(_) => Right::Admin,
        }
    }
}
