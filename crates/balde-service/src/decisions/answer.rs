//! What a command is answered with.

use std::time::Duration;

use balde::{Decision, Limit, Reason, Wait};

use super::blocked::Left;
use super::listing::ListedBucket;

/// Why tokens were given or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The bucket had enough tokens.
    Granted,
    /// The bucket has too few tokens now.
    OverLimit,
    /// The bucket can never hold that many tokens.
    OverCapacity,
    /// An operator has blocked the key.
    Blocked,
    /// Redis was unavailable, and `on_failure` decided.
    StoreUnavailable,
    /// The key cannot be used.
    BadKey,
}

impl Why {
    /// The word that all protocols use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::OverLimit => "over_limit",
            Self::OverCapacity => "over_capacity",
            Self::Blocked => "blocked",
            Self::StoreUnavailable => "store_unavailable",
            Self::BadKey => "bad_key",
        }
    }
}

/// A decision on one bucket, with the numbers that callers show or wait by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the tokens were given.
    pub is_allowed: bool,
    /// The reason for giving or refusing them.
    pub why: Why,
    /// Whole tokens in the bucket afterwards; negative is debt.
    pub level: i64,
    /// Whole tokens that can still be taken.
    pub remaining: u64,
    /// The limit that decided.
    pub limit: Limit,
    /// How long until the same request would be allowed; `None` if it was allowed or never will be.
    pub retry_after: Option<Duration>,
    /// How long until the bucket is full.
    pub full_after: Duration,
    /// Whether `on_failure` decided, because Redis was unavailable.
    pub is_fallback: bool,
}

impl Verdict {
    /// The verdict of the SDK's decision.
    pub fn new(decision: &Decision) -> Self {
        let why = match decision.reason() {
            Reason::Granted => Why::Granted,
            Reason::OverLimit => Why::OverLimit,
            Reason::OverCapacity => Why::OverCapacity,
            Reason::BadKey(_) => Why::BadKey,
            _ => Why::StoreUnavailable,
        };
        Self {
            is_allowed: decision.is_allowed(),
            why,
            level: decision.level(),
            remaining: decision.remaining(),
            limit: *decision.limit(),
            retry_after: decision.retry_after(),
            full_after: decision.full_after(),
            is_fallback: decision.is_fallback(),
        }
    }

    /// The refusal of a key that an operator has blocked. Its bucket is not read.
    pub(super) fn blocked(limit: Limit, left: Left) -> Self {
        Self {
            is_allowed: false,
            why: Why::Blocked,
            level: 0,
            remaining: 0,
            limit,
            retry_after: match left {
                Left::Time(time) => Some(time),
                Left::UntilUnblocked => None,
            },
            full_after: Duration::ZERO,
            is_fallback: false,
        }
    }

    /// A peek's verdict: allowed if one token could be taken now.
    pub(super) fn of_peek(decision: &Decision) -> Self {
        let wait = decision.wait_for(1);
        let verdict = Self::new(decision);
        if !decision.is_allowed() {
            return verdict;
        }
        Self {
            is_allowed: wait == Wait::None,
            why: match wait {
                Wait::None => verdict.why,
                Wait::Us(_) => Why::OverLimit,
                Wait::Never => Why::OverCapacity,
            },
            retry_after: match wait {
                Wait::Us(us) => Some(Duration::from_micros(us)),
                Wait::None | Wait::Never => None,
            },
            ..verdict
        }
    }
}

/// What a limit of the file looks like now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// The name of its section in the file.
    pub name: String,
    /// Its numbers, as in the file.
    pub limit: String,
    /// Whether its buckets are in memory; otherwise they are in Redis.
    pub is_in_memory: bool,
    /// Requests that wait for tokens.
    pub waiting: usize,
    /// Buckets in memory.
    pub keys: u64,
    /// Keys of which this process has tokens on lease.
    pub leases: u64,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A decision on one bucket.
    One(Verdict),
    /// A decision on several buckets: all were taken from, or none.
    All {
        /// Whether the tokens were given.
        is_allowed: bool,
        /// The index of the bucket that refused, if one did.
        refused: Option<usize>,
        /// In the order of the command.
        verdicts: Vec<Verdict>,
    },
    /// Tokens were taken for a hold.
    Held {
        /// The id, with which the hold is settled.
        id: String,
        /// In the order of the command.
        verdicts: Vec<Verdict>,
    },
    /// A hold was settled.
    Settled {
        /// The buckets afterwards, in the order of the hold.
        verdicts: Vec<Verdict>,
    },
    /// Nothing to say but that it was done.
    Done,
    /// Buckets of a limit.
    Buckets(Vec<ListedBucket>),
    /// All limits.
    State(Vec<LimitState>),
}

impl Answer {
    /// Returns whether tokens were refused.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::One(verdict) => !verdict.is_allowed,
            Self::All { is_allowed, .. } => !is_allowed,
            Self::Held { .. }
            | Self::Settled { .. }
            | Self::Done
            | Self::Buckets(_)
            | Self::State(_) => false,
        }
    }
}
