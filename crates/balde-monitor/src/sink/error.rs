//! Errors of delivery attempts.

use std::fmt;
use std::time::Duration;

/// The longest Retry-After that is respected. An alert that is delayed for longer is of no use.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// The most characters of a response body that are kept for logs and errors.
pub const RESPONSE_CHARS_MAX: usize = 200;

/// Why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    kind: SendErrorKind,
    retry_after: Option<Duration>,
}

/// What went wrong in a delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// The receiver responded with a status that is not a success.
    #[error("the receiver responded with status {status}{}", detail(.body))]
    Status {
        /// The status.
        status: u16,
        /// The response body, shortened and without secrets.
        body: String,
    },
    /// The receiver did not respond in time.
    #[error("the receiver did not respond in time")]
    Timeout,
    /// There was no response: no connection, a TLS error, or the connection was closed.
    #[error("the receiver cannot be reached: {reason}")]
    Unreachable {
        /// The error of the connection.
        reason: String,
    },
    /// The receiver asks to send the message again later, such as a mail server with a reply of 4xx.
    #[error("the receiver cannot accept the message now: {reason}")]
    Deferred {
        /// The receiver's message.
        reason: String,
    },
    /// The receiver rejected the message.
    #[error("the receiver rejected the message: {reason}")]
    Rejected {
        /// The receiver's message.
        reason: String,
    },
}

impl SendError {
    pub(crate) const fn new(kind: SendErrorKind) -> Self {
        Self {
            kind,
            retry_after: None,
        }
    }

    /// Sets the receiver's Retry-After, at most [`RETRY_AFTER_MAX`].
    pub(crate) fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait.map(|wait| wait.min(RETRY_AFTER_MAX));
        self
    }

    /// Returns what went wrong.
    pub const fn kind(&self) -> &SendErrorKind {
        &self.kind
    }

    /// Returns the receiver's Retry-After, if it sent one; at most [`RETRY_AFTER_MAX`].
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns true if a retry may succeed without any change by an operator.
    pub const fn is_transient(&self) -> bool {
        match &self.kind {
            SendErrorKind::Timeout
            | SendErrorKind::Unreachable { .. }
            | SendErrorKind::Deferred { .. } => true,
            SendErrorKind::Status { status, .. } => matches!(*status, 408 | 429 | 500..),
            SendErrorKind::Rejected { .. } => false,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after {
            Some(wait) => write!(f, "{} (Retry-After: {} s)", self.kind, wait.as_secs()),
            None => self.kind.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

fn detail(body: &str) -> String {
    if body.is_empty() {
        String::new()
    } else {
        format!(": {body}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> SendError {
        let body = String::new();
        SendError::new(SendErrorKind::Status { status, body })
    }

    #[test]
    fn transient_statuses_are_recognised() {
        for transient in [408, 429, 500, 502, 503, 504, 599] {
            assert!(status(transient).is_transient(), "{transient}");
        }
        for lasting in [301, 302, 400, 401, 403, 404, 410, 413, 422] {
            assert!(!status(lasting).is_transient(), "{lasting}");
        }
        assert!(SendError::new(SendErrorKind::Timeout).is_transient());
    }

    #[test]
    fn a_retry_after_is_at_most_an_hour() {
        let error = status(429).with_retry_after(Some(Duration::from_secs(86_400)));
        assert_eq!(error.retry_after(), Some(RETRY_AFTER_MAX));
        assert_eq!(
            error.to_string(),
            "the receiver responded with status 429 (Retry-After: 3600 s)"
        );
    }
}
