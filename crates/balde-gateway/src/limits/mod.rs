//! Limiting: who sent a request, whether its policies admit it, and what it costs.

mod caller;
mod queue;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use balde::http::{CachedHeaders, Identity};
use balde::telemetry::{Metrics, key_hash};
use balde::{BuildError, Clock, RedisStore, StorageMode};
use balde_policy::{Engine, HttpHeaders, InFlight, Mode, PathRules, Profile, Request, Ticket};
use http::HeaderMap;
use http::request::Parts;

pub(crate) use caller::{Caller, ClientCertificate, class_of};
pub(crate) use queue::{NotAdmitted, WaitQueue};

use crate::config::{
    CallerClass, Config, DictConfig, LimitingConfig, RECONCILIATION_CLASS, RouteConfig, Shadow,
};

/// The policies that count reconciliations: of listBucketStates, and of getBucketState.
const RECONCILIATION_POLICIES: [&str; 2] = ["POLICIES_LIST", "POLICIES_READ"];

/// The policies that are enforced, with their buckets.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    engine: Engine,
    identity: Identity,
    pub(crate) headers: Arc<CachedHeaders>,
    pub(crate) classes: Vec<CallerClass>,
    wait_header: http::HeaderName,
    path_rules: PathRules,
    queue: Arc<WaitQueue>,
    /// Where the buckets are, if not in memory.
    redis: Option<RedisStore>,
    /// For the hashes of callers in the access log.
    log_salt: Arc<[u8]>,
}

/// How an engine is built.
#[derive(Clone, Debug)]
pub(crate) struct EngineOptions {
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
}

impl Limits {
    /// Builds the engine for a profile: that of the configuration, or one that was made from it.
    /// `configure` sets what depends on the API.
    pub(crate) fn new(
        config: &Config,
        profile: &Profile,
        options: &EngineOptions,
        configure: impl FnOnce(balde_policy::EngineBuilder) -> balde_policy::EngineBuilder,
    ) -> Result<Self, BuildError> {
        let limiting = &config.limiting;
        let mut builder = Engine::builder(applied(profile, config))
            .clock(options.clock.clone())
            .metrics(&options.metrics)
            .holds(limiting.holds)
            .denials(limiting.denials);
        if !limiting.reserves.is_empty() {
            builder = builder.in_flight(InFlight::HighestPrice);
        }
        if let Some(keys_max) = limiting.keys_max {
            builder = builder.keys_max(keys_max);
        }
        let redis = match limiting.storage {
            StorageMode::Memory => None,
            StorageMode::Redis => config.service.redis(),
        };
        let redis = redis.map(balde::RedisBuilder::build).transpose()?;
        if let Some(store) = &redis {
            builder = builder.redis(store);
        }
        let engine = configure(builder).build()?;
        let queue = Arc::new(WaitQueue::new(
            limiting.waiters_max,
            limiting.waiting_share_percent,
        ));
        Ok(Self::with(config, engine, queue, redis))
    }

    /// The same buckets under another configuration.
    pub(crate) fn reloaded(&self, config: &Config, profile: &Profile) -> Result<Self, BuildError> {
        let profile = applied(profile, config);
        if self.engine.profile() != profile {
            self.engine.replace(profile)?;
        }
        self.queue.set_max(
            config.limiting.waiters_max,
            config.limiting.waiting_share_percent,
        );
        Ok(Self::with(
            config,
            self.engine.clone(),
            Arc::clone(&self.queue),
            self.redis.clone(),
        ))
    }

    fn with(
        config: &Config,
        engine: Engine,
        queue: Arc<WaitQueue>,
        redis: Option<RedisStore>,
    ) -> Self {
        Self {
            engine,
            identity: config.service.identity().clone(),
            headers: Arc::new(CachedHeaders::new(config.service.header_options())),
            classes: config.classes.clone(),
            wait_header: config.limiting.wait_header.clone(),
            path_rules: config.paths.rules,
            queue,
            redis,
            log_salt: log_salt(),
        }
    }

    /// Asks Redis for anything, if the buckets are there. An error says why there was no answer.
    pub(crate) async fn ping_redis(&self) -> Result<(), String> {
        match &self.redis {
            None => Ok(()),
            Some(store) => match store.keys_in_server().await {
                Ok(_) => Ok(()),
                Err(failure) => Err(failure.to_string()),
            },
        }
    }

