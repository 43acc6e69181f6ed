//! The last refusals, with the bucket that refused: DICT's own answer does not tell.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

/// The refusals that are remembered; the oldest go first.
pub const REFUSALS_MAX: usize = 1_000;

/// One request that was refused.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Refusal {
    pub(crate) at: String,
    pub(crate) operation: &'static str,
    pub(crate) participant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payer: Option<String>,
    pub(crate) policy: String,
    pub(crate) scope: String,
    pub(crate) level: i64,
    pub(crate) retry_after_ms: Option<u64>,
}

/// The last refusals.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    last: Mutex<VecDeque<Refusal>>,
    count: AtomicU64,
    /// The second in which a line was last logged, and the refusals since that were not.
    logged_at: AtomicU64,
    held_back: AtomicU64,
}

impl RefusalLog {
    /// Remembers a refusal, and logs it. Of a storm, one line a second says how many were not told.
    pub(crate) fn note(&self, refusal: Refusal, now_ms: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let second = now_ms / 1_000 + 1;
        if self.logged_at.swap(second, Ordering::Relaxed) == second {
            self.held_back.fetch_add(1, Ordering::Relaxed);
        } else {
            let held_back = self.held_back.swap(0, Ordering::Relaxed);
            // Without the payer: it is somebody's tax number.
            tracing::info!(
                operation = refusal.operation,
                participant = refusal.participant,
                policy = refusal.policy,
                scope = refusal.scope,
                // `level` is the line's own.
                bucket_level = refusal.level,
                retry_after_ms = refusal.retry_after_ms,
                held_back,
                "refused"
            );
        }
        let mut last = self.last.lock();
        if last.len() == REFUSALS_MAX {
            last.pop_front();
        }
        last.push_back(refusal);
    }

    /// How many there were, and the last of them, the latest first.
    pub(crate) fn last(&self, most: usize) -> (u64, Vec<Refusal>) {
        let last = self.last.lock();
        let count = self.count.load(Ordering::Relaxed);
        (count, last.iter().rev().take(most).cloned().collect())
    }
}
