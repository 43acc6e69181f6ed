//! What is known of a request on its way to an upstream.

use std::sync::atomic::{AtomicBool, Ordering};

use super::fair_line::ClientId;
use crate::body::FaultCell;

/// Who sends a request, and what is known of it on its way, also if it is given up before there is a response.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    is_written: AtomicBool,
    is_retried: AtomicBool,
    /// The client's connection. By default the gateway itself.
    client: ClientId,
    /// Knows whether the request's body has been read completely.
    body: FaultCell,
}

impl Sending {
    pub(crate) fn new(client: ClientId, body: FaultCell) -> Self {
        Self {
            client,
            body,
            ..Self::default()
        }
    }

    pub(super) fn client(&self) -> ClientId {
        self.client
    }

    /// Whether the client has sent the whole request.
    pub(super) fn is_complete(&self) -> bool {
        self.body.is_complete()
    }

    /// Whether any byte may have reached the upstream, by any attempt.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// Whether the request was sent on a second connection.
    pub(crate) fn is_retried(&self) -> bool {
        self.is_retried.load(Ordering::Relaxed)
    }

    pub(super) fn written(&self) {
        self.is_written.store(true, Ordering::Relaxed);
    }

    /// Takes back that the request was written, which was assumed.
    pub(super) fn not_written(&self) {
        self.is_written.store(false, Ordering::Relaxed);
    }

    pub(super) fn retried(&self) {
        self.is_retried.store(true, Ordering::Relaxed);
    }
}
