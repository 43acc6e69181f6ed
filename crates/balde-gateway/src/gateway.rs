//! The whole gateway: built from a configuration, reloaded, run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde::http::ConnectionSlots;
use balde::telemetry::{LogThrottle, Metrics, MetricsWriter, dropped_log_lines};
use balde::{BuildError, Clock};
use balde_config::ConfigError;
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::body::RequestBody;
use crate::certificates::CertificateExpiry;
use crate::config::Config;
use crate::descriptors::ConnectionLimits;
use crate::dict::Dict;
use crate::held_responses::CutReason;
use crate::limits::{EngineOptions, Limits};
use crate::metrics::GatewayMetrics;
use crate::proxy::{Listener, ProxyFields, Route, Routing, Shared, serve};
use crate::state::{self, Readiness, StateEndpoint};
use crate::upstream::Upstream;
use balde_net::tls::TlsError;

/// A gateway. Clones share everything.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use balde_gateway::{Config, Gateway};
///
/// let config = Config::parse(
///     r#"
///     [[listener]]
///     address = "127.0.0.1:0"
///
///     [[upstream]]
///     name = "shop"
///     url = "http://127.0.0.1:9000"
///
///     [[route]]
///     path = "/"
///     upstream = "shop"
///
///     [[policies.policy]]
///     name = "searches"
///     match = ["GET /search"]
///     scope = "user"
///     limit = "2/s burst 20"
///     "#,
///     "gateway.toml",
///     std::path::Path::new(""),
///     |_variable| None,
/// )?;
/// let gateway = Gateway::build(&config)?;
/// let bound = gateway.bind().await?;
/// println!("listening on {:?}", bound.addresses());
/// // This example shuts down at once; a program waits for a signal.
/// bound.run(async {}).await;
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    metrics: Metrics,
    config: RwLock<Config>,
    certificate_expiry: CertificateExpiry,
    /// The certificates of the listeners, in their order.
    tls: Vec<Arc<RwLock<Option<Arc<rustls::ServerConfig>>>>>,
    state: Option<Arc<StateEndpoint>>,
}

