//! When a shared store cannot be asked: what went wrong, and what a limiter then does.

use std::fmt;
#[cfg(any(feature = "redis", test))]
use std::time::Duration;

#[cfg(any(feature = "redis", test))]
use balde_core::{Limit, LimitError, Start, Strategy};

/// Why the shared store gave no answer. None of them says anything about the caller's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreFailure {
    /// It did not answer in time. What was asked may have happened.
    Timeout,
    /// There is no connection: refused, closed or reset. What was asked may have happened if the
    /// connection broke while it was being asked.
    Disconnected,
    /// It does not accept the password, the user, or what the user may do.
    Unauthorized,
    /// The script failed, or the answer was none of the script's: a key of ours holds what
    /// somebody else wrote, or something that is not Redis answers.
    Script,
    /// It failed a moment ago and was not asked at all, so that its outage costs nobody time.
    BreakerOpen,
    /// It is a replica and takes no writes.
    ReadOnly,
    /// Its memory is full and it takes no writes.
    OutOfMemory,
    /// It is there but does not serve yet: loading its data, or a Cluster without a primary for
    /// the key.
    NotReady,
}

impl StoreFailure {
    #[cfg(any(feature = "redis", feature = "prometheus"))]
    pub(crate) const ALL: [Self; 8] = [
        Self::Timeout,
        Self::Disconnected,
        Self::Unauthorized,
        Self::Script,
        Self::BreakerOpen,
        Self::ReadOnly,
        Self::OutOfMemory,
        Self::NotReady,
    ];

    /// Its place in the list of all.
    #[cfg(feature = "redis")]
    pub(crate) fn index(self) -> usize {
        let place = Self::ALL.iter().position(|one| *one == self);
        place.expect("every failure is in the list of all")
    }

    /// Whether it can pass by itself. Where not, somebody has to change a setting.
    pub const fn is_transient(self) -> bool {
        !matches!(self, Self::Unauthorized | Self::Script)
    }

    /// One word for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::Unauthorized => "unauthorized",
            Self::Script => "script",
            Self::BreakerOpen => "breaker_open",
            Self::ReadOnly => "read_only",
            Self::OutOfMemory => "out_of_memory",
            Self::NotReady => "not_ready",
        }
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "the store did not answer in time",
            Self::Disconnected => "there is no connection to the store",
            Self::Unauthorized => "the store refuses the user or password, or what the user may do",
            Self::Script => "the store's script failed or its answer cannot be read",
            Self::BreakerOpen => "the store failed a moment ago and was not asked",
            Self::ReadOnly => "the store is a replica and takes no writes",
            Self::OutOfMemory => "the store's memory is full and it takes no writes",
            Self::NotReady => "the store is there but does not serve this key yet",
        })
    }
}

impl std::error::Error for StoreFailure {}

/// What a limiter answers while its shared store cannot be asked. None of them consumes quota in
/// the store, and every such answer says so ([`Decision::is_fallback`](crate::Decision::is_fallback)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Refuse: nobody passes uncounted.
    Deny,
    /// Let pass: an outage of the limiter is none of its users.
    Allow,
    /// Decide by a bucket of this process alone, with a share of the limit.
    Local {
        /// How much of the limit this process may grant by itself.
        share: Share,
    },
}

/// As files write it: `deny`, `allow`, `local 25%` or `local 1/3`.
impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deny => f.write_str("deny"),
            Self::Allow => f.write_str("allow"),
            Self::Local { share } if share.of == 100 => write!(f, "local {}%", share.parts),
            Self::Local { share } => write!(f, "local {}/{}", share.parts, share.of),
        }
    }
}

/// A part of a limit, for [`OnFailure::Local`]: one in as many as there are processes, so that
/// together they grant about the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    parts: u32,
    of: u32,
}

impl Share {
    /// One part in `n`. A limiter with a share of one in zero is not built.
    pub const fn one_in(n: u32) -> Self {
        Self { parts: 1, of: n }
    }

    /// So many hundredths: 1 to 100, or the limiter is not built.
    pub const fn percent(percent: u32) -> Self {
        Self {
            parts: percent,
            of: 100,
        }
    }

    #[cfg(any(feature = "redis", feature = "throttle", test))]
    pub(crate) const fn is_valid(self) -> bool {
        1 <= self.parts && self.parts <= self.of
    }

    /// The limit for this part: never less than one token, and otherwise never more than the share.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn of(self, limit: &Limit) -> Result<Limit, LimitError> {
        let capacity = self.of_tokens(limit.capacity());
        let tokens = self.of_tokens(limit.refill_tokens());
        let period = Duration::from_micros(limit.period_us());
        let shared = match limit.strategy() {
            Strategy::FixedWindow => Limit::window(capacity, period)?,
            Strategy::Stepwise => Limit::bucket_of(capacity, tokens, period)?.stepwise(),
            Strategy::Continuous => {
                // A longer period keeps the rate exact where the tokens do not divide; where that
                // is too fine to count, the tokens are rounded down.
                let exact = u64::from(self.parts)
                    .checked_mul(limit.refill_tokens())
                    .zip(u64::from(self.of).checked_mul(limit.period_us()))
                    .and_then(|(tokens, us)| {
                        let period = Duration::from_micros(us);
                        Limit::bucket_of(capacity, tokens, period).ok()
                    });
                match exact {
                    Some(limit) => limit,
                    None => Limit::bucket_of(capacity, tokens, period)?,
                }
            }
        };
        match limit.start() {
            Start::Full => Ok(shared),
            Start::Empty => shared.starting_empty(),
        }
    }

    #[cfg(any(feature = "redis", feature = "throttle", test))]
    pub(crate) fn of_tokens(self, tokens: u64) -> u64 {
        let scaled = u128::from(tokens) * u128::from(self.parts) / u128::from(self.of);
        u64::try_from(scaled).unwrap_or(tokens).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_limit_is_never_more_than_it_and_never_nothing() {
        for (share, limit, expected) in [
            (Share::percent(25), "100/s burst 200", "25/s burst 50"),
            (Share::one_in(3), "10/s", "10/3s burst 3"),
            (Share::one_in(8), "2/min window", "1/min window"),
            (
                Share::one_in(7),
                "1200/min burst 36000 stepwise",
                "171/min burst 5142 stepwise",
            ),
            (
                Share::percent(100),
                "10/s burst 5 empty",
                "10/s burst 5 empty",
            ),
        ] {
            let limit: Limit = limit.parse().unwrap();
            let expected: Limit = expected.parse().unwrap();
            let shared = share.of(&limit).unwrap();
            assert_eq!(shared.capacity(), expected.capacity(), "{limit}");
            assert_eq!(shared.token_units(), expected.token_units(), "{limit}");
            assert_eq!(shared.refill_units(), expected.refill_units(), "{limit}");
            assert_eq!(shared.strategy(), expected.strategy(), "{limit}");
            assert_eq!(shared.start(), expected.start(), "{limit}");
        }
    }

    #[test]
    fn a_share_is_between_nothing_and_all() {
        for (share, is_valid) in [
            (Share::one_in(0), false),
            (Share::one_in(1), true),
            (Share::percent(0), false),
            (Share::percent(100), true),
            (Share::percent(101), false),
        ] {
            assert_eq!(share.is_valid(), is_valid, "{share:?}");
        }
    }
}
