//! What a limiter reports of its decisions: counts, throttled log lines, spans. It decides nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use balde_core::{Command, Limit};
use tracing::Span;

use super::denials::{DenialQueue, Denials};
use super::key_hash::{KeyHash, KeyHasher};
use super::log::{self, DecisionEvent};
use super::meter::Meter;
use super::{StorageMode, span};
use crate::clock::Stopwatch;
use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::failure::{OnFailure, StoreFailure};
use crate::key::BadKey;
use crate::log_throttle::LogThrottle;

/// Reports the decisions of one limiter. Without metrics and without a subscriber it costs a check
/// one load and two branches.
pub(crate) struct Observer {
    policy: String,
    meter: Option<Meter>,
    mode: StorageMode,
    hasher: KeyHasher,
    denials: LogThrottle,
    /// Whether every denial is logged, through the queue.
    is_every_logged: AtomicBool,
    queue: OnceLock<Arc<DenialQueue>>,
    bad_keys: LogThrottle,
    #[cfg(feature = "redis")]
    fallbacks: [LogThrottle; StoreFailure::ALL.len()],
    #[cfg(feature = "redis")]
    on_failure: Option<OnFailure>,
}

impl Observer {
    pub(crate) fn new(
        policy: String,
        mode: StorageMode,
        hasher: KeyHasher,
        meter: Option<Meter>,
    ) -> Self {
        Self {
            policy,
            meter,
            mode,
            hasher,
            denials: LogThrottle::new(),
            is_every_logged: AtomicBool::new(false),
            queue: OnceLock::new(),
            bad_keys: LogThrottle::new(),
            #[cfg(feature = "redis")]
            fallbacks: Default::default(),
            #[cfg(feature = "redis")]
            on_failure: None,
        }
    }

    pub(crate) fn set_denials(&self, denials: Denials) {
        let is_every = denials == Denials::Every;
        if is_every {
            self.queue.get_or_init(|| {
                let hasher = self.hasher.clone();
                let queue = DenialQueue::new(&self.policy, self.mode.as_str(), hasher);
                #[cfg(feature = "redis")]
                let queue = queue.with_on_failure(self.on_failure);
                queue.start()
            });
        }
        self.is_every_logged.store(is_every, Ordering::Release);
    }

    /// The queue of denials to log, if every denial is logged.
    fn queue(&self) -> Option<&Arc<DenialQueue>> {
        let queue = self.queue.get();
        queue.filter(|_| self.is_every_logged.load(Ordering::Acquire))
    }

    /// Denials that were not logged, because the log did not keep up.
    #[cfg(feature = "prometheus")]
    pub(crate) fn denials_dropped(&self) -> u64 {
        self.queue.get().map_or(0, |queue| queue.dropped())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn with_on_failure(self, on_failure: OnFailure) -> Self {
        Self {
            on_failure: Some(on_failure),
            ..self
        }
    }

    /// The name of the limiter.
    pub(crate) fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns whether there are neither metrics nor a subscriber to spans.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.meter.is_none() && !span::is_on()
    }

    pub(crate) fn mode(&self) -> StorageMode {
        self.mode
    }

    /// The hash of a key that can be used. Other keys may be of any length and are not hashed.
    pub(super) fn hash(&self, key: &[u8]) -> Option<KeyHash> {
        let key = BadKey::check(key).ok()?;
        Some(self.hasher.hash(key))
    }

    /// Starts timing, if this check is one of those that are timed.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Stopwatch> {
        self.meter.as_ref().and_then(|_| Meter::begin(self.mode))
    }

    /// Starts timing, if there are metrics or a subscriber at all.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn begin_if_on(&self) -> Option<Stopwatch> {
        let is_on = self.meter.is_some() || log::is_on();
        is_on.then(Stopwatch::start)
    }

    /// Counts a decision, and its duration where that was timed.
    #[inline]
    pub(crate) fn count(&self, decision: &Decision, stopwatch: Option<Stopwatch>) {
        if let Some(meter) = &self.meter {
            meter.count_decision(decision);
            if let Some(stopwatch) = stopwatch {
                meter.observe_latency(self.mode, stopwatch.elapsed());
            }
        }
    }

    /// Counts the duration of a decision that several limiters made together.
    pub(crate) fn count_latency(&self, took: Duration) {
        if let Some(meter) = &self.meter {
            meter.observe_latency(self.mode, took);
        }
    }

    /// Counts a request that was refused because it has no usable key.
    pub(crate) fn count_no_key(&self) {
        if let Some(meter) = &self.meter {
            meter.count_no_key();
        }
    }

    /// Counts a command that is not a check.
    pub(crate) fn count_command(&self, command: Command) {
        if let Some(meter) = &self.meter {
            meter.count_command(command);
        }
    }

    /// The span of a check.
    pub(crate) fn check_span(&self, limit: impl FnOnce() -> Limit, key: &[u8]) -> Span {
        if !span::is_on() {
            return Span::none();
        }
        span::check(&self.checked(limit(), key))
    }

    /// The span of a command that is not a check.
    pub(crate) fn command_span(
        &self,
        limit: impl FnOnce() -> Limit,
        key: &[u8],
        command: Command,
    ) -> Span {
        if !span::is_on() {
            return Span::none();
        }
        span::command(&self.checked(limit(), key), command)
    }

    fn checked(&self, limit: Limit, key: &[u8]) -> span::Checked<'_> {
        span::Checked {
            policy: &self.policy,
            mode: self.mode,
            limit,
            key_hash: self.hash(key),
        }
    }

    /// Writes a line about a denial or a fallback, unless one was written within the last second.
    /// Where every denial is logged, another thread writes the line.
    pub(crate) fn log(
        &self,
        key: &[u8],
        decision: &Decision,
        took: impl FnOnce() -> Duration,
        now_us: impl FnOnce() -> u64,
    ) {
        let event = |suppressed, took: Duration| DecisionEvent {
            policy: &self.policy,
            storage_mode: self.mode.as_str(),
            strategy: super::strategy(decision.limit()),
            reason: super::reason(decision),
            retry_after_ms: super::retry_after_ms(decision),
            remaining: decision.remaining(),
            took,
            key_hash: self.hash(key),
            suppressed: Some(suppressed),
            timestamp: None,
            trace_id: None,
            span_id: None,
        };
        if let Some(queue) = self.queue()
            && !decision.is_allowed()
        {
            // Whether a subscriber wants the line is asked by the log thread.
            if log::is_info_level_on() {
                queue.push(key, decision, took, now_us);
            }
            return;
        }
        #[cfg(feature = "redis")]
        if let Some(failure) = decision.failure() {
            if log::is_warn_on()
                && let Some(suppressed) = self.fallbacks[failure.index()].allow(now_us())
            {
                let is_allowed = decision.is_allowed();
                let event = event(suppressed, took());
                log::fallback(&event, self.on_failure, is_allowed, failure);
            }
            return;
        }
        if let Some(bad) = decision.bad_key() {
            if log::is_warn_on()
                && let Some(suppressed) = self.bad_keys.allow(now_us())
            {
                log::bad_key(&event(suppressed, took()), bad);
            }
            return;
        }
        if log::is_info_on()
            && let Some(suppressed) = self.denials.allow(now_us())
        {
            log::denied(&event(suppressed, took()));
        }
    }
}
