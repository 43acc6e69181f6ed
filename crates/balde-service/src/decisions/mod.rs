//! One place that runs the commands of all protocols, over the limiters of the SDK.
//!
//! | File | Holds |
//! |--|--|
//! | `command.rs`, `answer.rs`, `error.rs` | what callers ask for, what they get, and why not |
//! | `run.rs` | what each command does to the limiters |
//! | `holds.rs`, `blocked.rs`, `idempotency.rs` | open holds, blocked keys, answers to repeat |
//! | `dynamic.rs` | limits that requests bring along |
//! | `listing.rs`, `top_keys.rs` | the fullest and the emptiest buckets; the keys that are asked for most |

mod answer;
mod blocked;
mod command;
mod dynamic;
mod error;
mod holds;
mod idempotency;
mod listing;
mod run;
mod top_keys;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde::options::Limiters;
use balde::telemetry::{Metrics, MetricsWriter};
use balde::{BuildError, Clock, RateLimiter, RedisStore};
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::blocked::BlockedKeys;
use self::dynamic::DynamicLimits;
use self::holds::OpenHolds;
use self::idempotency::PastAnswers;
use self::top_keys::TopKeys;
use crate::access::Rights;

pub use answer::{Answer, LimitState, Verdict, Why};
pub use command::{Bucket, Command, IfExpired, LimitRef, Order, Tokens};
pub(crate) use dynamic::DynamicOptions;
pub use error::CommandError;
pub use listing::ListedBucket;
pub(crate) use top_keys::TopKey;

/// The longest idempotency key, in bytes.
pub(crate) const ID_BYTES_MAX: usize = balde::OP_ID_BYTES_MAX;

/// Runs commands. Clones share everything.
#[derive(Clone, Debug)]
pub struct Decisions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    named: RwLock<Arc<NamedLimiters>>,
    dynamic: DynamicLimits,
    blocked: BlockedKeys,
    holds: OpenHolds,
    past: PastAnswers,
    in_flight: Semaphore,
    in_flight_max: usize,
    /// Commands that were refused because too many were under way.
    overloads: AtomicU64,
    /// In microseconds; a reload can change it.
    wait_max_us: AtomicU64,
    clock: Clock,
    /// Where buckets are that are not those of named limits.
    redis: Option<RedisStore>,
    /// `None` if there is no page that shows them.
    top_keys: Option<TopKeys>,
}

/// The limiters of the file.
#[derive(Debug)]
pub(crate) struct NamedLimiters {
    pub(crate) limiters: Limiters,
    by_name: HashMap<String, RateLimiter>,
}

impl NamedLimiters {
    pub(crate) fn new(limiters: Limiters) -> Self {
        let by_name = limiters
            .iter()
            .map(|limiter| (limiter.name().to_owned(), limiter.clone()))
            .collect();
        Self { limiters, by_name }
    }

    fn get(&self, name: &str) -> Result<&RateLimiter, CommandError> {
        let limiter = self.by_name.get(name);
        limiter.ok_or_else(|| CommandError::UnknownLimit(name.chars().take(64).collect()))
    }
}

/// The most of everything, and how long waits may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionLimits {
    pub(crate) in_flight_max: usize,
    pub(crate) holds_max: usize,
    pub(crate) blocked_max: usize,
    pub(crate) wait_max: Duration,
    /// Whether the keys that are asked for most are counted.
    pub(crate) has_top_keys: bool,
}

/// Who gives a command, and under which conditions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'c> {
    /// What the caller may do.
    pub rights: Rights,
    /// An idempotency key: a repetition gets the answer of the first request.
    pub idempotency_key: Option<&'c str>,
    /// When the caller stops waiting for the answer.
    pub deadline: Option<Instant>,
}

impl Decisions {
    /// `redis` is the store of other buckets than those of named limits, if they have one.
    pub(crate) fn new(
        limiters: Limiters,
        dynamic: DynamicOptions,
        redis: Option<RedisStore>,
        limits: &DecisionLimits,
        metrics: &Metrics,
    ) -> Result<Self, BuildError> {
        Ok(Self(Arc::new(Inner {
            named: RwLock::new(Arc::new(NamedLimiters::new(limiters))),
            clock: dynamic.clock.clone(),
            dynamic: DynamicLimits::new(dynamic, metrics)?,
            blocked: BlockedKeys::new(limits.blocked_max),
            holds: OpenHolds::new(limits.holds_max),
            past: PastAnswers::default(),
            in_flight: Semaphore::new(limits.in_flight_max),
            in_flight_max: limits.in_flight_max,
            overloads: AtomicU64::new(0),
            wait_max_us: AtomicU64::new(micros(limits.wait_max)),
            redis,
            top_keys: limits.has_top_keys.then(TopKeys::default),
        })))
    }

