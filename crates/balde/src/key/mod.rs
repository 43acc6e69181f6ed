//! Keys: which bytes name a bucket, and which do not.

#[cfg(feature = "http")]
mod short;

use std::fmt;

#[cfg(all(test, feature = "tower"))]
pub(crate) use short::SHORT_KEY_BYTES_MAX;
#[cfg(feature = "http")]
pub(crate) use short::ShortKey;

/// The longest key, in bytes. A check with a longer key is denied and takes no tokens; pass a hash
/// of the key instead.
pub const KEY_BYTES_MAX: usize = 4_096;

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadKey {
    /// The key is empty. It is denied, because otherwise all callers without an identity would
    /// share one bucket.
    Empty,
    /// The key is longer than [`KEY_BYTES_MAX`].
    TooLong {
        /// The length of the key, in bytes.
        bytes: usize,
    },
}

impl BadKey {
    /// Returns the key if it can be used.
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
