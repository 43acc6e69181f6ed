//! The buckets of one limiter in Redis, and its decisions while Redis is unavailable.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use balde_core::{Command, Limit, LimitError};
use parking_lot::RwLock;
use tokio::time::Instant;

use super::RedisStore;
use super::call::Call;
use super::key::Names;
use super::observer::ScriptTimer;
use super::script::{self, Header, Holder, LimitBlob, NOW_MAX_US, ReplyError, Step};
use crate::clock::{Clock, Stopwatch};
use crate::decision::Decision;
use crate::failure::{OnFailure, StoreFailure};
use crate::holds::Holds;
use crate::idempotency::OpId;
use crate::store::memory::{Assignment, Table, TierId};

/// How long Redis keeps the reply to an operation whose id we chose: longer than we retry, and short
/// enough that replies do not pile up.
pub(super) const OWN_ID_TTL_MS: u64 = 10_000;

/// The buckets of one limiter: their names, their limit, and what decides when Redis does not.
pub(crate) struct RedisBuckets {
    store: RedisStore,
    names: Names,
    /// The limits by tier; the first is that of keys without a tier.
    limits: RwLock<Vec<(Limit, LimitBlob)>>,
    tiers: KeyTiers,
    clock: Clock,
    on_failure: OnFailure,
    /// Where [`OnFailure::Local`] decides.
    local: Option<Table>,
    once_ttl_ms: u64,
    holds: Option<Holds>,
    /// The id under which this process holds tokens of these buckets.
    holder_id: AtomicU64,
    script_timer: Option<ScriptTimer>,
}

/// The settings of [`RedisBuckets`] that are neither its name nor its limit.
pub(crate) struct BucketOptions<'a> {
    pub(crate) hash_tag: Option<&'a [u8]>,
    pub(crate) on_failure: OnFailure,
    pub(crate) keys_max: usize,
    pub(crate) once_ttl: Duration,
    pub(crate) holds: Option<Holds>,
    pub(crate) script_timer: Option<ScriptTimer>,
    /// Looks up the tier of a key. Without it, [`RedisBuckets::set_tier`] decides.
    pub(crate) tier_lookup: Option<TierLookup>,
}

/// Looks up the tier of a key.
pub(crate) type TierLookup = Arc<dyn Fn(&[u8]) -> TierId + Send + Sync>;

/// The tier of each key that has one.
enum KeyTiers {
    Lookup(TierLookup),
    Assigned {
        tiers: RwLock<HashMap<Box<[u8]>, TierId>>,
        /// Read without the lock: where no key has a tier, none is looked up.
        len: AtomicUsize,
        max: usize,
    },
}

impl KeyTiers {
    fn of(&self, key: &[u8]) -> TierId {
        match self {
            Self::Lookup(lookup) => lookup(key),
            Self::Assigned { len, .. } if len.load(Ordering::Acquire) == 0 => TierId::NONE,
            Self::Assigned { tiers, .. } => tiers.read().get(key).copied().unwrap_or_default(),
        }
    }

    /// Returns false if there are too many already.
    fn assign(&self, key: &[u8], tier: TierId) -> bool {
        let Self::Assigned { tiers, len, max } = self else {
            return false;
        };
        let mut tiers = tiers.write();
        if tier == TierId::NONE {
            tiers.remove(key);
        } else if tiers.len() < *max || tiers.contains_key(key) {
            tiers.insert(key.into(), tier);
        } else {
            return false;
        }
        len.store(tiers.len(), Ordering::Release);
        true
    }
}

