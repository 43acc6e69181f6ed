//! What a worker writes to the log: storms in one line.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::history::{HistoryError, OutboxMessage};
use crate::sink::SendError;

/// The shortest time between two lines about the same trouble of the same sink.
const BETWEEN_LINES_US: u64 = 10_000_000;

/// Which troubles were told.
#[derive(Debug, Default)]
pub(super) struct DeliveryLog {
    failures: LogThrottle,
    refusals: LogThrottle,
    database: LogThrottle,
    is_away: AtomicBool,
}

impl DeliveryLog {
    pub(super) fn arrived(&self, sink: &str) {
        if self.is_away.swap(false, Ordering::Relaxed) {
            tracing::info!(
                target: "balde_monitor",
                event_type = "sink_back",
                sink,
                "alerts arrive again"
            );
        }
    }

    pub(super) fn failed(
        &self,
        sink: &str,
        message: &OutboxMessage,
        failure: &SendError,
        now_us: u64,
        next_us: u64,
    ) {
        self.is_away.store(true, Ordering::Relaxed);
        let retry_after_ms = next_us.saturating_sub(now_us).div_ceil(1_000);
        let (key, attempts) = (
            message.event.key.as_str(),
            message.attempts.saturating_add(1),
        );
        if failure.is_transient() {
            if let Some(held_back) = self.failures.held_back(now_us) {
                tracing::warn!(
                    target: "balde_monitor",
                    event_type = "delivery_failed",
                    sink,
                    key,
                    attempts,
                    retry_after_ms,
                    held_back,
                    "an alert did not arrive and will be tried again: {failure}"
                );
            }
        } else if let Some(held_back) = self.refusals.held_back(now_us) {
            tracing::error!(
                target: "balde_monitor",
                event_type = "delivery_rejected",
                sink,
                key,
                attempts,
                retry_after_ms,
                held_back,
                "an alert was refused, which does not pass by itself; look at the sink's settings: \
                 {failure}"
            );
        }
    }

    pub(super) fn database(&self, sink: &str, error: &HistoryError, now_us: u64) {
        if let Some(held_back) = self.database.held_back(now_us) {
            tracing::error!(
                target: "balde_monitor",
                event_type = "outbox_unavailable",
                sink,
                held_back,
                "the outbox cannot be read or written, so alerts wait: {error}"
            );
        }
    }

    pub(super) fn cut_short(sink: &str, messages: usize) {
        tracing::warn!(
            target: "balde_monitor",
            event_type = "delivery_cut_short",
            sink,
            messages,
            "the shutdown did not wait for some alerts; they stay in the outbox"
        );
    }
}

/// Events of one kind, of which the first is told at once and the rest now and then.
#[derive(Debug, Default)]
struct LogThrottle {
    next_us: AtomicU64,
    held_back: AtomicU64,
}

impl LogThrottle {
    /// How many were not told since the last that was; nothing if this one is not told either.
    fn held_back(&self, now_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        let after_us = now_us.saturating_add(BETWEEN_LINES_US);
        let is_told = now_us >= next_us
            && self
                .next_us
                .compare_exchange(next_us, after_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_told {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        self.held_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_one_line_at_once_and_then_now_and_then() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.held_back(5), Some(0));
        assert_eq!(throttle.held_back(6), None);
        assert_eq!(throttle.held_back(BETWEEN_LINES_US), None);
        assert_eq!(throttle.held_back(BETWEEN_LINES_US + 5), Some(2));
        assert_eq!(throttle.held_back(BETWEEN_LINES_US + 6), None);
    }
}
