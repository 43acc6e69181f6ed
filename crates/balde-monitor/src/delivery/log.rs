//! The log lines of deliveries, throttled per sink.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use balde::telemetry::LogThrottle;

use crate::alert::OutboxMessage;
use crate::history::HistoryError;
use crate::sink::SendError;

/// Logs what happens to the messages of one sink.
#[derive(Debug)]
pub(super) struct DeliveryLog {
    failures: LogThrottle,
    rejections: LogThrottle,
    database: LogThrottle,
    is_failing: AtomicBool,
    /// Whether the last failure was transient.
    is_down: AtomicBool,
}

/// The shortest time between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(10);

impl Default for DeliveryLog {
    fn default() -> Self {
        let throttle = || LogThrottle::every(INTERVAL);
        Self {
            failures: throttle(),
            rejections: throttle(),
            database: throttle(),
            is_failing: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
        }
    }
}

impl DeliveryLog {
    /// Returns true if the sink was unavailable before.
    pub(super) fn delivered(&self, sink: &str) -> bool {
        let was_down = self.is_down.swap(false, Ordering::Relaxed);
        if self.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!(
                target: "balde_monitor",
                event_type = "sink_recovered",
                sink,
                "the sink delivers alerts again"
            );
        }
        was_down
    }

    pub(super) fn failed(
        &self,
        sink: &str,
        message: &OutboxMessage,
        error: &SendError,
        now_us: u64,
        next_us: u64,
    ) {
        self.is_failing.store(true, Ordering::Relaxed);
        let retry_after_ms = next_us.saturating_sub(now_us).div_ceil(1_000);
        let key = message.event.key.as_str();
        let attempts = message.attempts.saturating_add(1);
        if error.is_transient() {
            self.is_down.store(true, Ordering::Relaxed);
            if let Some(held_back) = self.failures.allow(now_us) {
                tracing::warn!(
                    target: "balde_monitor",
                    event_type = "delivery_failed",
                    sink,
                    key,
                    attempts,
                    retry_after_ms,
                    held_back,
                    "an alert was not delivered and will be retried: {error}"
                );
            }
        } else if let Some(held_back) = self.rejections.allow(now_us) {
            tracing::error!(
                target: "balde_monitor",
                event_type = "delivery_rejected",
                sink,
                key,
                attempts,
                retry_after_ms,
                held_back,
                "the receiver rejected an alert, and retries will not help; check the sink's \
                 settings: {error}"
            );
        }
    }

    pub(super) fn database_failed(&self, sink: &str, error: &HistoryError, now_us: u64) {
        if let Some(held_back) = self.database.allow(now_us) {
            tracing::error!(
                target: "balde_monitor",
                event_type = "outbox_unavailable",
                sink,
                held_back,
                "the outbox cannot be read or written, so alerts are delayed: {error}"
            );
        }
    }

    pub(super) fn dropped(sink: &str, message: &OutboxMessage) {
        tracing::error!(
            target: "balde_monitor",
            event_type = "delivery_dropped",
            sink,
            key = message.event.key,
            "too many alerts wait in memory: the oldest was dropped; it is sent when the database is \
             back"
        );
    }

    pub(super) fn lost(sink: &str, messages: usize) {
        tracing::error!(
            target: "balde_monitor",
            event_type = "deliveries_lost",
            sink,
            messages,
            "the monitor stops while its database accepts no writes: alerts in memory that were not \
             delivered are lost"
        );
    }

    pub(super) fn interrupted(sink: &str, messages: usize) {
        tracing::warn!(
            target: "balde_monitor",
            event_type = "delivery_interrupted",
            sink,
            messages,
            "the shutdown timed out before some alerts were delivered; they stay in the outbox"
        );
    }
}
