//! The decision that a limiter returns: the core's decision, and its reason.

use std::time::Duration;

#[cfg(feature = "redis")]
use balde_core::DecisionParts;
use balde_core::{Command, Limit, Snapshot, Strategy, Wait};

use crate::failure::StoreFailure;
use crate::key::BadKey;

/// Why a request was allowed or denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The bucket had enough tokens.
    Granted,
    /// The bucket has too few tokens now; see [`Decision::retry_after`].
    OverLimit,
    /// The request needs more tokens than the bucket can ever hold.
    OverCapacity,
    /// The key cannot be used. No quota was consumed.
    BadKey(BadKey),
    /// The shared store was unavailable and [`OnFailure`](crate::OnFailure) decided. No quota was
    /// consumed.
    StoreUnavailable(StoreFailure),
}

/// The result of a check, with the numbers for headers, logs and callers that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    inner: balde_core::Decision,
    by: By,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only a shared store can be unavailable")
)]
enum By {
    Bucket,
    /// The key cannot be used, because of its length.
    BadKey {
        bytes: u32,
    },
    /// [`OnFailure::Allow`](crate::OnFailure::Allow), without a bucket.
    Policy(StoreFailure),
    /// [`OnFailure::Deny`](crate::OnFailure::Deny), with the time until the store is tried again.
    Denial {
        failure: StoreFailure,
        retry_us: u32,
    },
    /// [`OnFailure::Local`](crate::OnFailure::Local): a bucket of this process.
    Local(StoreFailure),
    /// A cached refusal of the bucket, which holds for at least this many microseconds: 48 bits, which
    /// are nine years.
    Cached {
        high: u16,
        low: u32,
    },
}

// A longer decision would be copied by a call of `memcpy`.
const _: () = assert!(size_of::<Decision>() == 128);

#[cfg(feature = "redis")]
impl By {
    fn cached(retry_us: u64) -> Self {
        let [.., a, b, c, d, e, f] = retry_us.clamp(1, (1 << 48) - 1).to_be_bytes();
        Self::Cached {
            high: u16::from_be_bytes([a, b]),
            low: u32::from_be_bytes([c, d, e, f]),
        }
    }
}