impl RedisBuckets {
    pub(crate) fn new(
        store: &RedisStore,
        name: &str,
        limits: &[Limit],
        clock: Clock,
        options: BucketOptions<'_>,
    ) -> Result<Self, LimitError> {
        let keys_max = options.keys_max;
        let local = match options.on_failure {
            OnFailure::Local { share } => {
                let shares: Result<Vec<_>, _> =
                    limits.iter().map(|limit| share.of(limit)).collect();
                let now_us = clock.now_us();
                Some(Table::with_tiers(
                    &shares?,
                    Assignment::Given,
                    keys_max,
                    now_us,
                ))
            }
            OnFailure::Deny | OnFailure::Allow => None,
        };
        let tiers = match options.tier_lookup {
            Some(lookup) => KeyTiers::Lookup(lookup),
            None => KeyTiers::Assigned {
                tiers: RwLock::default(),
                len: AtomicUsize::new(0),
                max: keys_max,
            },
        };
        let encoded = |limit: &Limit| (*limit, LimitBlob::new(limit));
        Ok(Self {
            names: Names::new(&store.0.settings.prefix, name, options.hash_tag),
            store: store.clone(),
            limits: RwLock::new(limits.iter().map(encoded).collect()),
            tiers,
            clock,
            on_failure: options.on_failure,
            local,
            once_ttl_ms: u64::try_from(options.once_ttl.as_millis()).unwrap_or(u64::MAX),
            holds: options.holds,
            holder_id: AtomicU64::new(random_id()),
            script_timer: options.script_timer,
        })
    }

    pub(crate) fn holds(&self) -> Option<&Holds> {
        self.holds.as_ref()
    }

    /// The id under which this process holds tokens from now on; `None` if they are taken instead.
    pub(crate) fn holder_id(&self) -> Option<u64> {
        let id = self.holder_id.load(Ordering::Relaxed);
        self.holds.is_some().then_some(id)
    }

    /// Holds tokens under another id from now on. Those of the id before expire, unless they are
    /// settled or renewed.
    pub(crate) fn replace_holder_id(&self) {
        self.holder_id.store(random_id(), Ordering::Relaxed);
    }

    pub(crate) fn store(&self) -> &RedisStore {
        &self.store
    }

    /// The limit of keys without a tier.
    pub(crate) fn limit(&self) -> Limit {
        self.tier_limit(TierId::NONE)
    }

    /// The limits of all tiers, and of keys without one.
    pub(crate) fn limits(&self) -> Vec<Limit> {
        self.limits.read().iter().map(|(limit, _)| *limit).collect()
    }

    /// The limit of a tier.
    pub(crate) fn tier_limit(&self, tier: TierId) -> Limit {
        self.limits.read()[tier.index()].0
    }

    /// The limit of a key.
    pub(crate) fn limit_of(&self, key: &[u8]) -> Limit {
        self.tier_limit(self.tier(key))
    }

    /// The tier of a key.
    pub(crate) fn tier(&self, key: &[u8]) -> TierId {
        self.tiers.of(key)
    }

    /// Assigns a key to a tier. Each bucket is stored with the limit it was written under, and the
    /// script converts it when it writes it next. Returns false if too many keys have one.
    pub(crate) fn set_tier(&self, key: &[u8], tier: TierId) -> bool {
        self.tiers.assign(key, tier)
    }

    /// Replaces the limit of a tier; buckets are converted as by [`set_tier`](Self::set_tier).
    pub(crate) fn set_limit(&self, tier: TierId, limit: Limit) -> Result<(), LimitError> {
        if let (OnFailure::Local { share }, Some(local)) = (self.on_failure, &self.local) {
            local.set_tier_limit(tier, share.of(&limit)?, || self.clock.now_us());
        }
        self.limits.write()[tier.index()] = (limit, LimitBlob::new(&limit));
        Ok(())
    }

    /// Removes a bucket.
    pub(crate) async fn forget(&self, key: &[u8]) -> Result<(), StoreFailure> {
        if let Some(local) = &self.local {
            local.forget(key);
        }
        // Setting a bucket that starts full to its capacity removes it, whatever limit it was under.
        let full = Limit::per_second(1).expect("one token per second is a limit");
        let command = Command::SetLevel { level: 1 };
        let call = Arc::new(Call {
            keys: vec![self.names.bucket(key)],
            steps: vec![Step::new(full, LimitBlob::new(&full), command)],
            header: header(self.fixed_now_us()),
        });
        let decode = |reply: &[u8]| script::decode(&call.steps, reply);
        self.call(&call, self.deadline(), decode).await.map(drop)
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
        let step = self.step(key, None, command, self.holder_id());
        self.run_step(key, step, id, deadline).await
    }

