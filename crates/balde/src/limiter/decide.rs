//! From a command to a decision, with its metrics, log line and span.

use std::time::Duration;

use balde_core::Command;
#[cfg(feature = "redis")]
use tracing::Instrument;
use tracing::Span;

#[cfg(feature = "redis")]
use super::RedisLimiter;
use super::target::Target;
use super::{RateLimiter, Store};
#[cfg(feature = "redis")]
use crate::clock::Stopwatch;
use crate::decision::Decision;
use crate::error::Error;
use crate::idempotency::OperationLog;
use crate::key::BadKey;
#[cfg(feature = "tower")]
use crate::key::ShortKey;
use crate::store::memory::{self, MemoryStep, Table};
use crate::telemetry::{log, span};

impl RateLimiter {
    #[inline]
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "nothing waits in memory")
    )]
    pub(super) async fn decide(&self, key: &[u8], command: Command) -> Decision {
        match &self.0.store {
            Store::Memory(table, _) => self.decide_memory(table, key, command),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => match self.try_decide_redis(redis, key, command) {
                Some(decision) => decision,
                // Boxed, so that the future of a check in memory stays small.
                None => Box::pin(self.decide_redis(redis, key, command)).await,
            },
        }
    }

    #[inline]
    pub(crate) fn decide_blocking(&self, key: &[u8], command: Command) -> Decision {
        match &self.0.store {
            Store::Memory(table, _) => self.decide_memory(table, key, command),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => {
                let held = self.try_decide_redis(redis, key, command);
                held.unwrap_or_else(|| self.decide_redis_blocking(redis, key, command))
            }
        }
    }

    #[inline]
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "nothing waits in memory")
    )]
    pub(crate) async fn run(
        &self,
        target: &Target<'_>,
        command: Command,
    ) -> Result<Decision, Error> {
        BadKey::check(target.key)?;
        match &self.0.store {
            Store::Memory(table, log) => Ok(self.run_memory(table, log, target, command)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => Box::pin(self.run_redis(redis, target, command)).await,
        }
    }

    #[inline]
    pub(crate) fn run_blocking(
        &self,
        target: &Target<'_>,
        command: Command,
    ) -> Result<Decision, Error> {
        BadKey::check(target.key)?;
        match &self.0.store {
            Store::Memory(table, log) => Ok(self.run_memory(table, log, target, command)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => {
                self.0.observer.count_command(command);
                let span = self.command_span(target.key, command);
                let decision = span.in_scope(|| redis.run_blocking(target, command))?;
                self.wake_waiters(target.key, command);
                Ok(decision)
            }
        }
    }

    #[inline]
    fn decide_memory(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        if self.0.observer.is_idle() {
            self.decide_unobserved(table, key, command)
        } else {
            self.decide_observed(table, key, command)
        }
    }

    /// Takes one token for a key that is in registers, and passes the decision to `then`.
    ///
    /// Fields of the decision that `then` does not read are optimised away: a decision is fourteen
    /// words, and copying them takes as long as finding the bucket.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn take_one_short<T>(&self, key: &ShortKey, then: impl Fn(&Decision) -> T) -> T {
        const TAKE: Command = Command::Take { n: 1 };
        let table = match &self.0.store {
            Store::Memory(table, _) => table,
            #[cfg(feature = "redis")]
            Store::Redis(_) => return then(&self.decide_blocking(key.as_bytes(), TAKE)),
        };
        if !self.0.observer.is_idle() || self.0.tiers.lookup().is_some() {
            return then(&self.decide_observed(table, key.as_bytes(), TAKE));
        }
        let fingerprint = table.short_fingerprint(key);
        match table.try_run_once(fingerprint, TAKE, || self.now_us()) {
            Some(granted) if granted.is_allowed() => then(&Decision::of(granted)),
            Some(refused) => then(&self.refused(key.as_bytes(), refused)),
            None => then(&self.decide_again(table, key.as_bytes(), TAKE)),
        }
    }

    #[inline]
    fn decide_unobserved(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        // Every branch builds the decision in the caller's return slot: a copy would cost a quarter
        // of the check.
        if BadKey::check(key).is_ok()
            && let Some(decision) = table.try_run(
                table.fingerprint(key),
                self.given_tier(key),
                command,
                || self.now_us(),
            )
        {
            let decision = Decision::of(decision);
            if !decision.is_allowed() && log::is_on() {
                self.log_denial(key, &decision);
            }
            return decision;
        }
        self.decide_slowly(table, key, command)
    }

    #[cfg(feature = "tower")]
    #[cold]
    #[inline(never)]
    fn decide_again(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        self.decide_unobserved(table, key, command)
    }

    #[cfg(feature = "tower")]
    #[cold]
    #[inline(never)]
    fn refused(&self, key: &[u8], decision: balde_core::Decision) -> Decision {
        let decision = Decision::of(decision);
        if log::is_on() {
            self.log_denial(key, &decision);
        }
        decision
    }

    #[cold]
    #[inline(never)]
    fn decide_slowly(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        let decision = match BadKey::check(key) {
            Ok(key) => {
                let step = self.memory_step(table, key, command, self.now_us());
                Decision::of(memory::run_locked(&step))
            }
            Err(bad) => Decision::of_bad_key(&self.limit(), bad, self.now_us()),
        };
        if !decision.is_allowed() && log::is_on() {
            self.log_denial(key, &decision);
        }
        decision
    }

    /// The same, with metrics and a span.
    #[inline(never)]
    fn decide_observed(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        let stopwatch = self.0.observer.begin();
        if !span::is_on() {
            let decision = self.decide_unobserved(table, key, command);
            self.0.observer.count(&decision, stopwatch);
            return decision;
        }
        let span = self.check_span(key);
        let decision = span.in_scope(|| self.decide_unobserved(table, key, command));
        self.0.observer.count(&decision, stopwatch);
        span::record(&span, &decision);
        decision
    }

    /// Logs a denial of the memory store, at the time that the check has read. The duration counts from
    /// then on, in microseconds: the clock is read again only where a line is written.
    #[inline(never)]
    fn log_denial(&self, key: &[u8], decision: &Decision) {
        let decided_us = decision.core().now_us();
        let took = || Duration::from_micros(self.now_us().saturating_sub(decided_us));
        self.0.observer.log(key, decision, took, || decided_us);
    }

    /// Decides without a call to Redis: by a lease, a cached refusal or a bad key.
    #[cfg(feature = "redis")]
    fn try_decide_redis(
        &self,
        redis: &RedisLimiter,
        key: &[u8],
        command: Command,
    ) -> Option<Decision> {
        let stopwatch = self.0.observer.begin_if_on();
        let decision = match BadKey::check(key) {
            Ok(key) => redis.try_take(&Target::new(key), command)?,
            Err(bad) => Decision::of_bad_key(&self.limit(), bad, self.now_us()),
        };
        if let Some(stopwatch) = stopwatch {
            let span = self.check_span(key);
            span.in_scope(|| self.report(key, &decision, stopwatch));
            span::record(&span, &decision);
        }
        Some(decision)
    }

    #[cfg(feature = "redis")]
    async fn decide_redis(&self, redis: &RedisLimiter, key: &[u8], command: Command) -> Decision {
        let span = self.check_span(key);
        let stopwatch = Stopwatch::start();
        let deciding = redis.decide(key, command);
        let decision = deciding.instrument(span.clone()).await;
        span.in_scope(|| self.report(key, &decision, stopwatch));
        span::record(&span, &decision);
        decision
    }

    #[cfg(feature = "redis")]
    fn decide_redis_blocking(
        &self,
        redis: &RedisLimiter,
        key: &[u8],
        command: Command,
    ) -> Decision {
        let span = self.check_span(key);
        let stopwatch = Stopwatch::start();
        let decision = span.in_scope(|| {
            let decision = redis.decide_blocking(key, command);
            self.report(key, &decision, stopwatch);
            decision
        });
        span::record(&span, &decision);
        decision
    }

    /// Counts a decision, and logs a denial or a fallback.
    #[cfg(feature = "redis")]
    fn report(&self, key: &[u8], decision: &Decision, stopwatch: Stopwatch) {
        self.0.observer.count(decision, Some(stopwatch));
        if !decision.is_allowed() || decision.is_fallback() {
            let (took, now_us) = (|| stopwatch.elapsed(), || self.now_us());
            self.0.observer.log(key, decision, took, now_us);
        }
    }

    fn check_span(&self, key: &[u8]) -> Span {
        self.0.observer.check_span(|| self.limit(), key)
    }

    fn command_span(&self, key: &[u8], command: Command) -> Span {
        self.0.observer.command_span(|| self.limit(), key, command)
    }

    #[inline]
    fn run_memory(
        &self,
        table: &Table,
        log: &OperationLog,
        target: &Target<'_>,
        command: Command,
    ) -> Decision {
        let key = target.key;
        let run = || {
            let now_us = self.now_us();
            let step = MemoryStep {
                table,
                key,
                tier: target.tier.or_else(|| self.given_tier(key)),
                command,
                now_us,
            };
            let run = || memory::run(&step);
            Decision::of(match target.id {
                None => run(),
                Some(id) => log.run(kind(command), key, id, now_us, run),
            })
        };
        let decision = if self.0.observer.is_idle() {
            run()
        } else {
            self.0.observer.count_command(command);
            self.command_span(key, command).in_scope(run)
        };
        self.wake_waiters(key, command);
        decision
    }

    pub(crate) fn memory_step<'a>(
        &self,
        table: &'a Table,
        key: &'a [u8],
        command: Command,
        now_us: u64,
    ) -> MemoryStep<'a> {
        MemoryStep {
            table,
            key,
            tier: self.given_tier(key),
            command,
            now_us,
        }
    }

    /// Lets requests that wait for this key see a command that may have added tokens.
    pub(crate) fn wake_waiters(&self, key: &[u8], command: Command) {
        #[cfg(feature = "tokio")]
        if matches!(
            command,
            Command::Credit { .. } | Command::SetLevel { .. } | Command::Settle { .. }
        ) {
            self.waiters().bucket_changed(key);
        }
        #[cfg(not(feature = "tokio"))]
        let _ = (key, command);
    }

    #[cfg(feature = "redis")]
    async fn run_redis(
        &self,
        redis: &RedisLimiter,
        target: &Target<'_>,
        command: Command,
    ) -> Result<Decision, Error> {
        self.0.observer.count_command(command);
        let running = redis.run(target, command);
        let span = self.command_span(target.key, command);
        let decision = running.instrument(span).await?;
        self.wake_waiters(target.key, command);
        Ok(decision)
    }
}

/// A charge and a credit under one id are two operations.
fn kind(command: Command) -> u8 {
    u8::from(matches!(command, Command::Credit { .. }))
}
