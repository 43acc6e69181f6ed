//! Errors of a call, distinguished by what the caller can do about them.

use std::time::Duration;

use thiserror::Error;

use crate::wire::{Problem, ReadStatesError, SignatureError};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The client's local bucket is empty. DICT was not called.
    #[error("the client's own limit is reached; the next call is possible in {retry_after:?}")]
    LocalLimit {
        /// When the next call is possible.
        retry_after: Duration,
    },
    /// 429: DICT's bucket is empty.
    #[error("DICT refused the call (429){}", retry_text(*retry_after))]
    RateLimited {
        /// DICT's Retry-After, if the response has one.
        retry_after: Option<Duration>,
    },
    /// 403: the certificate or the participant is not allowed to make the call.
    #[error("DICT does not accept this participant or certificate (403){}", problem_text(.0.as_ref()))]
    Forbidden(Option<Problem>),
    /// 503: DICT is unavailable.
    #[error("DICT is unavailable (503){}", problem_text(problem.as_ref()))]
    Unavailable {
        /// DICT's Retry-After, if the response has one.
        retry_after: Option<Duration>,
        /// The problem document of the response.
        problem: Option<Problem>,
    },
    /// Any other status except 200.
    #[error("DICT responded with status {status}{}", problem_text(problem.as_ref()))]
    Status {
        /// The status.
        status: u16,
        /// The problem document of the response.
        problem: Option<Problem>,
    },
    /// The response cannot be parsed.
    #[error("DICT's response cannot be read: {0}")]
    InvalidResponse(#[source] ReadStatesError),
    /// The response has no valid signature.
    #[error("DICT's response cannot be trusted: {0}")]
    Signature(#[source] SignatureError),
    /// The response is incomplete.
    #[error("DICT's response is incomplete")]
    Truncated,
    /// The response is longer than the parser accepts.
    #[error("DICT's response is too long")]
    TooLong,
    /// There was no response in time.
    #[error("DICT did not respond in time")]
    Timeout,
    /// There was no response: the connection or the TLS handshake failed, or the connection was
    /// closed.
    #[error("DICT cannot be reached: {reason}")]
    Unreachable {
        /// The innermost cause.
        reason: String,
    },
}

impl ClientError {
    /// Returns true if a later call may succeed without a change of configuration.
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

    /// How long to wait before the next call, if that is known.
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

fn retry_text(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| format!("; retry in {wait:?}"))
}

fn problem_text(problem: Option<&Problem>) -> String {
    problem.map_or_else(String::new, |problem| format!(" ({problem})"))
}

/// Why a client could not be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientBuildError {
    /// The base URL is invalid, or neither http nor https.
    #[error(
        "the base URL must be http:// or https://, such as \
         https://dict-h.pi.rsfn.net.br:16522/api/v2/"
    )]
    BaseUrl,
    /// The participant is not an ISPB of 8 characters.
    #[error("the participant must be an ISPB of 8 characters")]
    Participant,
    /// A certificate or key cannot be read.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// What cannot be read.
        reason: String,
    },
    /// The timeout, the number of attempts or a limit is invalid.
    #[error("{advice}")]
    Setting {
        /// What the setting must be.
        advice: &'static str,
    },
}