/// Why a gateway could not be built or reloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// Certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The policies cannot be enforced.
    #[error(transparent)]
    Limits(#[from] BuildError),
    /// The profile cannot be used in front of DICT.
    #[error(transparent)]
    Profile(#[from] ConfigError),
    /// A reload would change what needs a restart.
    #[error("{what} cannot be changed while the gateway runs: restart it")]
    NeedsRestart {
        /// What would change.
        what: &'static str,
    },
}

impl Gateway {
    /// Builds a gateway. It does not listen yet.
    pub fn build(config: &Config) -> Result<Self, GatewayError> {
        Self::build_with(config, Clock::precise())
    }

    /// Builds a gateway whose buckets use this clock.
    pub fn build_with(config: &Config, clock: Clock) -> Result<Self, GatewayError> {
        let metrics = Metrics::new();
        let counters = GatewayMetrics::registered(&metrics);
        let options = EngineOptions {
            clock: clock.clone(),
            metrics: metrics.clone(),
        };
        let profile = config.limiting.profile.as_ref();
        let (limits, dict) = match (profile, &config.dict) {
            (None, _) => (None, None),
            (Some(profile), None) => {
                let limits = Limits::new(config, profile, &options, |builder| builder)?;
                (Some(limits), None)
            }
            (Some(profile), Some(of_dict)) => {
                let salt = std::env::var("RL_LOG_SALT").ok();
                let mut dict = Dict::new(of_dict, profile, &clock, salt.as_deref())?;
                let mirrored = dict.mirrored();
                let limits = Limits::new(config, &mirrored, &options, |builder| {
                    dict.configure(builder)
                })?;
                dict.set_limits(&limits)?;
                let dict = Arc::new(dict);
                let source = Arc::clone(&dict);
                metrics.add_source(move |writer| write_dict(&source, writer));
                (Some(limits), Some(dict))
            }
        };
        let connections = ConnectionLimits::new(config);
        let routes = routes(config, &connections, &counters, &[])?;
        let readiness = Arc::new(Readiness::default());
        let shared = Arc::new(Shared {
            routing: RwLock::new(Arc::new(Routing {
                server: config.server.clone(),
                paths: config.paths,
                proxy_fields: ProxyFields::new(config),
                routes,
                limits: limits.map(Arc::new),
                dict,
            })),
            metrics: counters.clone(),
            clock: clock.clone(),
            permits: Arc::new(Semaphore::new(connections.clients)),
            slots: ConnectionSlots::new(connections.clients),
            readiness: Arc::clone(&readiness),
            handshake_failures: LogThrottle::new(),
            connections: AtomicU64::new(0),
        });
        let watched = Arc::clone(&shared);
        metrics.add_source(move |writer| write_shared(&watched, writer));
        let certificate_expiry = CertificateExpiry::registered(&metrics);
        certificate_expiry.set(config);
        let mut tls = Vec::new();
        for listener in &config.listeners {
            tls.push(Arc::new(RwLock::new(listener.tls()?)));
        }
        let state = config.state.as_ref().map(|state| {
            let (shared, of_upstreams) = (Arc::clone(&shared), Arc::clone(&shared));
            Arc::new(StateEndpoint {
                token: RwLock::new(state.token.clone()),
                metrics: metrics.clone(),
                counters,
                clock,
                current: Box::new(move || {
                    let routing = shared.routing();
                    (routing.limits.clone(), routing.dict.clone())
                }),
                readiness,
                upstreams: Box::new(move || of_upstreams.routing().upstreams()),
            })
        });
        Ok(Self(Arc::new(Inner {
            shared,
            metrics,
            config: RwLock::new(config.clone()),
            certificate_expiry,
            tls,
            state,
        })))
    }

    /// Applies another configuration. Requests in flight end under the old one, and buckets, pooled
    /// connections and counters stay. On an error, nothing has changed.
    pub fn reload(&self, config: &Config) -> Result<(), GatewayError> {
        let applied = self.try_reload(config);
        self.0.shared.metrics.count_reload(applied.is_ok());
        applied
    }

    /// Counts a reload whose file could not be read, so that nothing was applied.
    pub fn reload_refused(&self) {
        self.0.shared.metrics.count_reload(false);
    }

    fn try_reload(&self, config: &Config) -> Result<(), GatewayError> {
        let mut current = self.0.config.write();
        let restart = |what| Err(GatewayError::NeedsRestart { what });
        if !config.addresses().eq(current.addresses()) {
            return restart("the addresses of the listeners");
        }
        let address = |config: &Config| config.state.as_ref().map(|state| state.address);
        if address(config) != address(&current) {
            return restart("the address of the state endpoint");
        }
        if config.limiting.storage != current.limiting.storage {
            return restart("where buckets are kept");
        }
        if config.limiting.holds != current.limiting.holds {
            return restart("`hold_ttl` or `expired_holds`");
        }
        if config.limiting.denials != current.limiting.denials {
            return restart("which refusals are logged");
        }
        if config.dict.is_some() != current.dict.is_some()
            || config.limiting.profile.is_some() != current.limiting.profile.is_some()
        {
            return restart("whether there are policies, or a DICT,");
        }
        if config.limiting.reserves.is_empty() != current.limiting.reserves.is_empty()
            && config.dict.is_none()
        {
            return restart("whether there are reserves");
        }
        if config.limiting.keys_max != current.limiting.keys_max {
            return restart("the most buckets in memory");
        }
        if config.server.connections_max != current.server.connections_max
            || config.server.workers != current.server.workers
        {
            return restart("the number of workers or client connections");
        }
        // Everything that can fail comes first.
        let mut tls = Vec::new();
        for listener in &config.listeners {
            tls.push(listener.tls()?);
        }
        let before = self.0.shared.routing();
        let connections = ConnectionLimits::new(config);
        let metrics = &self.0.shared.metrics;
        let routes = routes(config, &connections, metrics, &before.routes)?;
        let limits = match (&before.limits, &config.limiting.profile, &before.dict) {
            (Some(limits), Some(profile), None) => {
                Some(Arc::new(limits.reloaded(config, profile)?))
            }
            (Some(limits), Some(profile), Some(dict)) => {
                if dict.table.profile() != profile {
                    return restart("DICT's profile");
                }
                let before = dict.config();
                if let Some(of_dict) = &config.dict {
                    dict.reload(of_dict);
                }
                match limits.reloaded(config, &dict.mirrored()) {
                    Ok(limits) => Some(Arc::new(limits)),
                    Err(error) => {
                        dict.reload(&before);
                        let _limits_as_before = dict.mirrored();
                        return Err(error.into());
                    }
                }
            }
            _ => None,
        };
        for (own, new) in self.0.tls.iter().zip(tls) {
            *own.write() = new;
        }
        if let (Some(endpoint), Some(state)) = (&self.0.state, &config.state) {
            endpoint.token.write().clone_from(&state.token);
        }
        *self.0.shared.routing.write() = Arc::new(Routing {
            server: config.server.clone(),
            paths: config.paths,
            proxy_fields: ProxyFields::new(config),
            routes,
            limits,
            dict: before.dict.clone(),
        });
        self.0.certificate_expiry.set(config);
        *current = config.clone();
        Ok(())
    }

    /// The metrics of the gateway and its limiters.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Reconciles the mirrored buckets with DICT now, instead of at the next regular time. Does
    /// nothing without a DICT.
    pub async fn reconcile(&self) {
        let routing = self.0.shared.routing();
        if let (Some(dict), Some(limits)) = (&routing.dict, &routing.limits)
            && let Some(upstream) = dict_upstream(&routing, dict)
        {
            dict.reconcile_all(limits, &upstream).await;
        }
    }

    /// Announces that the gateway is about to end: from now on `/readyz` on the state endpoint is
    /// 503, and responses over HTTP/1 ask the client to close the connection. The gateway still
    /// accepts and serves everything. A program calls this some seconds before it completes the
    /// future that it passed to [`Bound::run`], so that balancers have noticed.
    pub fn drain(&self) {
        self.0.shared.readiness.drain();
    }

    /// How long a program should wait between [`drain`](Gateway::drain) and the end of the gateway,
    /// as the current file says.
    pub fn drain_delay(&self) -> Duration {
        self.0.config.read().server.drain_delay
    }

    /// Binds all addresses.
    pub async fn bind(&self) -> io::Result<Bound> {
        let config = self.0.config.read().clone();
        let mut listeners = Vec::new();
        for (listener, tls) in config.listeners.iter().zip(&self.0.tls) {
            let socket = balde::http::listen(listener.address).await;
            let socket = socket.map_err(|error| with_address(&error, listener.address))?;
            listeners.push(Listener {
                socket,
                tls: Arc::clone(tls),
            });
        }
        let state = match &config.state {
            Some(state) => {
                let socket = balde::http::listen(state.address).await;
                Some(socket.map_err(|error| with_address(&error, state.address))?)
            }
            None => None,
        };
        Ok(Bound {
            gateway: self.clone(),
            listeners,
            state,
        })
    }
}

fn with_address(error: &io::Error, address: SocketAddr) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("config", &*self.0.config.read())
            .finish_non_exhaustive()
    }
}

