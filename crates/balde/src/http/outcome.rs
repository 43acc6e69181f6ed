//! How an admitted request ended.

use std::sync::LazyLock;

use ::http::{HeaderMap, Response, StatusCode};

/// How an admitted request ended. Settlement charges or refunds tokens by it, exactly once per
/// request.
///
/// ```
/// use balde::http::Outcome;
/// use http::StatusCode;
///
/// let outcome = Outcome::from_status(StatusCode::NOT_FOUND);
/// assert_eq!(outcome.status(), Some(StatusCode::NOT_FOUND));
/// assert_eq!(Outcome::Abandoned.status(), None);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The service returned a response.
    #[non_exhaustive]
    Answered {
        /// The status of the response.
        status: StatusCode,
        /// The header fields of the response. A gRPC service that fails without sending a message
        /// puts `grpc-status` here.
        headers: &'a HeaderMap,
    },
    /// The service returned an error instead of a response.
    Failed,
    /// The service panicked.
    Panicked,
    /// The request was dropped before the service answered: the client disconnected, a timeout
    /// expired, or the server shut down.
    Abandoned,
}

impl<'a> Outcome<'a> {
    /// The outcome of a request that was answered with this response.
    pub fn from_response<B>(response: &'a Response<B>) -> Self {
        Self::Answered {
            status: response.status(),
            headers: response.headers(),
        }
    }
}

impl Outcome<'static> {
    /// The outcome of a request that was answered with this status, where no header fields are
    /// known.
    pub fn from_status(status: StatusCode) -> Self {
        static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        Self::Answered {
            status,
            headers: &NO_HEADERS,
        }
    }
}

impl Outcome<'_> {
    /// The status of the response, or `None` if there was no response.
    pub const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Failed | Self::Panicked | Self::Abandoned => None,
        }
    }
}
