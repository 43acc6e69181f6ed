//! How the parts of a bucket's key are put together.

use std::fmt;

use super::KeyPart;

/// The longest part of a key that is used.
const PART_BYTES_MAX: usize = 512;

/// Appends one part. What separates parts, and what escapes that, is escaped, so that different
/// parts never make the same key.
pub fn write_key_part(key: &mut Vec<u8>, part: &str) -> Result<(), KeyError> {
    if part.len() > PART_BYTES_MAX {
        return Err(KeyError::TooLong { bytes: part.len() });
    }
    for byte in part.bytes() {
        match byte {
            b'/' => key.extend_from_slice(b"%2F"),
            b'%' => key.extend_from_slice(b"%25"),
            _ => key.push(byte),
        }
    }
    Ok(())
}

/// Why a request has no bucket in a scope. No value of the request is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The request does not have this part, or it is empty.
    Missing {
        /// The part.
        part: KeyPart,
    },
    /// A part is longer than a key's part may be.
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { part } => write!(f, "the request has no {part}"),
            Self::TooLong { bytes } => write!(
                f,
                "a part of the key has {bytes} bytes; at most {PART_BYTES_MAX} are possible"
            ),
        }
    }
}

impl std::error::Error for KeyError {}
