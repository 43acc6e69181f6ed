//! Which spellings of a path are accepted, and the normal form of those that are.

use std::borrow::Cow;

use super::PathError;
use super::spelling::{self, Reserved};

/// Which spellings of a path are accepted. The default refuses every spelling that servers are known
/// to read in different ways.
///
/// ```
/// use balde_policy::{PathError, PathRules};
///
/// let rules = PathRules::default();
/// assert_eq!(rules.normalized("/%73earch")?, "/search");
/// assert_eq!(rules.normalized("//search/%7euser")?, "/search/~user");
/// assert_eq!(rules.normalized("/a%2Fb"), Err(PathError::EscapedSlash));
/// # Ok::<(), PathError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    pub(super) escaped_slashes: Permission,
    pub(super) parameters: Permission,
    pub(super) double_encoding: Permission,
    pub(super) dot_segments: DotSegments,
}

/// What happens to a path with a certain spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// The path is refused.
    #[default]
    Refuse,
    /// The path is accepted, and goes on with this spelling.
    Keep,
}

/// What happens to the segments `.` and `..`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotSegments {
    /// A path with such a segment is refused. This is for a path that goes on as it was received: the
    /// server behind might resolve the segments, or might not.
    #[default]
    Refuse,
    /// The segments are resolved. This is for a path that goes on in its normal form.
    Resolve,
}

impl PathRules {
    /// Sets what happens to paths with an encoded slash or backslash, `%2F` and `%5C`. A slash that is
    /// kept does not separate segments.
    pub fn escaped_slashes(self, escaped_slashes: Permission) -> Self {
        Self {
            escaped_slashes,
            ..self
        }
    }

    /// Sets what happens to paths with parameters, as in `/search;x=1`. A server that knows parameters
    /// reads this path as `/search`, others do not. Parameters that are kept are no part of the normal
    /// form, so that this path is counted as `/search`.
    pub fn parameters(self, parameters: Permission) -> Self {
        Self { parameters, ..self }
    }

    /// Sets what happens to paths with an encoded percent sign in front of two hexadecimal digits, as in
    /// `%252e`. A server that decodes twice reads this as a dot.
    pub fn double_encoding(self, double_encoding: Permission) -> Self {
        Self {
            double_encoding,
            ..self
        }
    }

    /// Sets what happens to the segments `.` and `..`.
    pub fn dot_segments(self, dot_segments: DotSegments) -> Self {
        Self {
            dot_segments,
            ..self
        }
    }

    /// The normal form of a path, in which paths are compared. Every character that a segment may
    /// contain is written as it is, and every other one is percent-encoded with capital digits.
    /// Repeated slashes are one. A path that does not begin with a slash, such as `*`, is returned as it
    /// is.
    ///
    /// A path in its normal form is borrowed, so that the usual path costs a scan and no allocation.
    ///
    /// # Errors
    ///
    /// Returns an error if servers read the path in different ways.
    pub fn normalized<'p>(&self, path: &'p str) -> Result<Cow<'p, str>, PathError> {
        spelling::normalized(*self, path, Reserved::Decoded)
    }

    /// The form of a path that goes on to another server. It differs from
    /// [`normalized`](PathRules::normalized) in reserved characters such as `+` and `@`: these stay as
    /// they are, encoded or not, because RFC 3986 leaves their meaning to the server.
    ///
    /// # Errors
    ///
    /// As [`normalized`](PathRules::normalized).
    pub fn forwarded<'p>(&self, path: &'p str) -> Result<Cow<'p, str>, PathError> {
        spelling::normalized(*self, path, Reserved::Kept)
    }
}
