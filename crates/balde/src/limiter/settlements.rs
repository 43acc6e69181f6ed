//! How many settlements of a limiter's holds wait for Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the settlements in progress. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settlements(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    in_progress: AtomicUsize,
    all_ended: Notify,
}

impl Settlements {
    /// Counts one more settlement until the guard is dropped; `None` if there are `max` already.
    pub(crate) fn begin(&self, max: usize) -> Option<SettlementGuard> {
        let before = self.0.in_progress.fetch_add(1, Ordering::AcqRel);
        // The guard counts down again, also where this is one too many.
        let guard = SettlementGuard(self.clone());
        (before < max).then_some(guard)
    }

    /// Waits until no settlement is in progress.
    pub(crate) async fn wait(&self) {
        loop {
            let ended = self.0.all_ended.notified();
            if self.0.in_progress.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// One settlement in progress. It ends when this is dropped, also by a runtime that shuts down.
#[derive(Debug)]
pub(crate) struct SettlementGuard(Settlements);

impl Drop for SettlementGuard {
    fn drop(&mut self) {
        if self.0.0.in_progress.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.0.all_ended.notify_waiters();
        }
    }
}