/// A gateway that listens, and serves once it [runs](Bound::run).
#[derive(Debug)]
pub struct Bound {
    gateway: Gateway,
    listeners: Vec<Listener>,
    state: Option<TcpListener>,
}

impl Bound {
    /// The addresses of the listeners, in the order of the file.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.listeners.iter();
        addresses
            .filter_map(|listener| listener.socket.local_addr().ok())
            .collect()
    }

    /// The address of the state endpoint.
    pub fn state_address(&self) -> Option<SocketAddr> {
        self.state.as_ref()?.local_addr().ok()
    }

    /// The gateway, to reload it while it runs.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Serves until `shutdown` completes. Requests in flight are then answered and settled, within
    /// the server's timeout.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let inner = &self.gateway.0;
        let (end, ended) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for listener in self.listeners {
            let shared = Arc::clone(&inner.shared);
            tasks.spawn(serve(shared, listener, ended.clone()));
        }
        if let (Some(listener), Some(endpoint)) = (self.state, &inner.state) {
            tasks.spawn(state::serve(Arc::clone(endpoint), listener, ended.clone()));
        }
        let routing = inner.shared.routing();
        if let Some(dict) = &routing.dict {
            let (of_limits, of_upstream) = (Arc::clone(&inner.shared), Arc::clone(&inner.shared));
            let own = Arc::clone(dict);
            let limits = move || of_limits.routing().limits.clone();
            let upstream = move || dict_upstream(&of_upstream.routing(), &own);
            tasks.spawn(Arc::clone(dict).reconcile_until(limits, upstream, ended.clone()));
        }
        drop(routing);
        shutdown.await;
        let _all_have_ended = end.send(true);
        while tasks.join_next().await.is_some() {}
        let limits = inner.shared.routing().limits.clone();
        if let Some(limits) = limits {
            limits.engine().settled().await;
        }
    }
}

