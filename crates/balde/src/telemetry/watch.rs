//! What a limiter tells the outside: counts, one line now and then, spans. It decides nothing.

use std::time::Duration;

use balde_core::Command;

use super::Mode;
use super::key_hash::{KeyHash, KeyHasher};
use super::meter::Meter;
use crate::clock::Stopwatch;
use crate::decision::Decision;
use crate::error::BadKey;
#[cfg(feature = "redis")]
use crate::failure::{OnFailure, StoreFailure};
use crate::limiter::RateLimiter;
use crate::log::{self, About, Storm};

/// Who is told about a limiter's decisions. By default nobody, and then a check costs one load and
/// two branches more.
pub(crate) struct Watch {
    meter: Option<Meter>,
    mode: Mode,
    hasher: KeyHasher,
    refusals: Storm,
    bad_keys: Storm,
    #[cfg(feature = "redis")]
    fallbacks: [Storm; StoreFailure::ALL.len()],
    #[cfg(feature = "redis")]
    on_failure: Option<OnFailure>,
}

impl Watch {
    pub(crate) fn new(mode: Mode, hasher: KeyHasher, meter: Option<Meter>) -> Self {
        Self {
            meter,
            mode,
            hasher,
            refusals: Storm::default(),
            bad_keys: Storm::default(),
            #[cfg(feature = "redis")]
            fallbacks: Default::default(),
            #[cfg(feature = "redis")]
            on_failure: None,
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn with_rule(self, on_failure: OnFailure) -> Self {
        Self {
            on_failure: Some(on_failure),
            ..self
        }
    }

    /// Whether nobody counts and nobody listens to spans.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.meter.is_none() && !super::span::is_on()
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref()
    }

    /// The hash of a key that can be used. Others may be of any length, and are not worth it.
    pub(crate) fn hash(&self, key: &[u8]) -> Option<KeyHash> {
        let key = BadKey::check(key).ok()?;
        Some(self.hasher.hash(key))
    }

    /// Starts timing, if this check is one of those that are timed.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Stopwatch> {
        self.meter.as_ref().and_then(|_| Meter::begin(self.mode))
    }

    /// Starts timing, if anybody counts or listens at all.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn begin_if_heard(&self) -> Option<Stopwatch> {
        let is_heard = self.meter.is_some() || log::is_heard();
        is_heard.then(Stopwatch::start)
    }

    /// Counts a decision, and what it took where that was timed.
    #[inline]
    pub(crate) fn count(&self, decision: &Decision, stopwatch: Option<Stopwatch>) {
        if let Some(meter) = &self.meter {
            meter.decided(decision);
            if let Some(stopwatch) = stopwatch {
                meter.took(self.mode, stopwatch.elapsed());
            }
        }
    }

    /// Counts a command that is no decision.
    pub(crate) fn operated(&self, command: Command) {
        if let Some(meter) = &self.meter {
            meter.operated(command);
        }
    }

    /// Writes a line about a refusal or a fallback, unless one was written a moment ago.
    pub(crate) fn tell(
        &self,
        limiter: &RateLimiter,
        key: &[u8],
        decision: &Decision,
        took: impl FnOnce() -> Duration,
        now_us: impl FnOnce() -> u64,
    ) {
        let about = |held_back| About {
            policy: limiter.name(),
            storage_mode: self.mode.as_str(),
            decision,
            took: took(),
            key_hash: self.hash(key),
            held_back,
        };
        #[cfg(feature = "redis")]
        if let Some(failure) = decision.failure() {
            if log::warns()
                && let Some(held_back) = self.fallbacks[failure.index()].passes(now_us())
            {
                log::fallback(&about(held_back), self.on_failure, failure);
            }
            return;
        }
        if let Some(bad) = decision.bad_key() {
            if log::warns()
                && let Some(held_back) = self.bad_keys.passes(now_us())
            {
                log::bad_key(&about(held_back), bad);
            }
            return;
        }
        if log::informs()
            && let Some(held_back) = self.refusals.passes(now_us())
        {
            log::denied(&about(held_back));
        }
    }
}
