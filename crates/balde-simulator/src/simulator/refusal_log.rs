//! Remembers the latest refusals with the bucket that refused, which DICT's 429 does not name.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use balde::telemetry::LogThrottle;
use parking_lot::Mutex;
use serde::Serialize;

/// The most refusals that are remembered. The oldest are dropped first.
const REFUSALS_MAX: usize = 1_000;

/// A request that was refused.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusalRecord {
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

/// Remembers the latest refusals and logs them, at most one line per second.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    latest: Mutex<VecDeque<RefusalRecord>>,
    count: AtomicU64,
    throttle: LogThrottle,
}

impl RefusalLog {
    /// Remembers a refusal and logs it. Logs one line per second, with the number of refusals that were
    /// not logged since the last line.
    pub(crate) fn record(&self, refusal: RefusalRecord, now_ms: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(suppressed) = self.throttle.allow(now_ms.saturating_mul(1_000)) {
            // Without the payer, whose tax number is personal data.
            tracing::info!(
                operation = refusal.operation,
                participant = refusal.participant,
                policy = refusal.policy,
                scope = refusal.scope,
                // The name `level` is taken by the log level.
                bucket_level = refusal.level,
                retry_after_ms = refusal.retry_after_ms,
                suppressed,
                "request refused"
            );
        }
        let mut latest = self.latest.lock();
        if latest.len() == REFUSALS_MAX {
            latest.pop_front();
        }
        latest.push_back(refusal);
    }

    /// Returns the number of refusals, and the latest of them, newest first.
    pub(crate) fn latest(&self, limit: usize) -> (u64, Vec<RefusalRecord>) {
        let latest = self.latest.lock();
        let count = self.count.load(Ordering::Relaxed);
        (count, latest.iter().rev().take(limit).cloned().collect())
    }
}
