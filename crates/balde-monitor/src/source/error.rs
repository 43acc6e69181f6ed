//! Errors of a source, distinguished by how the monitor reacts to them.

use std::time::Duration;

use balde_dict::client::ClientError;

use crate::sample::SampleError;

/// Why the bucket states of a participant could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The request to DICT failed.
    #[error(transparent)]
    Dict(ClientError),
    /// The gateway answered with a status other than 200.
    #[error("the gateway answered with status {status}{}", status_advice(*status))]
    Status {
        /// The status.
        status: u16,
        /// The value of Retry-After, if there was one.
        retry_after: Option<Duration>,
    },
    /// The gateway has no buckets of the participant (404): it does not know the participant, or the URL
    /// is not that of its state endpoint.
    #[error("the gateway has no buckets of this participant (404){}", detail_text(detail.as_deref()))]
    UnknownParticipant {
        /// What the gateway says about it.
        detail: Option<String>,
    },
    /// The gateway's response is not valid.
    #[error("the gateway's response cannot be read: {why}")]
    InvalidResponse {
        /// What is wrong with it.
        why: String,
    },
    /// The connection to the gateway was closed in the middle of the response.
    #[error("the gateway's response is truncated")]
    Truncated,
    /// The gateway cannot be reached, or did not respond in time.
    #[error("the gateway cannot be reached: {why}")]
    Unreachable {
        /// The cause.
        why: String,
    },
    /// The response can be read, but its values are impossible.
    #[error("the response contains impossible values: {0}")]
    InvalidSample(#[source] SampleError),
}

impl SourceError {
    /// A short name for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Dict(error) => match error {
                ClientError::LocalLimit { .. } => "own_limit",
                ClientError::RateLimited { .. } => "rate_limited",
                ClientError::Forbidden(_) => "forbidden",
                ClientError::Unavailable { .. } => "unavailable",
                ClientError::Status { status: 404, .. } => "unknown_participant",
                ClientError::Status { .. } => "status",
                ClientError::InvalidResponse(_) => "invalid_response",
                ClientError::Signature(_) => "signature",
                ClientError::Truncated => "truncated",
                ClientError::TooLong => "too_long",
                ClientError::Timeout => "timeout",
                ClientError::Unreachable { .. } => "unreachable",
                _ => "other",
            },
            Self::Status { .. } => "status",
            Self::UnknownParticipant { .. } => "unknown_participant",
            Self::InvalidResponse { .. } => "invalid_response",
            Self::Truncated => "truncated",
            Self::Unreachable { .. } => "unreachable",
            Self::InvalidSample(_) => "invalid_sample",
        }
    }

    /// Returns true if the source refused the request, and will refuse it until a configuration changes:
    /// the participant, the address, the token or the certificate is wrong.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Dict(ClientError::Forbidden(_)) | Self::UnknownParticipant { .. } => true,
            Self::Dict(ClientError::Status { status, .. }) | Self::Status { status, .. } => {
                (400..500).contains(status) && !matches!(status, 408 | 429)
            }
            Self::InvalidSample(error) => *error == SampleError::NoPolicies,
            _ => false,
        }
    }

    /// The time to wait before the next request, if the server specified one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Dict(error) => error.retry_after(),
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn detail_text(detail: Option<&str>) -> String {
    detail.map_or_else(String::new, |detail| format!(": {detail}"))
}

fn status_advice(status: u16) -> &'static str {
    match status {
        401 | 403 => "; check the token (`token_env` or `token_file`)",
        _ => "",
    }
}
