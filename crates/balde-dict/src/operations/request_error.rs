//! What is wrong with a request, and what DICT answers. Errors contain no value of the request.

use std::fmt;

/// Why a request is none of DICT's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteError {
    /// The path is not below the base path.
    OutsideBase,
    /// There is no such path.
    UnknownPath,
    /// The path exists, but not with this method.
    MethodNotAllowed {
        /// The methods that the path has, as the header `Allow` lists them.
        allow: &'static str,
    },
    /// The path is longer than [`PATH_BYTES_MAX`](crate::PATH_BYTES_MAX).
    PathTooLong,
}

impl RouteError {
    /// The status of the response.
    pub const fn status(self) -> u16 {
        match self {
            Self::OutsideBase | Self::UnknownPath => 404,
            Self::MethodNotAllowed { .. } => 405,
            Self::PathTooLong => 414,
        }
    }

    /// DICT's error type, which follows `…/error/` in the type URI.
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

/// What is wrong with a request of a known operation. The response to all of these is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// A header that the operation needs is missing or is not text.
    MissingHeader(&'static str),
    /// A header does not have the required format.
    InvalidHeader(&'static str),
    /// A header appears several times with different values.
    AmbiguousHeader(&'static str),
    /// A query parameter that the operation needs is missing.
    MissingParameter(&'static str),
    /// A query parameter does not have the required format.
    InvalidParameter(&'static str),
    /// A query parameter appears several times with different values.
    AmbiguousParameter(&'static str),
    /// The query is longer than [`QUERY_BYTES_MAX`](crate::QUERY_BYTES_MAX).
    QueryTooLong,
    /// The body names no participant, or was not read.
    MissingParticipant,
    /// The participant in the body or in the certificate is not an ISPB.
    InvalidParticipant,
    /// The key in the path matches the pattern of no key type.
    InvalidKey,
    /// The tax number in the path is not a CPF or CNPJ.
    InvalidTaxId,
}

impl RequestError {
    /// The status of the response.
    pub const fn status(self) -> u16 {
        400
    }

    /// DICT's error type, which follows `…/error/` in the type URI.
    pub const fn error_type(self) -> &'static str {
        "BadRequest"
    }

    /// The `detail` of the problem document. For a missing header it is DICT's own wording.
    pub fn detail(self) -> String {
        self.to_string()
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingHeader(name) => write!(f, "Missing request header '{name}'"),
            Self::InvalidHeader(name) => write!(f, "Invalid request header '{name}'"),
            Self::AmbiguousHeader(name) => write!(f, "Request header '{name}' has several values"),
            Self::MissingParameter(name) => write!(f, "Missing request parameter '{name}'"),
            Self::InvalidParameter(name) => write!(f, "Invalid request parameter '{name}'"),
            Self::AmbiguousParameter(name) => {
                write!(f, "Request parameter '{name}' has several values")
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
