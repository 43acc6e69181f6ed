//! What came of an attempt that did not succeed.

use std::fmt;
use std::time::Duration;

/// The longest wait that a receiver can ask for. An alert that is put off for longer is of no use,
/// and a receiver that means it will say so again.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// The most of a receiver's answer that is shown.
pub const ANSWER_CHARS_MAX: usize = 200;

/// Why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    reason: SendErrorKind,
    retry_after: Option<Duration>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// The receiver answered, and did not accept.
    Status {
        /// With which status.
        status: u16,
        /// What it said about it, shortened and without secrets.
        answer: String,
    },
    /// There was no answer in time.
    Timeout,
    /// There was no answer: no connection, no agreement about TLS, or a connection that was closed.
    Unreachable {
        /// What is known about it.
        why: String,
    },
    /// The receiver understood and refuses.
    Rejected {
        /// What it says.
        why: String,
    },
}

impl SendError {
    pub(crate) const fn new(reason: SendErrorKind) -> Self {
        Self {
            reason,
            retry_after: None,
        }
    }

    pub(crate) fn retry_after_at_most(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait.map(|wait| wait.min(RETRY_AFTER_MAX));
        self
    }

    /// What went wrong.
    pub const fn reason(&self) -> &SendErrorKind {
        &self.reason
    }

    /// How long the receiver wants to be left alone, if it said so; never more than
    /// [`RETRY_AFTER_MAX`].
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether it can pass by itself. Where not, somebody has to change something.
    pub const fn is_transient(&self) -> bool {
        match &self.reason {
            SendErrorKind::Timeout | SendErrorKind::Unreachable { .. } => true,
            SendErrorKind::Status { status, .. } => matches!(*status, 408 | 429 | 500..),
            SendErrorKind::Rejected { .. } => false,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            SendErrorKind::Status { status, answer } if answer.is_empty() => {
                write!(f, "the receiver answered with status {status}")?;
            }
            SendErrorKind::Status { status, answer } => {
                write!(f, "the receiver answered with status {status}: {answer}")?;
            }
            SendErrorKind::Timeout => f.write_str("the receiver did not answer in time")?,
            SendErrorKind::Unreachable { why } => {
                write!(f, "the receiver cannot be reached: {why}")?
            }
            SendErrorKind::Rejected { why } => write!(f, "the receiver refuses: {why}")?,
        }
        match self.retry_after {
            Some(wait) => write!(f, " (asks to be left alone for {} s)", wait.as_secs()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SendError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> SendError {
        let answer = String::new();
        SendError::new(SendErrorKind::Status { status, answer })
    }

    #[test]
    fn what_can_pass_by_itself_is_told_from_what_cannot() {
        for passing in [408, 429, 500, 502, 503, 504, 599] {
            assert!(status(passing).is_transient(), "{passing}");
        }
        for lasting in [301, 302, 400, 401, 403, 404, 410, 413, 422] {
            assert!(!status(lasting).is_transient(), "{lasting}");
        }
        assert!(SendError::new(SendErrorKind::Timeout).is_transient());
    }

    #[test]
    fn nobody_is_left_alone_for_longer_than_an_hour() {
        let failure = status(429).retry_after_at_most(Some(Duration::from_secs(86_400)));
        assert_eq!(failure.retry_after(), Some(RETRY_AFTER_MAX));
        assert_eq!(
            failure.to_string(),
            "the receiver answered with status 429 (asks to be left alone for 3600 s)"
        );
    }
}
