//! The answer that callers of a limiter get: the core's decision, and why.

use std::time::Duration;

use balde_core::{Command, Limit, Standing, Wait};

use crate::error::BadKey;

/// Why a decision is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The bucket gave.
    Granted,
    /// The bucket has too few tokens now; see [`Decision::retry_after`].
    OverLimit,
    /// More was asked for than the bucket can ever hold.
    OverCapacity,
    /// The key cannot be used. No quota was counted.
    BadKey(BadKey),
}

/// What became of a check. [`is_allowed`](Decision::is_allowed) is the answer; the rest is for
/// headers, logs and callers who want to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    inner: balde_core::Decision,
    bad_key: Option<BadKey>,
}

impl Decision {
    #[inline]
    pub(crate) const fn of(inner: balde_core::Decision) -> Self {
        Self {
            inner,
            bad_key: None,
        }
    }

    /// A refusal that touched no bucket: none remain, and waiting does not help.
    pub(crate) fn of_bad_key(limit: &Limit, bad: BadKey, now_us: u64) -> Self {
        let empty = Standing::of_bucket(limit, limit.capacity_units(), now_us);
        Self {
            inner: limit.decide(empty, Command::Take { n: u64::MAX }),
            bad_key: Some(bad),
        }
    }

    /// Whether the request may go on.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.inner.is_allowed()
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        match (self.bad_key, self.inner.wait()) {
            (Some(bad), _) => Reason::BadKey(bad),
            (None, Wait::None) => Reason::Granted,
            (None, Wait::Us(_)) => Reason::OverLimit,
            (None, Wait::Never) => Reason::OverCapacity,
        }
    }

    /// Whole tokens that a caller may still take, between zero and capacity.
    pub fn remaining(&self) -> u64 {
        self.inner.remaining()
    }

    /// Whole tokens in the bucket after the command; negative is debt.
    pub fn level(&self) -> i64 {
        self.inner.level()
    }

    /// Whole tokens in the bucket before the command; negative is debt.
    pub fn level_before(&self) -> i64 {
        self.inner.level_before()
    }

    /// Whole tokens that were taken, charged or given back.
    pub const fn moved(&self) -> u64 {
        self.inner.moved()
    }

    /// How long until the same request would pass: not at all, for a time, or never.
    pub fn wait(&self) -> Wait {
        self.inner.wait()
    }

    /// How long until the same request would pass, if nobody else takes from the bucket. Nothing
    /// when it has passed, and nothing when it never will.
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after()
    }

    /// How long until the bucket is full, or the window forgotten.
    pub fn full_after(&self) -> Duration {
        self.inner.full_after()
    }

    /// The limit that decided.
    pub const fn limit(&self) -> &Limit {
        self.inner.limit()
    }
}
