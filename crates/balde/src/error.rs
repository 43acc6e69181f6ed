//! Errors. A limit that is reached is a decision, not an error.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use balde_core::{Limit, LimitError, ParseLimitError, Strategy};
use thiserror::Error as ThisError;

use crate::failure::StoreFailure;
use crate::key::BadKey;

/// The most keys that a limiter in memory can be built for.
pub(crate) const KEYS_MAX_MAX: usize = 1 << 30;

/// The shortest fixed window, in microseconds.
const WINDOW_US_MIN: u64 = 1_000_000;

/// Why a bucket could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The key cannot be used. A retry does not help.
    #[error(transparent)]
    BadKey(#[from] BadKey),
    /// The shared store did not answer. [`StoreFailure::is_transient`] returns whether a retry may
    /// help; an [`OpId`](crate::OpId) makes it safe.
    #[error(transparent)]
    Store(#[from] StoreFailure),
}

/// Why [`RateLimiter::acquire`](crate::RateLimiter::acquire) got no tokens. None were taken.
#[cfg(feature = "tokio")]
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum AcquireError {
    /// The key cannot be used. A retry does not help.
    #[error(transparent)]
    BadKey(#[from] BadKey),
    /// More tokens were requested than the bucket can ever hold. Ask for fewer at a time.
    #[error("the request needs more tokens than the bucket can ever hold ({capacity})")]
    OverCapacity {
        /// The most tokens that the bucket can hold.
        capacity: u64,
    },
    /// The tokens did not come, or would not have come, within the time given to
    /// [`acquire_within`](crate::RateLimiter::acquire_within).
    #[error("the tokens are not available within the time given")]
    TimedOut,
    /// Too many requests wait for this limiter already.
    #[error("{waiters_max} requests wait already, the most that this limiter accepts")]
    TooManyWaiters {
        /// The value of [`RateLimiterBuilder::waiters_max`](crate::RateLimiterBuilder::waiters_max).
        waiters_max: usize,
    },
    /// The shared store fails in a way that waiting does not mend, and
    /// [`OnFailure::Deny`](crate::OnFailure::Deny) refused.
    #[error(transparent)]
    Store(#[from] StoreFailure),
}

/// Why a tier could not be assigned or changed.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum TierError {
    /// The limiter has no tier of this name. Tiers are named when it is built.
    #[error("there is no tier {name:?}; name it with RateLimiterBuilder::tier")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The function given to [`tier_of`](crate::RateLimiterBuilder::tier_of) decides the tier of
    /// every key.
    #[error("the tiers of keys are looked up by a function, so they cannot be assigned")]
    LookedUp,
    /// `keys_max` keys have a tier, and no more can be kept.
    #[error("there is no room for another key with a tier; raise keys_max")]
    Full,
    /// The key cannot be used.
    #[error(transparent)]
    BadKey(#[from] BadKey),
    /// The limit cannot be used.
    #[error(transparent)]
    Limit(#[from] InvalidLimit),
}

/// Why a limit cannot be used: the error of [`RateLimiter::set_limit`](crate::RateLimiter::set_limit),
/// and a part of [`BuildError`].
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// The text cannot be parsed.
    #[error("the limit cannot be parsed: {0}")]
    Text(#[from] ParseLimitError),
    /// The numbers cannot be counted exactly.
    #[error("the limit cannot be counted exactly: {0}")]
    Limit(#[from] LimitError),
    /// A fixed window is shorter than a second.
    #[error("a fixed window must be at least 1 s long; a token bucket can be faster")]
    ShortWindow,
}

impl InvalidLimit {
    /// Returns the limit, unless it is a fixed window of less than a second.
    pub(crate) fn check_window(limit: Limit) -> Result<Limit, Self> {
        let is_window = limit.strategy() == Strategy::FixedWindow;
        if is_window && limit.period_us() < WINDOW_US_MIN {
            return Err(Self::ShortWindow);
        }
        Ok(limit)
    }
}

impl From<Infallible> for InvalidLimit {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Why a limiter could not be built.
#[derive(Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum BuildError {
    /// No limit was given.
    #[error("a limiter needs a limit: call RateLimiterBuilder::limit, as in .limit(\"10/s\")")]
    NoLimit,
    /// The limit cannot be used.
    #[error(transparent)]
    Limit(#[from] InvalidLimit),
    /// `keys_max` is zero or too large.
    #[error("keys_max is {keys_max}; it must be between 1 and {KEYS_MAX_MAX}")]
    KeysMax {
        /// The value that was given.
        keys_max: usize,
    },
    /// The share of [`OnFailure::Local`](crate::OnFailure::Local) or of leases is zero, or more
    /// than the whole.
    #[error("a share must be one in 1 or more, or 1 to 100 percent")]
    Share,
    /// Operations would be remembered for no time, or for more than a week.
    #[error("once_ttl is {ttl:?}; it must be between 1 ms and 7 days")]
    OnceTtl {
        /// The value that was given.
        ttl: Duration,
    },
    /// Holds would end at once, or be kept for days after their process.
    #[error("the time to live of holds is {ttl:?}; it must be between 1 s and 24 h")]
    HoldTtl {
        /// The value that was given.
        ttl: Duration,
    },
    /// `waiters_max` is zero.
    #[cfg(feature = "tokio")]
    #[error("waiters_max is 0; it must be at least 1")]
    WaitersMax,
    /// Two tiers have the same name.
    #[error("the tier {name:?} is named twice")]
    TierTwice {
        /// The name.
        name: String,
    },
    /// There are too many tiers.
    #[error("a limiter can have {tiers_max} tiers")]
    TooManyTiers {
        /// The most that there can be.
        tiers_max: usize,
    },
    /// The store that the environment names cannot be built.
    #[error(transparent)]
    Redis(#[from] RedisConfigError),
    /// A section of an options file needs a feature that this build lacks.
    #[error("[{section}] needs the feature \"{feature}\" of the crate balde")]
    Feature {
        /// The section.
        section: &'static str,
        /// The feature to enable.
        feature: &'static str,
    },
    /// An environment variable is missing or has an unusable value.
    #[error("{variable}: {advice}")]
    Environment {
        /// The name of the variable.
        variable: &'static str,
        /// What is wrong, and what to do.
        advice: &'static str,
    },
}

impl fmt::Debug for BuildError {
    /// The same text: a `main` that returns the error prints it like this, after `Error: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a `RedisStore` could not be built. None of these is about the server: the store connects in
/// the background.
#[derive(Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum RedisConfigError {
    /// No address was given.
    #[error("a Redis store needs an address: call RedisBuilder::address or RedisBuilder::cluster")]
    NoAddress,
    /// An address cannot be parsed. The message does not repeat it, because it may hold a password.
    #[error(
        "the address of Redis cannot be parsed; write host:port, \
         redis://[user:password@]host:port[/database], or rediss:// for TLS"
    )]
    Address,
    /// The timeout is zero or too long.
    #[error("the timeout is {timeout:?}; it must be more than zero and at most 100 ms")]
    Timeout {
        /// The value that was given.
        timeout: Duration,
    },
    /// The number of connections is zero or too large.
    #[error("connections is {connections}; it must be between 1 and 64")]
    Connections {
        /// The value that was given.
        connections: usize,
    },
    /// A file with a certificate or a key cannot be read.
    #[error("{} cannot be read: {kind}", path.display())]
    CertificateFile {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        kind: io::ErrorKind,
    },
    /// A certificate or a key cannot be used.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// What is wrong.
        reason: String,
    },
    /// The operating system refused a thread for the store.
    #[error("no thread could be started for the Redis store: {kind}")]
    Runtime {
        /// The error of the operating system.
        kind: io::ErrorKind,
    },
}

impl fmt::Debug for RedisConfigError {
    /// The same text, as for [`BuildError`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
