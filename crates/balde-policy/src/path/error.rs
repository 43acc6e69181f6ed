//! Why a path is refused.

use std::fmt;

/// Why a path is refused: servers read it in different ways. Contains no part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathError {
    /// A `%` that is not followed by two hexadecimal digits.
    BrokenEncoding,
    /// An encoded slash or backslash: `%2F` or `%5C`.
    EscapedSlash,
    /// A backslash.
    Backslash,
    /// A control character or a space, or an encoded control character such as `%00`.
    Control,
    /// An encoded percent sign in front of two hexadecimal digits, as in `%252e`.
    DoubleEncoding,
    /// Bytes that are not UTF-8 once they are decoded, such as `%C0%AF`.
    NotUtf8,
    /// A parameter, which begins with `;` or `%3B`.
    Parameter,
    /// A segment `.` or `..`, also encoded, where these are refused; or one with a parameter, as in
    /// `..;`.
    DotSegment,
    /// More `..` than there are segments to remove.
    AboveRoot,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BrokenEncoding => "the path has a `%` without two hexadecimal digits",
            Self::EscapedSlash => "the path has an encoded slash or backslash",
            Self::Backslash => "the path has a backslash",
            Self::Control => "the path has a control character or a space",
            Self::DoubleEncoding => "the path is encoded twice",
            Self::NotUtf8 => "the path is not UTF-8 once it is decoded",
            Self::Parameter => "the path has a parameter, which begins with `;`",
            Self::DotSegment => "the path has a segment `.` or `..`",
            Self::AboveRoot => "the path has more `..` than segments",
        })
    }
}

impl std::error::Error for PathError {}
