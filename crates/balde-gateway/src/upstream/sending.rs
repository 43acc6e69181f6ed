//! What is known of a request on its way to an upstream.

use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of a request on its way, also if it is given up before there is a response.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    is_written: AtomicBool,
    is_retried: AtomicBool,
}

impl Sending {
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
