//! What can go wrong, apart from a limit being reached: that is a decision and no error.

use std::convert::Infallible;
use std::fmt;

use balde_core::{LimitError, ParseLimitError};

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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadKey(bad) => bad.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<BadKey> for Error {
    fn from(bad: BadKey) -> Self {
        Self::BadKey(bad)
    }
}

/// Why a limiter could not be built.
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
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => {
                f.write_str("a limiter needs a limit: call Builder::limit, as in .limit(\"10/s\")")
            }
            Self::Text(error) => write!(f, "the limit cannot be read: {error}"),
            Self::Limit(error) => write!(f, "the limit cannot be kept: {error}"),
            Self::KeysMax { keys_max } => write!(
                f,
                "keys_max is {keys_max}; it must be between 1 and {KEYS_MAX_MAX}"
            ),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Text(error) => Some(error),
            Self::Limit(error) => Some(error),
            Self::NoLimit | Self::KeysMax { .. } => None,
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
