//! The answer that callers of a limiter get: the core's decision, and why.

use std::time::Duration;

use balde_core::{Command, Limit, Snapshot, Strategy, Wait};

use crate::error::BadKey;
use crate::failure::StoreFailure;

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
    /// The shared store could not be asked, and [`OnFailure`](crate::OnFailure) decided. No quota
    /// was counted.
    StoreUnavailable(StoreFailure),
}

/// What became of a check. [`is_allowed`](Decision::is_allowed) is the answer; the rest is for
/// headers, logs and callers who want to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    inner: balde_core::Decision,
    by: By,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only a shared store can be away")
)]
enum By {
    Bucket,
    BadKey(BadKey),
    /// The failure policy, without a bucket.
    Policy(StoreFailure),
    /// The same, refusing, with a time after which the store may be back.
    Denial {
        failure: StoreFailure,
        retry_us: u32,
    },
    /// This process's own bucket, because of the failure.
    Local(StoreFailure),
    /// The bucket, some time ago, and nothing can have changed for so long.
    Memory {
        retry_us: u64,
    },
}

impl Decision {
    #[inline]
    pub(crate) const fn of(inner: balde_core::Decision) -> Self {
        Self {
            inner,
            by: By::Bucket,
        }
    }

    /// A refusal that touched no bucket: none remain, and waiting does not help.
    pub(crate) fn of_bad_key(limit: &Limit, bad: BadKey, now_us: u64) -> Self {
        Self {
            inner: refusal(limit, now_us),
            by: By::BadKey(bad),
        }
    }

    /// What [`OnFailure::Allow`](crate::OnFailure::Allow) says: as if the bucket were full. So more
    /// than it can ever hold is refused here, too.
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

    /// What [`OnFailure::Deny`](crate::OnFailure::Deny) says.
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

    /// What this process's own bucket says while the store is away.
    #[cfg(feature = "redis")]
    pub(crate) const fn of_local(inner: balde_core::Decision, failure: StoreFailure) -> Self {
        Self {
            inner,
            by: By::Local(failure),
        }
    }

    /// What the bucket said a moment ago and would say again.
    #[cfg(feature = "redis")]
    pub(crate) fn of_memory(inner: balde_core::Decision, retry_us: u64) -> Self {
        Self {
            inner,
            by: By::Memory {
                retry_us: retry_us.max(1),
            },
        }
    }

    /// The same, had it only looked: nothing moved, and the bucket stands as it was before.
    #[cfg(feature = "redis")]
    pub(crate) fn as_look(&self, first: &balde_core::Decision) -> Self {
        let before = first.owed_before();
        let at_us = match first.limit().strategy() {
            Strategy::FixedWindow if before == 0 => 0,
            _ => first.at_us(),
        };
        let look = balde_core::Decision::from_parts(
            first.limit(),
            Command::Peek,
            true,
            before,
            before,
            at_us,
            first.now_us(),
        );
        Self {
            inner: look.unwrap_or(self.inner),
            by: self.by,
        }
    }

    pub(crate) const fn core(&self) -> &balde_core::Decision {
        &self.inner
    }

    /// Whether a bucket stands behind the numbers. Where the failure policy decided alone, or the
    /// key was bad, nobody knows how the caller stands.
    #[cfg(feature = "http")]
    pub(crate) const fn has_standing(&self) -> bool {
        matches!(self.by, By::Bucket | By::Local(_) | By::Memory { .. })
    }

    /// Why the key cannot be used, where that is so.
    pub(crate) const fn bad_key(&self) -> Option<BadKey> {
        match self.by {
            By::BadKey(bad) => Some(bad),
            _ => None,
        }
    }

    /// Whether a bucket was asked and refused.
    pub(crate) const fn is_refused_by_bucket(&self) -> bool {
        matches!(self.by, By::Bucket) && !self.inner.is_allowed()
    }

    /// Whether the request may go on.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.inner.is_allowed()
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        match (self.by, self.inner.wait()) {
            (By::BadKey(bad), _) => Reason::BadKey(bad),
            (By::Denial { failure, .. }, _) | (By::Policy(failure), Wait::None) => {
                Reason::StoreUnavailable(failure)
            }
            (_, Wait::None) => Reason::Granted,
            (_, Wait::Us(_)) => Reason::OverLimit,
            (_, Wait::Never) => Reason::OverCapacity,
        }
    }

    /// Whether the shared store could not be asked, so that this is what
    /// [`OnFailure`](crate::OnFailure) says and no quota was consumed there.
    pub const fn is_fallback(&self) -> bool {
        self.failure().is_some()
    }

    /// Why the shared store could not be asked, where that is so.
    pub const fn failure(&self) -> Option<StoreFailure> {
        match self.by {
            By::Policy(failure) | By::Denial { failure, .. } | By::Local(failure) => Some(failure),
            By::Bucket | By::BadKey(_) | By::Memory { .. } => None,
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

    /// How long until the same request would pass: not at all, for a time, or never. Where the
    /// shared store could not be asked, until it is worth asking again.
    #[inline]
    pub fn wait(&self) -> Wait {
        match self.by {
            By::Denial { retry_us, .. } => Wait::Us(u64::from(retry_us)),
            By::Memory { retry_us } => Wait::Us(retry_us),
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
            (By::BadKey(_), _) => Wait::Never,
            (By::Denial { retry_us, .. }, Wait::None | Wait::Us(_)) => {
                Wait::Us(u64::from(retry_us))
            }
            // The core's decision was made earlier: what has passed since then is waited already.
            (By::Memory { retry_us }, Wait::Us(us)) => {
                let passed_us = match self.inner.wait() {
                    Wait::Us(then_us) => then_us.saturating_sub(retry_us),
                    Wait::None | Wait::Never => 0,
                };
                Wait::Us(us.saturating_sub(passed_us).max(1))
            }
            (_, wait) => wait,
        }
    }

    /// How long until the same request would pass, if nobody else takes from the bucket. Nothing
    /// when it has passed, and nothing when it never will.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.wait() {
            Wait::Us(us) => Some(Duration::from_micros(us)),
            Wait::None | Wait::Never => None,
        }
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

fn refusal(limit: &Limit, now_us: u64) -> balde_core::Decision {
    let empty = match limit.strategy() {
        // A window of nothing left that ends now.
        Strategy::FixedWindow => {
            Snapshot::of_window(limit, limit.capacity(), now_us.saturating_add(1), now_us)
        }
        _ => Snapshot::of_bucket(limit, limit.capacity_units(), now_us),
    };
    limit.decide(empty, Command::Take { n: u64::MAX })
}