    /// [`run`](RedisBuckets::run) for a holder, on a key whose tier the caller may know.
    pub(crate) async fn run_as(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        command: Command,
        id: Option<&OpId>,
        holder: Option<u64>,
        deadline: Instant,
    ) -> Result<balde_core::Decision, StoreFailure> {
        let step = self.step(key, tier, command, holder);
        self.run_step(key, step, id, deadline).await
    }

    /// Renews what `holder` holds of a bucket.
    pub(crate) async fn renew(&self, key: &[u8], holder: u64) -> Result<(), StoreFailure> {
        let Some(holder) = self.holder(holder) else {
            return Ok(());
        };
        let (limit, blob) = self.limits.read()[TierId::NONE.index()];
        let call = Arc::new(Call {
            keys: vec![self.names.bucket(key)],
            steps: vec![Step::renewal(limit, blob, holder)],
            header: header(self.fixed_now_us()),
        });
        self.call(&call, self.deadline(), |_| Ok(())).await
    }

    async fn run_step(
        &self,
        key: &[u8],
        step: Step,
        id: Option<&OpId>,
        deadline: Instant,
    ) -> Result<balde_core::Decision, StoreFailure> {
        let mut keys = vec![self.names.bucket(key)];
        let mut header = header(self.fixed_now_us());
        match (kind(step.command()), id) {
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
        let decode = |reply: &[u8]| script::decode_one(&step, reply);
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
        self.fall_back_in(key, self.tier(key), command, failure)
    }

    /// [`fall_back`](RedisBuckets::fall_back) for a key in this tier.
    pub(crate) fn fall_back_in(
        &self,
        key: &[u8],
        tier: TierId,
        command: Command,
        failure: StoreFailure,
    ) -> Decision {
        self.store.count_fallback();
        let now_us = self.clock.now_us();
        let limit = || self.tier_limit(tier);
        match (self.on_failure, &self.local) {
            (OnFailure::Local { .. }, Some(local)) => {
                Decision::of_local(local.run_in(key, Some(tier), command, now_us), failure)
            }
            (OnFailure::Allow, _) => Decision::of_allowance(&limit(), command, failure, now_us),
            // There is a local table whenever the policy is local.
            (OnFailure::Deny | OnFailure::Local { .. }, _) => {
                Decision::of_denial(&limit(), failure, self.retry_after(key), now_us)
            }
        }
    }

    /// Gives tokens back that a fallback took from the local bucket.
    pub(crate) fn credit_local(&self, key: &[u8], tier: Option<TierId>, n: u64) {
        if let Some(local) = &self.local {
            let tier = tier.or_else(|| Some(self.tier(key)));
            local.run_in(key, tier, Command::Credit { n }, self.clock.now_us());
        }
    }

    pub(super) fn step(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        command: Command,
        holder: Option<u64>,
    ) -> Step {
        let tier = tier.unwrap_or_else(|| self.tier(key));
        let (limit, blob) = self.limits.read()[tier.index()];
        let holder = holder.and_then(|id| self.holder(id));
        Step::new(limit, blob, command).held_by(holder)
    }

    fn holder(&self, id: u64) -> Option<Holder> {
        let holds = self.holds?;
        Some(Holder {
            id: id.to_le_bytes(),
            ttl_us: u64::try_from(holds.ttl.as_micros()).unwrap_or(u64::MAX),
            on_expiry: holds.on_expiry,
        })
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

fn random_id() -> u64 {
    RandomState::new().hash_one(0)
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
        Command::Settle { .. } => Some(b's'),
        _ => None,
    }
}
