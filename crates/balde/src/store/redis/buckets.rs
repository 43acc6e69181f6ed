//! The buckets of one limiter in Redis, and its decisions while Redis is unavailable.

use std::sync::Arc;
use std::time::Duration;

use balde_core::{Command, Limit, LimitError};
use parking_lot::RwLock;
use tokio::time::Instant;

use super::RedisStore;
use super::call::Call;
use super::key::Names;
use super::observer::ScriptTimer;
use super::script::{self, Header, LimitBlob, NOW_MAX_US, ReplyError, Step};
use crate::clock::{Clock, Stopwatch};
use crate::decision::Decision;
use crate::failure::{OnFailure, StoreFailure};
use crate::idempotency::OpId;
use crate::store::memory::Table;

/// How long Redis keeps the reply to an operation whose id we chose: longer than we retry, and short
/// enough that replies do not pile up.
pub(super) const OWN_ID_TTL_MS: u64 = 10_000;

/// The buckets of one limiter: their names, their limit, and what decides when Redis does not.
pub(crate) struct RedisBuckets {
    store: RedisStore,
    names: Names,
    limit: RwLock<(Limit, LimitBlob)>,
    clock: Clock,
    on_failure: OnFailure,
    /// Where [`OnFailure::Local`] decides.
    local: Option<Table>,
    once_ttl_ms: u64,
    script_timer: Option<ScriptTimer>,
}

/// The settings of [`RedisBuckets`] that are neither its name nor its limit.
pub(crate) struct BucketOptions<'a> {
    pub(crate) hash_tag: Option<&'a [u8]>,
    pub(crate) on_failure: OnFailure,
    pub(crate) keys_max: usize,
    pub(crate) once_ttl: Duration,
    pub(crate) script_timer: Option<ScriptTimer>,
}

impl RedisBuckets {
    pub(crate) fn new(
        store: &RedisStore,
        name: &str,
        limit: Limit,
        clock: Clock,
        options: BucketOptions<'_>,
    ) -> Result<Self, LimitError> {
        let local = match options.on_failure {
            OnFailure::Local { share } => {
                let limit = share.of(&limit)?;
                Some(Table::new(limit, options.keys_max, clock.now_us()))
            }
            OnFailure::Deny | OnFailure::Allow => None,
        };
        Ok(Self {
            names: Names::new(&store.0.settings.prefix, name, options.hash_tag),
            store: store.clone(),
            limit: RwLock::new((limit, LimitBlob::new(&limit))),
            clock,
            on_failure: options.on_failure,
            local,
            once_ttl_ms: u64::try_from(options.once_ttl.as_millis()).unwrap_or(u64::MAX),
            script_timer: options.script_timer,
        })
    }

    pub(crate) fn store(&self) -> &RedisStore {
        &self.store
    }

    pub(crate) fn limit(&self) -> Limit {
        self.limit.read().0
    }

    /// Replaces the limit. Each bucket is stored with the limit it was written under, and the script
    /// converts it when it writes it next.
    pub(crate) fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        if let (OnFailure::Local { share }, Some(local)) = (self.on_failure, &self.local) {
            local.set_limit(share.of(&limit)?, || self.clock.now_us());
        }
        *self.limit.write() = (limit, LimitBlob::new(&limit));
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.store.timeout()
    }

    /// Runs a command. A charge or credit without an id gets one, so that it can be retried when the
    /// connection breaks.
    pub(crate) async fn run(
        &self,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
        deadline: Instant,
    ) -> Result<balde_core::Decision, StoreFailure> {
        let step = self.step(command);
        let mut keys = vec![self.names.bucket(key)];
        let mut header = header(self.fixed_now_us());
        match (kind(command), id) {
            (Some(kind), Some(id)) => {
                keys.push(self.names.operation(key, kind, id.as_bytes()));
                header = header.with_operation(self.once_ttl_ms);
            }
            (Some(kind), None) => {
                keys.push(self.names.operation(key, kind, OpId::random().as_bytes()));
                header = header.with_operation(OWN_ID_TTL_MS);
            }
            (None, _) => {}
        }
        let call = Arc::new(Call {
            keys,
            steps: vec![step],
            header,
        });
        let decode = |reply: &[u8]| script::decode_one(step.limit(), command, reply);
        self.call(&call, deadline, decode).await
    }

    /// Calls the script and reports how long that took.
    pub(super) async fn call<T>(
        &self,
        call: &Arc<Call>,
        deadline: Instant,
        decode: impl FnOnce(&[u8]) -> Result<T, ReplyError>,
    ) -> Result<T, StoreFailure> {
        let Some(report) = &self.script_timer else {
            return self.store.run(call, deadline, decode).await;
        };
        let stopwatch = Stopwatch::start();
        let reply = self.store.run(call, deadline, decode).await;
        if !matches!(reply, Err(StoreFailure::BreakerOpen)) {
            report(stopwatch.elapsed());
        }
        reply
    }

    /// Decides by the failure policy. No quota is counted in Redis.
    pub(crate) fn fall_back(
        &self,
        key: &[u8],
        command: Command,
        failure: StoreFailure,
    ) -> Decision {
        self.store.count_fallback();
        let now_us = self.clock.now_us();
        match (self.on_failure, &self.local) {
            (OnFailure::Local { .. }, Some(local)) => {
                Decision::of_local(local.run(key, command, now_us), failure)
            }
            (OnFailure::Allow, _) => {
                Decision::of_allowance(&self.limit(), command, failure, now_us)
            }
            // There is a local table whenever the policy is local.
            (OnFailure::Deny | OnFailure::Local { .. }, _) => {
                Decision::of_denial(&self.limit(), failure, self.retry_after(key), now_us)
            }
        }
    }

    /// Gives tokens back that a fallback took from the local bucket.
    pub(crate) fn credit_local(&self, key: &[u8], n: u64) {
        if let Some(local) = &self.local {
            local.run(key, Command::Credit { n }, self.clock.now_us());
        }
    }

    pub(super) fn step(&self, command: Command) -> Step {
        let (limit, blob) = *self.limit.read();
        Step::new(limit, blob, command)
    }

    pub(super) fn bucket(&self, key: &[u8]) -> Vec<u8> {
        self.names.bucket(key)
    }

    /// The limiter's time.
    pub(crate) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// The time to send to the script: only that of a manual clock. By default the server's clock
    /// decides, because processes whose clocks differ would disagree about a bucket.
    pub(super) fn fixed_now_us(&self) -> Option<u64> {
        self.clock.is_manual().then(|| self.clock.now_us())
    }

    fn retry_after(&self, key: &[u8]) -> Duration {
        let breaker = self.store.breaker(&self.names.bucket(key));
        self.store.0.breakers[breaker].retry_after()
    }
}

/// The header of a call at `now_us`, or at the server's time.
pub(super) fn header(now_us: Option<u64>) -> Header {
    let header = Header::default();
    now_us
        .and_then(|now_us| header.at(now_us.min(NOW_MAX_US)))
        .unwrap_or(header)
}

/// A letter for each kind of command that can have an operation id.
fn kind(command: Command) -> Option<u8> {
    match command {
        Command::Charge { .. } => Some(b'd'),
        Command::Credit { .. } => Some(b'c'),
        _ => None,
    }
}