fn cached_us(high: u16, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Decision {
    #[inline]
    pub(crate) const fn of(inner: balde_core::Decision) -> Self {
        Self {
            inner,
            by: By::Bucket,
        }
    }

    /// A denial that touched no bucket: none remain, and waiting does not help.
    pub(crate) fn of_bad_key(limit: &Limit, bad: BadKey, now_us: u64) -> Self {
        Self {
            inner: refusal(limit, now_us),
            by: By::BadKey {
                bytes: match bad {
                    BadKey::Empty => 0,
                    BadKey::TooLong { bytes } => u32::try_from(bytes).unwrap_or(u32::MAX),
                },
            },
        }
    }

    /// The decision of [`OnFailure::Allow`](crate::OnFailure::Allow): as if the bucket were full, so
    /// that a request for more than the capacity is denied here too.
    #[cfg(feature = "redis")]
    pub(crate) fn of_allowance(
        limit: &Limit,
        command: Command,
        failure: StoreFailure,
        now_us: u64,
    ) -> Self {
        let full = match limit.strategy() {
            Strategy::FixedWindow => Snapshot::of_window(limit, 0, 0, now_us),
            _ => Snapshot::of_bucket(limit, 0, now_us),
        };
        Self {
            inner: limit.decide(full, command),
            by: By::Policy(failure),
        }
    }

    /// The decision of [`OnFailure::Deny`](crate::OnFailure::Deny).
    #[cfg(feature = "redis")]
    pub(crate) fn of_denial(
        limit: &Limit,
        failure: StoreFailure,
        retry: Duration,
        now_us: u64,
    ) -> Self {
        Self {
            inner: refusal(limit, now_us),
            by: By::Denial {
                failure,
                retry_us: u32::try_from(retry.as_micros()).unwrap_or(u32::MAX).max(1),
            },
        }
    }

    /// The decision of [`OnFailure::Local`](crate::OnFailure::Local).
    #[cfg(feature = "redis")]
    pub(crate) const fn of_local(inner: balde_core::Decision, failure: StoreFailure) -> Self {
        Self {
            inner,
            by: By::Local(failure),
        }
    }

    /// A refusal of the bucket that was cached, and holds for `retry_us` at least.
    #[cfg(feature = "redis")]
    pub(crate) fn of_cached(inner: balde_core::Decision, retry_us: u64) -> Self {
        Self {
            inner,
            by: By::cached(retry_us),
        }
    }

    /// The same decision as a peek at the bucket before `first`: nothing moved.
    #[cfg(feature = "redis")]
    pub(crate) fn as_peek(&self, first: &balde_core::Decision) -> Self {
        let before = first.owed_before();
        let at_us = match first.limit().strategy() {
            Strategy::FixedWindow if before == 0 => 0,
            _ => first.at_us(),
        };
        let parts = DecisionParts {
            is_allowed: true,
            before,
            after: before,
            at_us,
            now_us: first.now_us(),
            held: first.held_before(),
        };
        let peek = balde_core::Decision::from_parts(first.limit(), Command::Peek, parts);
        Self {
            inner: peek.unwrap_or(self.inner),
            by: self.by,
        }
    }

    pub(crate) const fn core(&self) -> &balde_core::Decision {
        &self.inner
    }

    /// Returns whether the numbers are those of a bucket. They are not where the failure policy
    /// decided without one, or the key was bad.
    #[cfg(feature = "http")]
    pub(crate) const fn has_bucket(&self) -> bool {
        matches!(self.by, By::Bucket | By::Local(_) | By::Cached { .. })
    }

    /// Why the key cannot be used, if so.
    pub(crate) const fn bad_key(&self) -> Option<BadKey> {
        match self.by {
            By::BadKey { bytes: 0 } => Some(BadKey::Empty),
            By::BadKey { bytes } => Some(BadKey::TooLong {
                bytes: bytes as usize,
            }),
            _ => None,
        }
    }

    /// Returns whether the bucket itself refused, now.
    pub(crate) const fn is_refused_by_bucket(&self) -> bool {
        matches!(self.by, By::Bucket) && !self.inner.is_allowed()
    }

    /// Returns whether the request may proceed.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.inner.is_allowed()
    }

    /// Why the request was allowed or denied.
    pub fn reason(&self) -> Reason {
        if let Some(bad) = self.bad_key() {
            return Reason::BadKey(bad);
        }
        match (self.by, self.inner.wait()) {
            (By::Denial { failure, .. }, _) | (By::Policy(failure), Wait::None) => {
                Reason::StoreUnavailable(failure)
            }
            (_, Wait::None) => Reason::Granted,
            (_, Wait::Us(_)) => Reason::OverLimit,
            (_, Wait::Never) => Reason::OverCapacity,
        }
    }

    /// Returns whether [`OnFailure`](crate::OnFailure) decided, because the shared store was
    /// unavailable. No quota was consumed there.
    pub const fn is_fallback(&self) -> bool {
        self.failure().is_some()
    }

    /// Why the shared store was unavailable, if it was.
    pub const fn failure(&self) -> Option<StoreFailure> {
        match self.by {
            By::Policy(failure) | By::Denial { failure, .. } | By::Local(failure) => Some(failure),
            By::Bucket | By::BadKey { .. } | By::Cached { .. } => None,
        }
    }

    /// Whole tokens that the caller can still take, between zero and capacity.
    pub fn remaining(&self) -> u64 {
        self.inner.remaining()
    }

    /// Whole tokens available after the command: those in the bucket less those that are
    /// [held](Decision::held). Negative is debt.
    pub fn level(&self) -> i64 {
        self.inner.level()
    }

    /// Whole tokens available before the command; negative is debt.
    pub fn level_before(&self) -> i64 {
        self.inner.level_before()
    }

    /// Tokens that [`Hold`](crate::Hold)s keep in the bucket after the command, those of other
    /// processes included. Zero for a limiter without [`holds`](crate::RateLimiterBuilder::holds).
    pub const fn held(&self) -> u64 {
        self.inner.held()
    }

    /// Whole tokens that were taken, charged or credited.
    pub const fn moved(&self) -> u64 {
        self.inner.moved()
    }

    /// How long until the same request would be allowed: not at all, for a time, or never. Where
    /// [`OnFailure::Deny`](crate::OnFailure::Deny) decided, the time until the store is tried again.
    #[inline]
    pub fn wait(&self) -> Wait {
        match self.by {
            By::Denial { retry_us, .. } => Wait::Us(u64::from(retry_us)),
            By::Cached { high, low } => Wait::Us(cached_us(high, low)),
            _ => self.inner.wait(),
        }
    }

    /// Returns how long it takes until `n` tokens can be taken from the bucket, if no other request
    /// takes from it: not at all, for a time, or never because `n` is more than the capacity. Also
    /// works on a peek.
    ///
    /// Where [`OnFailure::Deny`](crate::OnFailure::Deny) refused, this is the time until the store
    /// is tried again.
    ///
    /// ```
    /// use balde::{RateLimiter, Wait};
    ///
    /// let limiter = RateLimiter::new("2/min")?;
    /// let decision = limiter.blocking().check("alice");
    /// assert_eq!(decision.wait_for(1), Wait::None);
    /// assert_eq!(decision.wait_for(2), Wait::Us(30_000_000));
    /// assert_eq!(decision.wait_for(3), Wait::Never);
    /// # Ok::<(), balde::BuildError>(())
    /// ```
    pub fn wait_for(&self, n: u64) -> Wait {
        match (self.by, self.inner.wait_for(n)) {
            (By::BadKey { .. }, _) => Wait::Never,
            (By::Denial { retry_us, .. }, Wait::None | Wait::Us(_)) => {
                Wait::Us(u64::from(retry_us))
            }
            // The core's decision was made earlier: what has passed since then is waited already.
            (By::Cached { high, low }, Wait::Us(us)) => {
                let passed_us = match self.inner.wait() {
                    Wait::Us(then_us) => then_us.saturating_sub(cached_us(high, low)),
                    Wait::None | Wait::Never => 0,
                };
                Wait::Us(us.saturating_sub(passed_us).max(1))
            }
            (_, wait) => wait,
        }
    }

    /// How long until the same request would be allowed, if no other request takes from the bucket.
    /// `None` if it was allowed, and `None` if it never will be.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.wait() {
            Wait::Us(us) => Some(Duration::from_micros(us)),
            Wait::None | Wait::Never => None,
        }
    }

    /// A peek at the bucket after some time, if no other request changes it.
    pub fn after(&self, time: Duration) -> Self {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            inner: self.inner.after(us),
            by: self.by,
        }
    }

    /// How long until the bucket is full, or the window ends.
    pub fn full_after(&self) -> Duration {
        self.inner.full_after()
    }

    /// How long until the bucket holds one whole token more; `None` if it is full.
    pub fn next_token_after(&self) -> Option<Duration> {
        self.inner.next_token_us().map(Duration::from_micros)
    }

    /// The limit of the bucket.
    pub const fn limit(&self) -> &Limit {
        self.inner.limit()
    }
}

fn refusal(limit: &Limit, now_us: u64) -> balde_core::Decision {
    let empty = match limit.strategy() {
        // A window without tokens that ends now.
        Strategy::FixedWindow => {
            Snapshot::of_window(limit, limit.capacity(), now_us.saturating_add(1), now_us)
        }
        _ => Snapshot::of_bucket(limit, limit.capacity_units(), now_us),
    };
    limit.decide(empty, Command::Take { n: u64::MAX })
}