    /// Where the buckets are, if not in memory.
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
        self.redis.as_ref()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How many requests wait for tokens.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Admits a request that the caller has taken apart.
    pub(crate) async fn admit(
        &self,
        request: &Request<'_>,
        caller: &str,
        wait: Duration,
    ) -> Result<Ticket, NotAdmitted> {
        self.queue.admit(&self.engine, request, caller, wait).await
    }

    /// Admits any request for HTTP, by its path in normal form; `None` if it is outside of the profile's
    /// base paths.
    pub(crate) async fn admit_http(
        &self,
        parts: &Parts,
        path: &str,
        caller: &Caller,
        route: &RouteConfig,
    ) -> Result<Option<Ticket>, NotAdmitted> {
        let Some(path) = self.engine.without_base(path) else {
            return Ok(None);
        };
        let user = self.identity.key(&parts.headers, &caller.extensions).ok();
        let user = user
            .as_ref()
            .map(|key| String::from_utf8_lossy(key.as_ref()));
        let fields = HttpHeaders(&parts.headers);
        let query = parts.uri.query().unwrap_or_default();
        let mut request = Request::new(parts.method.as_str(), path, query);
        request.path_rules = self.path_rules;
        request.headers = &fields;
        request.user = user.as_deref();
        let certificate = caller.certificate.as_ref();
        request.participant = certificate.map(|certificate| certificate.name.as_str());
        request.class = class_of(&self.classes, caller, &parts.headers, route.class);
        let wait = self.wait(&parts.headers, route);
        let caller = request.user.or(request.participant).unwrap_or_default();
        self.admit(&request, caller, wait).await.map(Some)
    }

    /// The hash of a caller's key, as other log lines show it; `None` without a key.
    pub(crate) fn caller_hash(&self, headers: &HeaderMap, caller: &Caller) -> Option<String> {
        let key = self.identity.key(headers, &caller.extensions).ok()?;
        Some(key_hash(&self.log_salt, key.as_ref()))
    }

    /// How long a request waits for tokens: what it asks for, within the route's maximum, or else the
    /// route's own time.
    pub(crate) fn wait(&self, headers: &HeaderMap, route: &RouteConfig) -> Duration {
        if route.wait_max.is_zero() {
            return Duration::ZERO;
        }
        let asked = headers.get(&self.wait_header);
        let asked = asked.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        asked.map_or(route.wait, |ms| {
            Duration::from_millis(ms).min(route.wait_max)
        })
    }
}

/// The share of a policy's buckets that only the gateway's reconciliations may use, in percent.
fn kept_for_reconciliation(policy: &str, dict: Option<&DictConfig>) -> Option<u64> {
    let dict = dict.filter(|dict| dict.reconcile.is_some())?;
    RECONCILIATION_POLICIES
        .contains(&policy)
        .then_some(dict.reconcile_reserve_percent)
}

/// The salt of `RL_LOG_SALT`, or one that nobody knows.
fn log_salt() -> Arc<[u8]> {
    let random = |_| fastrand::u128(..).to_le_bytes().into();
    std::env::var("RL_LOG_SALT").map_or_else(random, |salt| salt.into_bytes().into())
}

/// A profile with the reserves and the shadow mode of the configuration.
fn applied(profile: &Profile, config: &Config) -> Profile {
    let LimitingConfig {
        shadow, reserves, ..
    } = &config.limiting;
    let mut applied = profile.clone();
    for policy in profile.policies() {
        let mut changed = Cow::Borrowed(policy);
        let is_shadow = match shadow {
            Shadow::All => true,
            Shadow::Some(names) => names.iter().any(|name| name == policy.name()),
        };
        if is_shadow {
            changed = Cow::Owned(changed.into_owned().with_mode(Mode::Shadow));
        }
        for reserve in reserves.iter().filter(|one| one.policy == policy.name()) {
            let class = config.classes[reserve.class].name.as_str();
            let policy = changed.into_owned().with_reserve(class, reserve.percent);
            changed = Cow::Owned(policy);
        }
        if let Some(percent) = kept_for_reconciliation(policy.name(), config.dict.as_ref()) {
            let policy = changed.into_owned();
            changed = Cow::Owned(policy.with_reserve(RECONCILIATION_CLASS, percent));
        }
        if let Cow::Owned(changed) = changed {
            applied = applied.with_policy(changed);
        }
    }
    applied
}
