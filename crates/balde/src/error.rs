//! What can go wrong, apart from a limit being reached: that is a decision and no error.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::time::Duration;

use balde_core::{LimitError, ParseLimitError};

use crate::failure::StoreFailure;
use crate::store::memory::KEYS_MAX_MAX;

/// The longest key, in bytes. Longer ones are refused and count no quota: hash them first.
pub const KEY_BYTES_MAX: usize = 4_096;

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// It has no bytes. A missing identity must not become a bucket that strangers share.
    Empty,
    /// It has more than [`KEY_BYTES_MAX`] bytes.
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl BadKey {
    /// The key, if it can be used.
    #[inline]
    pub(crate) fn check(key: &[u8]) -> Result<&[u8], Self> {
        match key.len() {
            0 => Err(Self::Empty),
            1..=KEY_BYTES_MAX => Ok(key),
            bytes => Err(Self::TooLong { bytes }),
        }
    }
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the key is empty; every caller needs an identity"),
            Self::TooLong { bytes } => write!(
                f,
                "the key has {bytes} bytes, more than {KEY_BYTES_MAX}; use a hash of it"
            ),
        }
    }
}

impl std::error::Error for BadKey {}

/// Why a bucket could not be asked or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The key cannot be used. Asking again will not help.
    BadKey(BadKey),
    /// The shared store could not be asked. [`StoreFailure::is_transient`] says whether asking
    /// again may help, and an operation's id makes that safe.
    Store(StoreFailure),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadKey(bad) => bad.fmt(f),
            Self::Store(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<BadKey> for Error {
    fn from(bad: BadKey) -> Self {
        Self::BadKey(bad)
    }
}

impl From<StoreFailure> for Error {
    fn from(failure: StoreFailure) -> Self {
        Self::Store(failure)
    }
}

/// Why a limiter or a store could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// No limit was given.
    NoLimit,
    /// The limit could not be read.
    Text(ParseLimitError),
    /// The limit could not be kept exactly.
    Limit(LimitError),
    /// `keys_max` is zero or too large.
    KeysMax {
        /// What was asked for.
        keys_max: usize,
    },
    /// A local share is nothing, or more than all.
    Share,
    /// Outcomes of operations would be remembered for no time, or for more than a week.
    OnceTtl {
        /// What was asked for.
        ttl: Duration,
    },
    /// No address of the store was given.
    NoAddress,
    /// An address of the store cannot be read. It is not repeated here: it may hold a password.
    Address,
    /// The store's timeout is zero or too long.
    Timeout {
        /// What was asked for.
        timeout: Duration,
    },
    /// The number of connections is zero or too large.
    Connections {
        /// What was asked for.
        connections: usize,
    },
    /// Certificates or keys cannot be used.
    Tls {
        /// What is wrong.
        why: String,
    },
    /// The system gives no thread for the store.
    Runtime {
        /// What it said.
        kind: io::ErrorKind,
    },
    /// A setting in the environment is missing or cannot be used.
    Environment {
        /// Which one.
        variable: &'static str,
        /// What to do.
        advice: &'static str,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => f.write_str(
                "a limiter needs a limit: call RateLimiterBuilder::limit, as in .limit(\"10/s\")",
            ),
            Self::Text(error) => write!(f, "the limit cannot be read: {error}"),
            Self::Limit(error) => write!(f, "the limit cannot be kept: {error}"),
            Self::KeysMax { keys_max } => write!(
                f,
                "keys_max is {keys_max}; it must be between 1 and {KEYS_MAX_MAX}"
            ),
            Self::Share => {
                f.write_str("a local share must be one in 1 or more, or 1 to 100 percent")
            }
            Self::OnceTtl { ttl } => write!(
                f,
                "outcomes of operations cannot be kept for {ttl:?}; it must be 1 ms to 7 days"
            ),
            Self::NoAddress => f.write_str("a store needs an address: call RedisBuilder::address"),
            Self::Address => f.write_str(
                "the store's address cannot be read; it is host:port, \
                 redis://[user:password@]host:port[/database], or the same with rediss:// for TLS",
            ),
            Self::Timeout { timeout } => write!(
                f,
                "a decision cannot wait {timeout:?} for the store; the timeout must be more than \
                 zero and at most 100 ms"
            ),
            Self::Connections { connections } => {
                write!(f, "{connections} connections; it must be between 1 and 64")
            }
            Self::Tls { why } => write!(f, "TLS cannot be set up: {why}"),
            Self::Runtime { kind } => write!(f, "the store gets no thread of its own: {kind}"),
            Self::Environment { variable, advice } => write!(f, "{variable}: {advice}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Text(error) => Some(error),
            Self::Limit(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ParseLimitError> for BuildError {
    fn from(error: ParseLimitError) -> Self {
        Self::Text(error)
    }
}

impl From<LimitError> for BuildError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

impl From<Infallible> for BuildError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
