//! Failures of a shared store, and how a limiter decides meanwhile.

use std::fmt;
use std::str::FromStr;
#[cfg(any(feature = "redis", test))]
use std::time::Duration;

#[cfg(any(feature = "redis", test))]
use balde_core::{Limit, LimitError, Start, Strategy};

/// Why the shared store did not answer. None of these means that the caller has exceeded its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreFailure {
    /// The store did not answer in time. The command may have run.
    Timeout,
    /// There is no connection: refused, closed or reset. The command may have run if the connection
    /// broke after it was sent.
    Disconnected,
    /// The store rejects the user or the password, or the user lacks a permission.
    Unauthorized,
    /// The script failed in the server.
    Script,
    /// The circuit breaker is open: the store failed a moment ago, and no call was sent.
    BreakerOpen,
    /// The server is a replica and accepts no writes.
    ReadOnly,
    /// The server's memory is full and it accepts no writes.
    OutOfMemory,
    /// The server is running but does not serve the key yet: it is loading its data, or the Cluster
    /// has no primary for the key.
    NotReady,
    /// The server rejects the connection or the command, or its reply is not the script's: it has
    /// reached `maxclients`, a command is disabled, or it is not Redis.
    Rejected,
    /// The key of this bucket holds a value that another program wrote. Other keys are not affected.
    ForeignValue,
}

impl StoreFailure {
    #[cfg(any(feature = "redis", feature = "prometheus"))]
    pub(crate) const ALL: [Self; 10] = [
        Self::Timeout,
        Self::Disconnected,
        Self::Unauthorized,
        Self::Script,
        Self::BreakerOpen,
        Self::ReadOnly,
        Self::OutOfMemory,
        Self::NotReady,
        Self::Rejected,
        Self::ForeignValue,
    ];

    /// The index in [`ALL`](StoreFailure::ALL).
    #[cfg(feature = "redis")]
    pub(crate) fn index(self) -> usize {
        let index = Self::ALL.iter().position(|one| *one == self);
        index.expect("every failure is in the list of all")
    }

    /// Returns whether a later call may succeed without a change of the configuration.
    pub const fn is_transient(self) -> bool {
        !matches!(self, Self::Unauthorized | Self::Script | Self::ForeignValue)
    }

    /// The failure as logs and metrics show it.
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
            Self::Rejected => "rejected",
            Self::ForeignValue => "foreign_value",
        }
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "the store did not answer in time",
            Self::Disconnected => "there is no connection to the store",
            Self::Unauthorized => {
                "the store rejects the user or the password, or the user lacks a permission"
            }
            Self::Script => "the script failed in the server",
            Self::BreakerOpen => "the circuit breaker is open: the store failed a moment ago",
            Self::ReadOnly => "the store is a replica and accepts no writes",
            Self::OutOfMemory => "the store's memory is full and it accepts no writes",
            Self::NotReady => "the store is running but does not serve this key yet",
            Self::Rejected => {
                "the server rejects the connection or the command: maxclients is reached, a command \
                 is disabled, or it is not Redis"
            }
            Self::ForeignValue => "the key holds a value that another program wrote",
        })
    }
}

impl std::error::Error for StoreFailure {}

/// How a limiter decides while its shared store is unavailable.
///
/// No quota is consumed in the store, and [`Decision::is_fallback`](crate::Decision::is_fallback)
/// returns true for such decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// Deny every request: none passes without being counted.
    Deny,
    /// Allow every request: an outage of the store does not become an outage of the service.
    Allow,
    /// Decide by a bucket in the memory of this process, with a share of the limit.
    Local {
        /// The share of the limit that this process grants.
        share: Share,
    },
}

impl OnFailure {
    /// The policy as logs show it.
    #[cfg(feature = "redis")]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Local { .. } => "local",
        }
    }
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

/// A share of a limit, for example for [`OnFailure::Local`]. With `n` processes, choose one in `n`:
/// together they then grant about the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    parts: u32,
    of: u32,
}

impl Share {
    /// One part in `n`. Building a limiter with one in zero fails.
    pub const fn one_in(n: u32) -> Self {
        Self { parts: 1, of: n }
    }

    /// A percentage. Building a limiter with less than 1 or more than 100 fails.
    pub const fn percent(percent: u32) -> Self {
        Self {
            parts: percent,
            of: 100,
        }
    }

    /// Returns true if this is more than nothing and at most the whole. Builders refuse other
    /// shares.
    pub const fn is_valid(self) -> bool {
        1 <= self.parts && self.parts <= self.of
    }

    /// Returns this share of `limit`: at least one token, and otherwise never more than the share.
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

    /// This share of `tokens`, rounded down, and at least 1.
    ///
    /// ```
    /// use balde::Share;
    ///
    /// assert_eq!(Share::percent(10).of_tokens(1_999), 199);
    /// assert_eq!(Share::one_in(3).of_tokens(2), 1);
    /// ```
    pub fn of_tokens(self, tokens: u64) -> u64 {
        if self.of == 0 {
            return 1;
        }
        let scaled = u128::from(tokens) * u128::from(self.parts) / u128::from(self.of);
        u64::try_from(scaled).unwrap_or(tokens).max(1)
    }
}

/// As files write it: `25%` or `1/4`.
impl FromStr for Share {
    type Err = InvalidShare;

    fn from_str(text: &str) -> Result<Self, InvalidShare> {
        let text = text.trim();
        let share = match text.strip_suffix('%') {
            Some(percent) => percent.trim_end().parse().ok().map(Self::percent),
            None => text
                .strip_prefix("1/")
                .and_then(|parts| parts.parse().ok())
                .map(Self::one_in),
        };
        share.filter(|share| share.is_valid()).ok_or(InvalidShare)
    }
}

/// The text of a [`Share`] cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidShare;

impl fmt::Display for InvalidShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a share as 25% or 1/4: more than nothing and at most the whole")
    }
}

impl std::error::Error for InvalidShare {}

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
