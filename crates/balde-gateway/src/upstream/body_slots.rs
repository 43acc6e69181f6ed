//! Slow clients must not occupy all connections to an upstream: bodies that have not arrived
//! completely may hold half of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::body::{BodyError, Streaming};

/// How much of a body is read before its request is sent, while too many others are incomplete.
const AHEAD_BYTES_MAX: u64 = 16 * 1_024;

/// Limits the requests to one upstream whose bodies are incomplete.
#[derive(Debug)]
pub(crate) struct BodySlots {
    slots: Arc<Semaphore>,
    /// How long a body waits that is too long to be read ahead.
    timeout: Duration,
}

/// Why a request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReady {
    /// The body could not be read.
    Body,
    /// Too many bodies are incomplete.
    TooMany,
}

impl From<BodyError> for NotReady {
    fn from(_: BodyError) -> Self {
        Self::Body
    }
}

impl BodySlots {
    pub(crate) fn new(connections_max: usize, timeout: Duration) -> Self {
        Self {
            slots: Arc::new(Semaphore::new((connections_max / 2).max(1))),
            timeout,
        }
    }

    /// Waits until a request with this body may be sent: at once while there is a slot. Otherwise the
    /// body is read ahead until it is complete, so that a client that hangs hangs here.
    pub(crate) async fn ready(&self, body: &mut Streaming) -> Result<(), NotReady> {
        if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            body.occupy(slot);
            return Ok(());
        }
        let mut slot = std::pin::pin!(Arc::clone(&self.slots).acquire_owned());
        let mut ahead = Some(0);
        while ahead.is_some_and(|bytes| bytes < AHEAD_BYTES_MAX) {
            tokio::select! {
                biased;
                read = body.read_ahead() => ahead = read?,
                Ok(slot) = &mut slot => {
                    body.occupy(slot);
                    return Ok(());
                }
            }
        }
        if ahead.is_none() {
            return Ok(());
        }
        match tokio::time::timeout(self.timeout, slot).await {
            Ok(Ok(slot)) => {
                body.occupy(slot);
                Ok(())
            }
            _ => Err(NotReady::TooMany),
        }
    }
}