    /// Runs a command.
    pub async fn run(
        &self,
        command: Command<'_>,
        caller: &Caller<'_>,
    ) -> Result<Answer, CommandError> {
        if !caller.rights.has(command.right()) {
            return Err(CommandError::Forbidden(command.right()));
        }
        let Some(deadline) = caller.deadline else {
            return self.run_once(command, caller).await;
        };
        match tokio::time::timeout_at(deadline, self.run_once(command, caller)).await {
            Ok(answer) => answer,
            Err(_) => Err(CommandError::DeadlineExceeded),
        }
    }

    /// The limiters of the file.
    pub(crate) fn named(&self) -> Arc<NamedLimiters> {
        Arc::clone(&self.0.named.read())
    }

    /// Uses other limiters from now on.
    pub(crate) fn replace(&self, limiters: Limiters, wait_max: Duration) {
        *self.0.named.write() = Arc::new(NamedLimiters::new(limiters));
        let us = micros(wait_max);
        self.0.wait_max_us.store(us, Ordering::Relaxed);
    }

    /// Ends the holds whose time is over.
    pub(crate) fn expire_holds(&self) {
        self.0.holds.expire(self.now_us());
    }

    /// The Redis that buckets are in; `None` if all are in memory.
    pub(crate) fn redis(&self) -> Option<RedisStore> {
        let named = self.named();
        let is_shared = named.limiters.iter().any(|limiter| !limiter.is_in_memory());
        let shared = is_shared.then(|| named.limiters.redis_store().ok().flatten());
        shared.flatten().or_else(|| self.0.redis.clone())
    }

    /// What the limits of the file look like now.
    pub(crate) fn limits(&self) -> Vec<LimitState> {
        run::limit_states(&self.named())
    }

    /// The keys that were asked for most in the last one to two minutes.
    pub(crate) fn top_keys(&self, most: usize) -> Vec<TopKey> {
        let top = self.0.top_keys.as_ref();
        top.map_or_else(Vec::new, |top| top.list(most, self.now_us()))
    }

    /// Writes the metrics of holds and overload.
    pub(crate) fn write(&self, writer: &mut MetricsWriter<'_>) {
        let none: &[(&str, &str)] = &[];
        let holds = u64::try_from(self.0.holds.len()).unwrap_or(u64::MAX);
        writer.gauge(
            "balde_service_open_holds",
            "Holds that wait to be settled.",
            [(none, holds)],
        );
        let in_flight = self.0.in_flight_max - self.0.in_flight.available_permits();
        writer.gauge(
            "balde_service_in_flight",
            "Commands that are under way.",
            [(none, u64::try_from(in_flight).unwrap_or(u64::MAX))],
        );
        let overloads = self.0.overloads.load(Ordering::Relaxed);
        writer.counter(
            "balde_service_overloads",
            "Commands that were refused because too many were under way.",
            [(none, overloads)],
        );
    }

    /// Returns tokens on lease and waits until settlements are made. Called before the process ends.
    pub(crate) async fn close(&self) {
        let named = self.named();
        for limiter in named.by_name.values() {
            limiter.release_leases().await;
            limiter.settled().await;
        }
        self.0.dynamic.limiter().settled().await;
    }

    fn now_us(&self) -> u64 {
        self.0.clock.now_us()
    }

    fn wait_max(&self) -> Duration {
        Duration::from_micros(self.0.wait_max_us.load(Ordering::Relaxed))
    }

    /// Runs a command, or repeats the answer that its idempotency key has.
    async fn run_once(
        &self,
        command: Command<'_>,
        caller: &Caller<'_>,
    ) -> Result<Answer, CommandError> {
        // The SDK remembers the ids of charges and credits, in Redis for all processes.
        let is_remembered_here = !matches!(command, Command::Charge(_) | Command::Credit(_));
        let Some(key) = caller.idempotency_key.filter(|_| is_remembered_here) else {
            return self.execute(command, caller).await;
        };
        if key.is_empty() || key.len() > ID_BYTES_MAX {
            let message = format!("an idempotency key has 1 to {ID_BYTES_MAX} bytes");
            return Err(CommandError::Invalid(message));
        }
        if let Some(answer) = self.0.past.begin(key, &command, self.now_us())? {
            return Ok(answer);
        }
        let unfinished = Unfinished {
            inner: &self.0,
            key,
        };
        let answer = self.execute(command, caller).await;
        std::mem::forget(unfinished);
        self.0.past.finish(key, answer.as_ref().ok());
        answer
    }
}

/// Frees an idempotency key if the request is dropped before it has an answer.
struct Unfinished<'r> {
    inner: &'r Inner,
    key: &'r str,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.inner.past.finish(self.key, None);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
