//! What is logged, and how often. Keys and passwords never are.
//!
//! A store that is away, or a stranger who sends bad keys, makes one line at once and then one a
//! second with a count of what it stands for, however many requests there are.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::BadKey;
#[cfg(feature = "redis")]
use crate::failure::{OnFailure, StoreFailure};

const INTERVAL_US: u64 = 1_000_000;

/// Lets one event in a while through, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Storm {
    next_us: AtomicU64,
    held_back: AtomicU64,
}

impl Storm {
    #[cfg(feature = "redis")]
    pub(crate) const fn new() -> Self {
        Self {
            next_us: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// Whether to speak now, and how many events were held back since the last time.
    pub(crate) fn passes(&self, now_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        let after_us = now_us.saturating_add(INTERVAL_US);
        let is_first = now_us >= next_us
            && self
                .next_us
                .compare_exchange(next_us, after_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_first {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        self.held_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

pub(crate) fn bad_key(policy: &str, bad: BadKey, held_back: u64) {
    tracing::warn!(
        event_type = "bad_key",
        decision = "deny",
        policy,
        held_back,
        "refused: {bad}"
    );
}

/// The failure policy decided, because the store could not.
#[cfg(feature = "redis")]
pub(crate) fn fallback(policy: &str, on_failure: OnFailure, failure: StoreFailure, held_back: u64) {
    let rule = match on_failure {
        OnFailure::Deny => "deny",
        OnFailure::Allow => "allow",
        OnFailure::Local { .. } => "local",
    };
    tracing::warn!(
        event_type = "fallback",
        decision = "fallback",
        storage_mode = "redis",
        policy,
        rule,
        reason = failure.as_str(),
        held_back,
        "decided without the store: {failure}"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn breaker_opened(failure: StoreFailure) {
    tracing::error!(
        event_type = "breaker_opened",
        storage_mode = "redis",
        reason = failure.as_str(),
        "the store is not asked until it answers again: {failure}"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn breaker_closed() {
    tracing::info!(
        event_type = "breaker_closed",
        storage_mode = "redis",
        "the store answers again"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn script_reloaded(held_back: u64) {
    tracing::warn!(
        event_type = "script_reloaded",
        storage_mode = "redis",
        held_back,
        "the store had forgotten the script; it was sent again"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_one_line_at_once_and_then_one_a_second_with_a_count() {
        let storm = Storm::default();
        assert_eq!(storm.passes(5), Some(0));
        for now_us in 6..106 {
            assert_eq!(storm.passes(now_us), None);
        }
        assert_eq!(storm.passes(1_000_005), Some(100));
        assert_eq!(storm.passes(1_000_006), None);
        assert_eq!(storm.passes(9_000_000), Some(1));
    }
}