/// The routes of a configuration. Upstreams that have not changed keep their connections.
fn routes(
    config: &Config,
    connections: &ConnectionLimits,
    metrics: &GatewayMetrics,
    before: &[Route],
) -> Result<Vec<Route>, TlsError> {
    let mut upstreams: Vec<Arc<Upstream<RequestBody>>> = Vec::new();
    for (one, connections_max) in config.upstreams.iter().zip(&connections.upstreams) {
        let same = before
            .iter()
            .find(|route| route.upstream.config() == one)
            .map(|route| Arc::clone(&route.upstream));
        upstreams.push(match same {
            Some(upstream) => upstream,
            None => Arc::new(Upstream::new(one.clone(), *connections_max)?),
        });
    }
    let mut routes: Vec<Route> = config
        .routes
        .iter()
        .map(|route| {
            let upstream = Arc::clone(&upstreams[route.upstream]);
            Route {
                metrics: metrics.route(&route.name),
                upstream_metrics: metrics.upstream(&upstream.config().name),
                upstream,
                config: route.clone(),
            }
        })
        .collect();
    Routing::sort(&mut routes);
    Ok(routes)
}

/// The upstream that is DICT.
fn dict_upstream(routing: &Routing, dict: &Dict) -> Option<Arc<Upstream<RequestBody>>> {
    let name = &dict.config().upstream;
    let mut routes = routing.routes.iter();
    let found = routes.find(|route| route.upstream.config().name == *name)?;
    Some(Arc::clone(&found.upstream))
}

fn write_shared(shared: &Shared, writer: &mut MetricsWriter<'_>) {
    let routing = shared.routing();
    let up: BTreeMap<&str, bool> = routing
        .routes
        .iter()
        .map(|route| {
            let upstream = &route.upstream;
            (upstream.config().name.as_str(), upstream.is_up())
        })
        .collect();
    let lines = up
        .iter()
        .map(|(name, is_up)| ([("upstream", *name)], u64::from(*is_up)));
    writer.gauge(
        "gateway_upstream_up",
        "1 if the upstream is not known to be down.",
        lines,
    );
    let cuts: BTreeMap<(&str, &str), u64> = routing
        .routes
        .iter()
        .flat_map(|route| {
            let upstream = &route.upstream;
            let name = upstream.config().name.as_str();
            let reasons = CutReason::ALL.into_iter();
            reasons.map(move |reason| ((name, reason.as_str()), upstream.cuts(reason)))
        })
        .collect();
    let lines = cuts
        .iter()
        .map(|((name, reason), cuts)| ([("upstream", *name), ("reason", *reason)], *cuts));
    writer.counter(
        "gateway_slow_responses_cut",
        "Responses that were cut because their clients took them too slowly, by reason.",
        lines,
    );
    let none: &[(&str, &str)] = &[];
    writer.counter(
        "gateway_idle_connections_closed",
        "Idle connections of clients that were closed for new ones.",
        [(none, shared.slots.evicted())],
    );
    writer.counter(
        "balde_log_lines_dropped",
        "Log lines that were dropped because standard output did not keep up.",
        [(none, dropped_log_lines())],
    );
    let waiting = routing.limits.as_ref().map_or(0, |limits| limits.waiting());
    let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
    writer.gauge(
        "gateway_waiting_requests",
        "Requests that wait for tokens.",
        [(none, waiting)],
    );
}

