//! From a question to a decision, and who is told of it.

use std::time::Duration;

use balde_core::Command;
#[cfg(feature = "redis")]
use tracing::Instrument;

use super::{Place, RateLimiter};
#[cfg(feature = "redis")]
use crate::clock::Stopwatch;
use crate::decision::Decision;
use crate::error::{BadKey, Error};
#[cfg(feature = "tower")]
use crate::key::ShortKey;
use crate::log;
use crate::once::{Once, OpId};
#[cfg(feature = "redis")]
use crate::remote;
use crate::store::memory::Table;
#[cfg(feature = "redis")]
use crate::store::redis::Shared;
use crate::telemetry::{operation, span};

impl RateLimiter {
    #[inline]
    #[cfg_attr(
        not(feature = "redis"),
        expect(
            clippy::unused_async,
            reason = "there is nothing to wait for in memory"
        )
    )]
    pub(super) async fn decide(&self, key: &[u8], command: Command) -> Decision {
        match &self.0.place {
            Place::Memory(table, _) => self.decide_here(table, key, command),
            #[cfg(feature = "redis")]
            Place::Redis(shared) => match self.decide_held(shared, key, command) {
                Some(decision) => decision,
                // Boxed: its size would otherwise be that of every check in memory, too.
                None => Box::pin(self.decide_there(shared, key, command)).await,
            },
        }
    }

    #[inline]
    pub(crate) fn decide_blocking(&self, key: &[u8], command: Command) -> Decision {
        match &self.0.place {
            Place::Memory(table, _) => self.decide_here(table, key, command),
            #[cfg(feature = "redis")]
            Place::Redis(shared) => {
                let held = self.decide_held(shared, key, command);
                held.unwrap_or_else(|| self.decide_there_blocking(shared, key, command))
            }
        }
    }

    #[inline]
    #[cfg_attr(
        not(feature = "redis"),
        expect(
            clippy::unused_async,
            reason = "there is nothing to wait for in memory"
        )
    )]
    pub(super) async fn run(
        &self,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
    ) -> Result<Decision, Error> {
        let key = BadKey::check(key)?;
        match &self.0.place {
            Place::Memory(table, once) => Ok(self.run_here(table, once, key, command, id)),
            #[cfg(feature = "redis")]
            Place::Redis(shared) => Box::pin(self.run_there(shared, key, command, id)).await,
        }
    }

    #[inline]
    pub(crate) fn run_blocking(
        &self,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
    ) -> Result<Decision, Error> {
        let key = BadKey::check(key)?;
        match &self.0.place {
            Place::Memory(table, once) => Ok(self.run_here(table, once, key, command, id)),
            #[cfg(feature = "redis")]
            Place::Redis(shared) => {
                let span = span::operation(self, key, operation(command));
                self.0.watch.operated(command);
                span.in_scope(|| remote::run_blocking(self, shared, key, command, id))
            }
        }
    }

    #[inline]
    fn decide_here(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        if self.0.watch.is_idle() {
            self.decide_unwatched(table, key, command)
        } else {
            self.decide_watched(table, key, command)
        }
    }

    /// Takes one token for a key that is in registers, and goes on with `then`.
    ///
    /// What `then` does not look at of a grant is never made: a decision is fourteen words, and
    /// moving them about takes as long as finding the bucket.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn take_one_short<T>(&self, key: &ShortKey, then: impl Fn(&Decision) -> T) -> T {
        const TAKE: Command = Command::Take { n: 1 };
        let table = match &self.0.place {
            Place::Memory(table, _) => table,
            #[cfg(feature = "redis")]
            Place::Redis(_) => return then(&self.decide_blocking(key.as_bytes(), TAKE)),
        };
        if !self.0.watch.is_idle() {
            return then(&self.decide_watched(table, key.as_bytes(), TAKE));
        }
        let fingerprint = table.short_fingerprint(key);
        match table.try_run_once(fingerprint, TAKE, || self.now_us()) {
            Some(granted) if granted.is_allowed() => then(&Decision::of(granted)),
            Some(refused) => then(&self.refused(key.as_bytes(), refused)),
            None => then(&self.decide_again(table, key.as_bytes(), TAKE)),
        }
    }

    #[inline]
    fn decide_unwatched(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        // One branch builds the decision where the caller wants it, and the others let the call
        // build it there: a copy in between would cost a quarter of the check.
        if BadKey::check(key).is_ok()
            && let Some(decision) = table.try_run(table.fingerprint(key), command, || self.now_us())
        {
            let decision = Decision::of(decision);
            if !decision.is_allowed() && log::is_heard() {
                self.tell_refusal(key, &decision);
            }
            return decision;
        }
        self.decide_slowly(table, key, command)
    }

    #[cfg(feature = "tower")]
    #[cold]
    #[inline(never)]
    fn decide_again(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        self.decide_unwatched(table, key, command)
    }

    #[cfg(feature = "tower")]
    #[cold]
    #[inline(never)]
    fn refused(&self, key: &[u8], decision: balde_core::Decision) -> Decision {
        let decision = Decision::of(decision);
        if log::is_heard() {
            self.tell_refusal(key, &decision);
        }
        decision
    }

    #[cold]
    #[inline(never)]
    fn decide_slowly(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        let decision = match BadKey::check(key) {
            Ok(key) => Decision::of(table.run_locked(key, command, self.now_us())),
            Err(bad) => Decision::of_bad_key(&self.limit(), bad, self.now_us()),
        };
        if !decision.is_allowed() && log::is_heard() {
            self.tell_refusal(key, &decision);
        }
        decision
    }

    /// The same, counted and in a span.
    #[inline(never)]
    fn decide_watched(&self, table: &Table, key: &[u8], command: Command) -> Decision {
        let stopwatch = self.0.watch.begin();
        if !span::is_on() {
            let decision = self.decide_unwatched(table, key, command);
            self.0.watch.count(&decision, stopwatch);
            return decision;
        }
        let span = span::check(self, key);
        let decision = span.in_scope(|| self.decide_unwatched(table, key, command));
        self.0.watch.count(&decision, stopwatch);
        span::answer(&span, &decision);
        decision
    }

    /// Writes a line about a refusal that was decided here, at the time that the check read: under a
    /// flood of refusals nearly all of them are held back, and then another reading is one too many.
    #[inline(never)]
    fn tell_refusal(&self, key: &[u8], decision: &Decision) {
        let decided_us = decision.core().now_us();
        let took = || Duration::from_micros(self.now_us().saturating_sub(decided_us));
        self.0.watch.tell(self, key, decision, took, || decided_us);
    }

    /// What a lease, a remembered refusal or a bad key decides without asking the store.
    #[cfg(feature = "redis")]
    fn decide_held(&self, shared: &Shared, key: &[u8], command: Command) -> Option<Decision> {
        let stopwatch = self.0.watch.begin_if_heard();
        let decision = match BadKey::check(key) {
            Ok(key) => remote::held(self, shared, key, command)?,
            Err(bad) => Decision::of_bad_key(&self.limit(), bad, self.now_us()),
        };
        if let Some(stopwatch) = stopwatch {
            let span = span::check(self, key);
            span.in_scope(|| self.tell(key, &decision, stopwatch));
            span::answer(&span, &decision);
        }
        Some(decision)
    }

    #[cfg(feature = "redis")]
    async fn decide_there(&self, shared: &Shared, key: &[u8], command: Command) -> Decision {
        let span = span::check(self, key);
        let stopwatch = Stopwatch::start();
        let deciding = remote::decide(self, shared, key, command);
        let decision = deciding.instrument(span.clone()).await;
        span.in_scope(|| self.tell(key, &decision, stopwatch));
        span::answer(&span, &decision);
        decision
    }

    #[cfg(feature = "redis")]
    fn decide_there_blocking(&self, shared: &Shared, key: &[u8], command: Command) -> Decision {
        let span = span::check(self, key);
        let stopwatch = Stopwatch::start();
        let decision = span.in_scope(|| {
            let decision = remote::decide_blocking(self, shared, key, command);
            self.tell(key, &decision, stopwatch);
            decision
        });
        span::answer(&span, &decision);
        decision
    }

    /// Counts a decision that somebody waited for, and writes a line about it if need be.
    #[cfg(feature = "redis")]
    fn tell(&self, key: &[u8], decision: &Decision, stopwatch: Stopwatch) {
        self.0.watch.count(decision, Some(stopwatch));
        if !decision.is_allowed() || decision.is_fallback() {
            let (took, now_us) = (|| stopwatch.elapsed(), || self.now_us());
            self.0.watch.tell(self, key, decision, took, now_us);
        }
    }

    #[inline]
    fn run_here(
        &self,
        table: &Table,
        once: &Once,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
    ) -> Decision {
        let run = || {
            let now_us = self.now_us();
            let run = || table.run(key, command, now_us);
            Decision::of(match id {
                None => run(),
                Some(id) => once.run(kind(command), key, id, now_us, run),
            })
        };
        if self.0.watch.is_idle() {
            return run();
        }
        self.0.watch.operated(command);
        span::operation(self, key, operation(command)).in_scope(run)
    }

    #[cfg(feature = "redis")]
    async fn run_there(
        &self,
        shared: &Shared,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
    ) -> Result<Decision, Error> {
        self.0.watch.operated(command);
        let span = span::operation(self, key, operation(command));
        let running = remote::run(self, shared, key, command, id);
        running.instrument(span).await
    }
}

/// A charge and a credit under one id are two operations.
fn kind(command: Command) -> u8 {
    u8::from(matches!(command, Command::Credit { .. }))
}
