//! How the parts of a bucket's key are put together.

use std::borrow::Cow;

use balde::{KEY_BYTES_MAX, TOKEN_REQUESTS_MAX};
use smallvec::SmallVec;
use thiserror::Error;

use super::{KeyPart, MatchRule, Request};

/// The longest part of a key, in bytes.
const PART_BYTES_MAX: usize = 512;

/// A bucket's key within its policy. Most keys need no allocation.
pub(crate) type Key = SmallVec<[u8; 48]>;

/// Where the values of key parts come from: a request, or a subject that is named by its parts.
pub(crate) trait PartSource {
    /// The value of a part; `None` if it is missing or empty.
    fn part<'a>(&'a self, part: &'a KeyPart) -> Option<Cow<'a, str>>;

    /// Whether servers could read different values of a part, so that a caller could choose between
    /// buckets.
    fn is_ambiguous(&self, _part: &KeyPart) -> bool {
        false
    }
}

/// A request, with the rule that it matched. The rule's path template names segments.
pub(crate) struct MatchedRequest<'a, 'r> {
    pub(crate) request: &'a Request<'r>,
    pub(crate) rule: &'a MatchRule,
}

impl PartSource for MatchedRequest<'_, '_> {
    fn part<'a>(&'a self, part: &'a KeyPart) -> Option<Cow<'a, str>> {
        part.value(self.request, self.rule)
    }

    fn is_ambiguous(&self, part: &KeyPart) -> bool {
        match part {
            KeyPart::Header(name) => self.request.headers.values_differ(name),
            KeyPart::Query(name) => self.request.query_readings(name).is_ambiguous(),
            _ => false,
        }
    }
}

/// Appends one part. The separator and the escape character are escaped, so that different parts
/// never make the same key.
pub(crate) fn write_key_part(key: &mut Key, part: &str) -> Result<(), KeyError> {
    if part.len() > PART_BYTES_MAX {
        return Err(KeyError::TooLong { bytes: part.len() });
    }
    if part.bytes().any(|byte| byte == b'/' || byte == b'%') {
        for byte in part.bytes() {
            match byte {
                b'/' => key.extend_from_slice(b"%2F"),
                b'%' => key.extend_from_slice(b"%25"),
                _ => key.push(byte),
            }
        }
    } else {
        key.extend_from_slice(part.as_bytes());
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(KeyError::TooLong { bytes: key.len() });
    }
    Ok(())
}

/// Why a request has no bucket under a policy. Contains no value of the request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The request does not have this part, or the part is empty.
    #[error("the request has no {part}")]
    Missing {
        /// The part.
        part: KeyPart,
    },
    /// The request has this part several times, with different values.
    #[error("the request has several values of {part}")]
    Ambiguous {
        /// The part.
        part: KeyPart,
    },
    /// A part of the key, or the whole key, is too long.
    #[error(
        "the key has {bytes} bytes; a part may have {PART_BYTES_MAX} and a key {KEY_BYTES_MAX}"
    )]
    TooLong {
        /// The length of the part or of the key.
        bytes: usize,
    },
    /// More policies apply to the request than one decision can cover.
    #[error("more than {TOKEN_REQUESTS_MAX} policies count the request")]
    TooManyPolicies,
    /// The limit depends on a variant, and the request matches none of its values.
    #[error("the request has no value of the variant `{variant}` that the policy has a limit for")]
    NoVariant {
        /// The variant's name.
        variant: Box<str>,
    },
}
