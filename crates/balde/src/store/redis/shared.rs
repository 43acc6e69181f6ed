//! One limiter's buckets in a shared store, and what it does when that is away.

use std::sync::Arc;
use std::time::Duration;

use balde_core::{Command, Limit, LimitError};
use parking_lot::RwLock;
use tokio::time::Instant;

use super::RedisStore;
use super::call::Call;
use super::key::Names;
use super::script::{self, Header, LimitBlob, NOW_MAX_US, Step};
use crate::clock::{Clock, Stopwatch};
use crate::decision::Decision;
use crate::failure::{OnFailure, StoreFailure};
use crate::lease::{Leases, Lessee};
use crate::once::OpId;
use crate::store::memory::Table;
use crate::telemetry::Meter;

/// How long the reply to an operation with an id of our own is kept: longer than we keep trying, and
/// not so long that they pile up.
pub(super) const OWN_ID_TTL_MS: u64 = 10_000;

pub(crate) struct Shared {
    store: RedisStore,
    names: Names,
    limit: RwLock<(Limit, LimitBlob)>,
    clock: Clock,
    policy: Policy,
    local: Option<Table>,
    once_ttl_ms: u64,
    lessee: Option<Lessee>,
    meter: Option<Meter>,
}

/// What a limiter does apart from deciding.
pub(crate) struct Policy {
    pub(crate) on_failure: OnFailure,
    pub(crate) keys_max: usize,
    pub(crate) once_ttl: Duration,
    pub(crate) leases: Option<Leases>,
}

impl Shared {
    pub(crate) fn new(
        store: &RedisStore,
        name: &str,
        hash_tag: Option<&[u8]>,
        limit: Limit,
        clock: Clock,
        policy: Policy,
        meter: Option<Meter>,
    ) -> Result<Self, LimitError> {
        let local = match policy.on_failure {
            OnFailure::Local { share } => {
                let limit = share.of(&limit)?;
                Some(Table::new(limit, policy.keys_max, clock.now_us()))
            }
            OnFailure::Deny | OnFailure::Allow => None,
        };
        Ok(Self {
            names: Names::new(&store.0.settings.prefix, name, hash_tag),
            store: store.clone(),
            limit: RwLock::new((limit, LimitBlob::new(&limit))),
            clock,
            local,
            once_ttl_ms: u64::try_from(policy.once_ttl.as_millis()).unwrap_or(u64::MAX),
            lessee: policy.leases.map(Lessee::new),
            meter,
            policy,
        })
    }

    pub(crate) fn store(&self) -> &RedisStore {
        &self.store
    }

    pub(crate) fn lessee(&self) -> Option<&Lessee> {
        self.lessee.as_ref()
    }

    pub(crate) fn limit(&self) -> Limit {
        self.limit.read().0
    }

    /// The script finds each bucket under the limit it was written under, and converts it then.
    pub(crate) fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        if let (OnFailure::Local { share }, Some(local)) = (self.policy.on_failure, &self.local) {
            local.set_limit(share.of(&limit)?, || self.clock.now_us());
        }
        *self.limit.write() = (limit, LimitBlob::new(&limit));
        if let Some(lessee) = &self.lessee {
            lessee.forget_refusals();
        }
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.store.timeout()
    }

    /// Runs a command. A charge or credit without an id gets one, so that it can be sent again when
    /// the connection breaks.
    pub(crate) async fn run(
        &self,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
        deadline: Instant,
    ) -> Result<balde_core::Decision, StoreFailure> {
        let step = self.step(command);
        let mut keys = vec![self.names.bucket(key)];
        let mut header = header(self.now_us());
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
        let reply = self.call(&call, deadline).await?;
        if let Some(lessee) = &self.lessee
            && !matches!(command, Command::Take { .. } | Command::TakeUpTo { .. })
        {
            lessee.forget_refusal(key);
        }
        script::decode_one(step.limit(), command, &reply).map_err(|_| StoreFailure::Script)
    }

    /// Calls the script, and notes how long it took.
    pub(super) async fn call(
        &self,
        call: &Arc<Call>,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreFailure> {
        let Some(meter) = &self.meter else {
            return self.store.run(call, deadline).await;
        };
        let stopwatch = Stopwatch::start();
        let reply = self.store.run(call, deadline).await;
        if !matches!(reply, Err(StoreFailure::BreakerOpen)) {
            meter.script_took(stopwatch.elapsed());
        }
        reply
    }

    /// What the failure policy says. Nothing is counted in the store.
    pub(crate) fn fall_back(
        &self,
        key: &[u8],
        command: Command,
        failure: StoreFailure,
    ) -> Decision {
        self.store.count_fallback();
        let now_us = self.clock.now_us();
        match (self.policy.on_failure, &self.local) {
            (OnFailure::Local { .. }, Some(local)) => {
                Decision::of_local(local.run(key, command, now_us), failure)
            }
            (OnFailure::Allow, _) => {
                Decision::of_allowance(&self.limit(), command, failure, now_us)
            }
            // A local bucket is there whenever the policy is local.
            (OnFailure::Deny | OnFailure::Local { .. }, _) => {
                Decision::of_denial(&self.limit(), failure, self.retry_after(key), now_us)
            }
        }
    }

    /// Gives back to the local bucket what a fallback took there.
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

    /// The time to pass along: only where it is not the world's. Processes whose clocks differ would
    /// otherwise disagree about one bucket.
    pub(super) fn now_us(&self) -> Option<u64> {
        self.clock.is_manual().then(|| self.clock.now_us())
    }

    fn retry_after(&self, key: &[u8]) -> Duration {
        let breaker = self.store.breaker(&self.names.bucket(key));
        self.store.0.breakers[breaker].retry_after()
    }
}

/// The header of a call at the time that was passed along, or at the server's.
pub(super) fn header(now_us: Option<u64>) -> Header {
    let header = Header::default();
    now_us
        .and_then(|now_us| header.at(now_us.min(NOW_MAX_US)))
        .unwrap_or(header)
}

/// A letter for each kind of operation that can have an id.
fn kind(command: Command) -> Option<u8> {
    match command {
        Command::Charge { .. } => Some(b'd'),
        Command::Credit { .. } => Some(b'c'),
        _ => None,
    }
}
