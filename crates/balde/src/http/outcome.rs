//! How a request ended.

use ::http::{HeaderMap, StatusCode};

/// How an admitted request ended, for [`LimitRule::price`](super::LimitRule::price). Every admitted request
/// ends in one of these, once.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The service answered.
    #[non_exhaustive]
    Answered {
        /// The answer's status.
        status: StatusCode,
        /// The answer's header fields; gRPC tells its own status there when it has nothing else to
        /// say.
        headers: &'a HeaderMap,
    },
    /// The service failed without an answer.
    Failed,
    /// The service panicked.
    Panicked,
    /// Nobody waited for the answer any longer: the client is gone, a timeout gave up, or the
    /// server was shut down.
    Abandoned,
}

impl Outcome<'_> {
    /// The status, where the service answered.
    pub const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Failed | Self::Panicked | Self::Abandoned => None,
        }
    }
}
