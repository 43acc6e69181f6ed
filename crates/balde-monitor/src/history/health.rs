//! Whether the database accepts writes, as last seen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::error::HistoryError;

/// How long a page waits for the database before it shows what is in memory: while the database is believed
/// to work, and while it fails. A page that waits twice still answers within a fifth of a second.
const PATIENCE: Duration = Duration::from_millis(90);
const PATIENCE_WHILE_FAILING: Duration = Duration::from_millis(30);

/// How often a page that waits for a long query looks whether the database still answers.
const PING_EVERY: Duration = Duration::from_millis(500);

/// Why and since when the database accepts no writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When the first write failed.
    pub since_us: u64,
    /// The error of the newest attempt.
    pub cause: String,
}

/// Whether the database accepts writes, as last seen. Clones share the state.
///
/// A failed write begins an outage; the monitor's storage check ends it when everything that was kept
/// in memory has been stored.
#[derive(Clone)]
pub struct Health {
    failure: watch::Sender<Option<Failure>>,
    suspicion: Arc<Notify>,
}

impl Health {
    pub(super) fn new() -> Self {
        Self {
            failure: watch::Sender::new(None),
            suspicion: Arc::default(),
        }
    }

    /// Returns the current failure; `None` while the database accepts writes.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// How long a page waits for the database before it shows what is in memory: hardly, once the
    /// database is known to fail.
    pub(crate) fn patience(&self) -> Duration {
        if self.failure.borrow().is_some() {
            PATIENCE_WHILE_FAILING
        } else {
            PATIENCE
        }
    }

    /// Records that a write failed.
    pub(crate) fn fail(&self, now_us: u64, cause: &str) {
        self.failure.send_modify(|failure| match failure {
            Some(failure) => cause.clone_into(&mut failure.cause),
            None => {
                *failure = Some(Failure {
                    since_us: now_us,
                    cause: cause.to_owned(),
                });
            }
        });
        self.suspect();
    }

    /// Records that writes succeed again.
    pub(crate) fn restore(&self) {
        self.failure.send_replace(None);
    }

    /// Returns when the database does not answer: soon if that is known, else once a ping takes too long.
    /// A query that merely takes long is no reason.
    pub(crate) async fn unresponsive<F: Future<Output = Result<(), HistoryError>>>(
        &self,
        ping: impl Fn() -> F,
    ) {
        loop {
            if self.failure.borrow().is_some() {
                tokio::time::sleep(PATIENCE_WHILE_FAILING).await;
                return;
            }
            let is_answered = tokio::time::timeout(PATIENCE, ping()).await;
            if !matches!(is_answered, Ok(Ok(()))) {
                return self.suspect();
            }
            tokio::time::sleep(PING_EVERY).await;
        }
    }

    /// Asks the storage check to look now rather than at its next time.
    pub(crate) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Waits until somebody suspects a fault.
    pub(crate) async fn suspected(&self) {
        self.suspicion.notified().await;
    }

    /// Waits until a write has failed.
    pub(crate) async fn failed(&self) -> Failure {
        let mut changes = self.failure.subscribe();
        loop {
            if let Some(failure) = changes.borrow_and_update().clone() {
                return failure;
            }
            // The sender is a field of `self`, so the channel cannot be closed here.
            let _never_closed = changes.changed().await;
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure().fmt(f)
    }
}
