//! Where a store connects to, and why it last could not: for messages to operators. Neither contains a
//! user name or a password.

use parking_lot::Mutex;
use redis::RedisError;

use super::error::failure_of;
use super::stream::OpenError;
use crate::failure::StoreFailure;

/// Where the connections of a store go.
#[derive(Debug)]
pub(super) struct Place {
    address: String,
    /// Why the last attempt to connect failed; `None` after one that succeeded.
    cause: Mutex<Option<String>>,
}

impl Place {
    pub(super) const fn new(address: String) -> Self {
        Self {
            address,
            cause: Mutex::new(None),
        }
    }

    /// Host and port, or the path of a socket.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn connected(&self) {
        *self.cause.lock() = None;
    }

    pub(super) fn not_connected(&self, error: &ConnectError) {
        *self.cause.lock() = Some(error.to_string());
    }

    /// Returns true if the last attempt to connect failed.
    pub(super) fn has_cause(&self) -> bool {
        self.cause.lock().is_some()
    }

    /// What is behind a failure: for calls that had no connection, why there is none.
    pub(super) fn cause(&self, failure: StoreFailure) -> String {
        let connecting = matches!(
            failure,
            StoreFailure::Disconnected | StoreFailure::Timeout | StoreFailure::Unauthorized
        );
        let cause = self.cause.lock().clone().filter(|_| connecting);
        cause.unwrap_or_else(|| failure.to_string())
    }
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The stream is open, but the server did not accept who we are, or is not Redis. The server's text is
    /// dropped: it may quote a setting.
    #[error("{}", failure_of(.0))]
    Handshake(#[from] RedisError),
    #[error("the server does not answer within a second")]
    Timeout,
}

impl ConnectError {
    pub(super) fn failure(&self) -> StoreFailure {
        match self {
            Self::Open(error) if error.is_timeout() => StoreFailure::Timeout,
            Self::Open(_) => StoreFailure::Disconnected,
            Self::Handshake(error) => failure_of(error),
            Self::Timeout => StoreFailure::Timeout,
        }
    }
}
