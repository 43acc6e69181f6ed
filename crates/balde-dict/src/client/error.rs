//! What can go wrong with a call, told apart by what its caller can do about it.

use std::fmt;
use std::time::Duration;

use crate::wire::{Problem, ReadStatesError, SignatureError};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// This client's own bucket is empty: DICT was not asked.
    LocalLimit {
        /// When it may be asked again.
        retry_after: Duration,
    },
    /// 429: DICT's bucket is empty.
    RateLimited {
        /// When DICT says to ask again, if it does.
        retry_after: Option<Duration>,
    },
    /// 403: the certificate or the participant may not ask.
    Forbidden(Option<Problem>),
    /// 503: DICT is not available.
    Unavailable {
        /// When DICT says to ask again, if it does.
        retry_after: Option<Duration>,
        /// What else it says.
        problem: Option<Problem>,
    },
    /// Any other status but 200.
    Status {
        /// Which.
        status: u16,
        /// What else DICT says.
        problem: Option<Problem>,
    },
    /// The answer is not what it should be.
    InvalidResponse(ReadStatesError),
    /// The answer is not signed as it must be.
    Signature(SignatureError),
    /// The answer ends before its end.
    Truncated,
    /// The answer is longer than any answer should be.
    TooLong,
    /// There was no answer in time.
    Timeout,
    /// There was no answer at all: no connection, no agreement about TLS, or a connection that was
    /// closed.
    Unreachable {
        /// What is known about it.
        why: String,
    },
}

impl ClientError {
    /// Whether it can pass by itself. Where not, somebody has to change something.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::LocalLimit { .. }
            | Self::RateLimited { .. }
            | Self::Unavailable { .. }
            | Self::Truncated
            | Self::Timeout
            | Self::Unreachable { .. } => true,
            Self::Status { status, .. } => *status >= 500,
            Self::Forbidden(_) | Self::InvalidResponse(_) | Self::Signature(_) | Self::TooLong => {
                false
            }
        }
    }

    /// How long to wait before asking again, where that was told.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::LocalLimit { retry_after } => Some(*retry_after),
            Self::RateLimited { retry_after } | Self::Unavailable { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |f: &mut fmt::Formatter<'_>, problem: &Option<Problem>| match problem {
            Some(problem) => write!(f, " ({problem})"),
            None => Ok(()),
        };
        match self {
            Self::LocalLimit { retry_after } => {
                write!(
                    f,
                    "one call more would be too many; the next may be made in {retry_after:?}"
                )
            }
            Self::RateLimited {
                retry_after: Some(wait),
            } => {
                write!(f, "DICT refused (429) and may be asked again in {wait:?}")
            }
            Self::RateLimited { retry_after: None } => f.write_str("DICT refused (429)"),
            Self::Forbidden(problem) => {
                f.write_str("DICT does not let this participant or certificate ask (403)")?;
                told(f, problem)
            }
            Self::Unavailable { problem, .. } => {
                f.write_str("DICT is not available (503)")?;
                told(f, problem)
            }
            Self::Status { status, problem } => {
                write!(f, "DICT answered with status {status}")?;
                told(f, problem)
            }
            Self::InvalidResponse(error) => write!(f, "DICT's answer cannot be read: {error}"),
            Self::Signature(error) => write!(f, "DICT's answer cannot be trusted: {error}"),
            Self::Truncated => f.write_str("DICT's answer ends before its end"),
            Self::TooLong => f.write_str("DICT's answer is longer than any answer should be"),
            Self::Timeout => f.write_str("DICT did not answer in time"),
            Self::Unreachable { why } => write!(f, "DICT cannot be reached: {why}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidResponse(error) => Some(error),
            Self::Signature(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a client could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientBuildError {
    /// The base URL is none, or neither http nor https.
    BaseUrl,
    /// The participant is not an ISPB of 8 characters.
    Participant,
    /// A certificate or key cannot be read.
    Tls {
        /// What is wrong.
        why: String,
    },
    /// A timeout, number of attempts or limit that makes no sense.
    Setting {
        /// Which, and what it must be.
        advice: &'static str,
    },
}

impl fmt::Display for ClientBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BaseUrl => f.write_str(
                "the base URL must be http:// or https://, as https://dict-h.pi.rsfn.net.br:16522/api/v2/",
            ),
            Self::Participant => f.write_str("the participant must be an ISPB of 8 characters"),
            Self::Tls { why } => write!(f, "TLS cannot be set up: {why}"),
            Self::Setting { advice } => f.write_str(advice),
        }
    }
}

impl std::error::Error for ClientBuildError {}
