//! What is wrong with a request, and what DICT answers. No value of the request is in it.

use std::fmt;

/// A request that is none of DICT's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteError {
    /// Its path is not below the base path.
    OutsideBase,
    /// There is no such path.
    UnknownPath,
    /// The path exists, but not with this method.
    MethodNotAllowed {
        /// The methods it exists with, as the header `Allow` writes them.
        allow: &'static str,
    },
    /// The path is longer than [`PATH_BYTES_MAX`](crate::PATH_BYTES_MAX).
    PathTooLong,
}

impl RouteError {
    /// The status of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::OutsideBase | Self::UnknownPath => 404,
            Self::MethodNotAllowed { .. } => 405,
            Self::PathTooLong => 414,
        }
    }

    /// What DICT calls the error, after `…/error/`.
    pub const fn error_type(self) -> &'static str {
        match self {
            Self::OutsideBase | Self::UnknownPath => "NotFound",
            Self::MethodNotAllowed { .. } | Self::PathTooLong => "BadRequest",
        }
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideBase => f.write_str("the path is not below DICT's base path"),
            Self::UnknownPath => f.write_str("no operation of DICT has this path"),
            Self::MethodNotAllowed { allow } => write!(f, "this path only takes {allow}"),
            Self::PathTooLong => f.write_str("the path is too long"),
        }
    }
}

impl std::error::Error for RouteError {}

/// What is wrong with a request of a known operation. Every one is answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// A header that the operation needs is not there, or is no text.
    MissingHeader(&'static str),
    /// A header has not the form it needs.
    InvalidHeader(&'static str),
    /// A header is there several times, and not always the same.
    AmbiguousHeader(&'static str),
    /// A query parameter that the operation needs is not there.
    MissingParameter(&'static str),
    /// A query parameter has not the form it needs.
    InvalidParameter(&'static str),
    /// A query parameter is there several times, and not always the same.
    AmbiguousParameter(&'static str),
    /// The query is longer than [`QUERY_BYTES_MAX`](crate::QUERY_BYTES_MAX).
    QueryTooLong,
    /// The body names no participant, or was not read.
    MissingParticipant,
    /// The participant in the body, or the certificate's, is no ISPB.
    InvalidParticipant,
    /// The key in the path has the pattern of no key.
    InvalidKey,
    /// The tax number in the path is none.
    InvalidTaxId,
}

impl RequestError {
    /// The status of the answer.
    pub const fn status(self) -> u16 {
        400
    }

    /// What DICT calls the error, after `…/error/`.
    pub const fn error_type(self) -> &'static str {
        "BadRequest"
    }

    /// The problem's detail. For a missing header it is DICT's own wording.
    pub fn detail(self) -> String {
        self.to_string()
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingHeader(name) => write!(f, "Missing request header '{name}'"),
            Self::InvalidHeader(name) => write!(f, "Invalid request header '{name}'"),
            Self::AmbiguousHeader(name) => write!(f, "Request header '{name}' differs from itself"),
            Self::MissingParameter(name) => write!(f, "Missing request parameter '{name}'"),
            Self::InvalidParameter(name) => write!(f, "Invalid request parameter '{name}'"),
            Self::AmbiguousParameter(name) => {
                write!(f, "Request parameter '{name}' differs from itself")
            }
            Self::QueryTooLong => f.write_str("The query is too long"),
            Self::MissingParticipant => f.write_str("Missing participant"),
            Self::InvalidParticipant => f.write_str("Invalid participant"),
            Self::InvalidKey => f.write_str("Invalid key"),
            Self::InvalidTaxId => f.write_str("Invalid tax id number"),
        }
    }
}

impl std::error::Error for RequestError {}