fn write_dict(dict: &Dict, writer: &mut MetricsWriter<'_>) {
    let none: &[(&str, &str)] = &[];
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let counters = &dict.counters;
    writer.counter(
        "gateway_dict_refusals",
        "Requests that DICT answered with 429.",
        [(none, load(&counters.refusals))],
    );
    writer.counter(
        "gateway_dict_unknown_outcomes",
        "Requests whose outcome is not known, settled at their highest price.",
        [(none, load(&counters.doubts))],
    );
    writer.counter(
        "gateway_dict_reconciliations",
        "Comparisons with the levels that DICT reports, by result.",
        [
            ([("result", "ok")], load(&counters.reconciled)),
            ([("result", "failed")], load(&counters.not_reconciled)),
        ],
    );
    writer.gauge(
        "gateway_dict_reconciled_timestamp_seconds",
        "When a participant's buckets were last reconciled, in Unix time.",
        [(none, load(&counters.reconciled_us) / 1_000_000)],
    );
    writer.counter(
        "gateway_dict_orders",
        "Payment orders, by whether they gave tokens back.",
        [
            ([("credited", "true")], load(&counters.credited)),
            ([("credited", "false")], load(&counters.not_credited)),
        ],
    );
    let drift = dict.drift.lock().clone();
    let lines = drift.iter().map(|((participant, policy), drift)| {
        let direction = if *drift >= 0 { "missing" } else { "surplus" };
        let labels = [
            ("participant", participant.as_str()),
            ("policy", policy.as_str()),
            ("direction", direction),
        ];
        (labels, drift.unsigned_abs())
    });
    writer.gauge(
        "gateway_dict_drift_tokens",
        "Tokens by which DICT's bucket differed from the mirrored one, when they were last compared.",
        lines,
    );
    let withheld = dict.external_usage.all();
    let lines = withheld.iter().map(|((participant, policy), tokens)| {
        let labels = [
            ("participant", participant.as_str()),
            ("policy", policy.as_str()),
        ];
        (labels, *tokens)
    });
    writer.gauge(
        "gateway_dict_withheld_tokens",
        "Tokens withheld for others who use the same quota, when levels were last compared.",
        lines,
    );
    write_duties(dict, writer);
}

fn write_duties(dict: &Dict, writer: &mut MetricsWriter<'_>) {
    let now_us = dict.clock.now_us();
    let participants = dict.duties.participants();
    let counts: Vec<_> = participants
        .iter()
        .map(|participant| (participant, dict.duties.of(participant, now_us)))
        .collect();
    let lines = counts.iter().map(|(participant, counts)| {
        let labels = [("participant", participant.as_str())];
        (labels, counts.not_found_permille())
    });
    writer.gauge(
        "gateway_dict_not_found_permille",
        "Lookups of keys that do not exist, in thousandths of all lookups of 24 hours.",
        lines.clone(),
    );
    writer.ratio(
        "gateway_dict_not_found",
        "Lookups of keys that do not exist, as a share of all lookups of 24 hours.",
        lines,
    );
    let lines = counts.iter().filter_map(|(participant, counts)| {
        let labels = [("participant", participant.as_str())];
        Some((labels, counts.lookups_per_order_permille()?))
    });
    writer.gauge(
        "gateway_dict_lookups_per_order_permille",
        "Lookups for each payment order within 24 hours, in thousandths.",
        lines.clone(),
    );
    writer.ratio(
        "gateway_dict_lookups_per_order",
        "Lookups for each payment order within 24 hours.",
        lines,
    );
    let worst: Vec<_> = participants
        .iter()
        .flat_map(|participant| {
            let lookups_min = dict.config().worst_payer_lookups;
            let worst = dict.duties.worst(participant, lookups_min, now_us);
            worst.into_iter().map(move |payer| (participant, payer))
        })
        .collect();
    let lines = worst.iter().map(|(participant, payer)| {
        let labels = [
            ("participant", participant.as_str()),
            ("payer_hash", payer.payer_hash.as_str()),
        ];
        (labels, payer.not_found_permille)
    });
    writer.gauge(
        "gateway_dict_worst_payer_not_found_permille",
        "The payers with most lookups of keys that do not exist, in thousandths of their lookups.",
        lines.clone(),
    );
    writer.ratio(
        "gateway_dict_worst_payer_not_found",
        "The payers with most lookups of keys that do not exist, as a share of their lookups.",
        lines,
    );
    let lines = worst.iter().map(|(participant, payer)| {
        let labels = [
            ("participant", participant.as_str()),
            ("payer_hash", payer.payer_hash.as_str()),
        ];
        (labels, payer.counts.refused)
    });
    writer.gauge(
        "gateway_dict_worst_payer_refused_lookups",
        "The same payers' lookups that were refused with 429 within the last 12 to 24 hours.",
        lines,
    );
}
