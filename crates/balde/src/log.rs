//! What is logged, and how often. Keys only as salted hashes, passwords and addresses never.
//!
//! Refusals, a store that is away, a stranger who sends bad keys: each makes one line at once and
//! then one a second with a count of what it stands for, however many requests there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::Level;

use crate::decision::Decision;
use crate::error::BadKey;
#[cfg(feature = "redis")]
use crate::failure::{OnFailure, StoreFailure};
use crate::telemetry::{KeyHash, retry_after_ms, strategy};

const INTERVAL_US: u64 = 1_000_000;

/// Lets one event in a while through, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Storm {
    next_us: AtomicU64,
    held_back: AtomicU64,
}

impl Storm {
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

/// What a line about a decision says.
pub(crate) struct About<'a> {
    pub(crate) policy: &'a str,
    pub(crate) storage_mode: &'static str,
    pub(crate) decision: &'a Decision,
    pub(crate) took: Duration,
    pub(crate) key_hash: Option<KeyHash>,
    pub(crate) held_back: u64,
}

/// One line about a decision, with the fields that all such lines have.
macro_rules! line {
    ($level:ident, $about:expr, $event_type:literal, $decision:literal, $($rest:tt)+) => {{
        let about: &About<'_> = $about;
        tracing::$level!(
            target: "balde",
            event_type = $event_type,
            decision = $decision,
            strategy = strategy(about.decision.limit()),
            storage_mode = about.storage_mode,
            policy = about.policy,
            latency_ms = about.took.as_secs_f64() * 1e3,
            retry_after_ms = retry_after_ms(about.decision),
            remaining = about.decision.remaining(),
            key_hash = about.key_hash.map(display),
            held_back = about.held_back,
            $($rest)+
        );
    }};
}

/// Whether anybody listens at the level of warnings, to whatever.
#[inline]
pub(crate) fn is_heard() -> bool {
    tracing::level_enabled!(Level::WARN)
}

/// Whether anybody listens to lines about refusals.
pub(crate) fn informs() -> bool {
    tracing::enabled!(target: "balde", Level::INFO)
}

/// Whether anybody listens to warnings.
pub(crate) fn warns() -> bool {
    tracing::enabled!(target: "balde", Level::WARN)
}

/// A bucket had too few tokens.
pub(crate) fn denied(about: &About<'_>) {
    let reason = crate::telemetry::reason(about.decision);
    line!(
        info,
        about,
        "denied",
        "deny",
        reason,
        "refused: the bucket has too few tokens"
    );
}

pub(crate) fn bad_key(about: &About<'_>, bad: BadKey) {
    line!(
        warn,
        about,
        "bad_key",
        "deny",
        reason = "bad_key",
        "refused: {bad}"
    );
}

/// The failure policy decided, because the store could not.
#[cfg(feature = "redis")]
pub(crate) fn fallback(about: &About<'_>, on_failure: Option<OnFailure>, failure: StoreFailure) {
    let rule = on_failure.map(|on_failure| match on_failure {
        OnFailure::Deny => "deny",
        OnFailure::Allow => "allow",
        OnFailure::Local { .. } => "local",
    });
    line!(
        warn,
        about,
        "fallback",
        "fallback",
        rule,
        is_allowed = about.decision.is_allowed(),
        reason = failure.as_str(),
        "decided without the store: {failure}"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn breaker_opened(failure: StoreFailure) {
    tracing::error!(
        target: "balde",
        event_type = "breaker_opened",
        storage_mode = "redis",
        reason = failure.as_str(),
        "the store is not asked until it answers again: {failure}"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn breaker_closed() {
    tracing::info!(
        target: "balde",
        event_type = "breaker_closed",
        storage_mode = "redis",
        "the store answers again"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn script_reloaded(held_back: u64) {
    tracing::warn!(
        target: "balde",
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
