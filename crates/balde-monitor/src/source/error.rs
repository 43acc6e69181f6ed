//! Why there is no answer, told apart by what the monitor does about it.

use std::fmt;
use std::time::Duration;

use balde_dict::client::ClientError;

use crate::sample::SampleError;

/// Why a participant's buckets are not known.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceError {
    /// What DICT did instead of answering.
    Dict(ClientError),
    /// The gateway answered with another status than 200.
    Status {
        /// Which.
        status: u16,
        /// When it says to ask again, if it does.
        retry_after: Option<Duration>,
    },
    /// The gateway's answer is not what it should be.
    InvalidResponse {
        /// Why.
        why: String,
    },
    /// The gateway's answer ends before its end.
    Truncated,
    /// The gateway did not answer.
    Unreachable {
        /// What is known about it.
        why: String,
    },
    /// The answer can be read and cannot be true.
    InvalidSample(SampleError),
}

impl SourceError {
    /// A short name for counters and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Dict(error) => match error {
                ClientError::OwnLimit { .. } => "own_limit",
                ClientError::RateLimited { .. } => "rate_limited",
                ClientError::Forbidden(_) => "forbidden",
                ClientError::Unavailable { .. } => "unavailable",
                ClientError::Status { .. } => "status",
                ClientError::Garbage(_) => "invalid_response",
                ClientError::Signature(_) => "signature",
                ClientError::Truncated => "truncated",
                ClientError::TooLong => "too_long",
                ClientError::Timeout => "timeout",
                ClientError::Unreachable { .. } => "unreachable",
                _ => "other",
            },
            Self::Status { .. } => "status",
            Self::InvalidResponse { .. } => "invalid_response",
            Self::Truncated => "truncated",
            Self::Unreachable { .. } => "unreachable",
            Self::InvalidSample(_) => "invalid_sample",
        }
    }

    /// How long to wait before asking again, where that was told.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Dict(error) => error.retry_after(),
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dict(error) => error.fmt(f),
            Self::Status { status, .. } => write!(f, "the gateway answered with status {status}"),
            Self::InvalidResponse { why } => {
                write!(f, "the gateway's answer cannot be read: {why}")
            }
            Self::Truncated => f.write_str("the gateway's answer ends before its end"),
            Self::Unreachable { why } => write!(f, "the gateway cannot be reached: {why}"),
            Self::InvalidSample(error) => write!(f, "the answer cannot be true: {error}"),
        }
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Dict(error) => Some(error),
            Self::InvalidSample(error) => Some(error),
            _ => None,
        }
    }
}
