//! The whole service: built from a configuration, reloaded, run.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use balde::http::CachedHeaders;
use balde::options::{Limiters, ReloadError, StorageChoice};
use balde::telemetry::Metrics;
use balde::{BuildError, Clock, StorageMode};
use balde_net::shutdown_begun;
use balde_net::tls::TlsError;
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::SharedAccess;
use crate::config::{Config, ListenerConfig, PoliciesConfig};
use crate::decisions::{DecisionLimits, Decisions, DynamicOptions};
use crate::descriptors::DescriptorRules;
use crate::http::HttpServer;
use crate::listener::{Listener, Protocol, SharedTls};
use crate::metrics::{ProtocolMetrics, ServiceMetrics};
use crate::policies::Policies;
use crate::proxy::{ProxyOptions, ProxyServer};
use crate::resp::RespServer;
use crate::rls::RlsServer;
use crate::state::StateEndpoint;

/// How often holds are looked for whose time is over.
const EXPIRE_INTERVAL: Duration = Duration::from_millis(100);

/// A decision service. Clones share everything.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use balde_service::{Config, Service};
///
/// let config = Config::parse(
///     r#"
///     [limits.per_user]
///     limit = "10/s burst 20"
///
///     [http]
///     address = "127.0.0.1:0"
///     "#,
///     "service.toml",
///     std::path::Path::new(""),
///     |_variable| None,
/// )?;
/// let service = Service::build(&config)?;
/// let bound = service.bind().await?;
/// println!("listening on {:?}", bound.addresses());
/// // This example shuts down at once; a program waits for a signal.
/// bound.run(async {}).await;
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    config: RwLock<Config>,
    decisions: Decisions,
    access: SharedAccess,
    metrics: Metrics,
    counters: Arc<ServiceMetrics>,
    state: Option<Arc<StateEndpoint>>,
    policies: Option<Policies>,
    protocols: Vec<ProtocolServer>,
}

/// A protocol with its listener's certificates.
struct ProtocolServer {
    name: &'static str,
    server: AnyServer,
    metrics: Arc<ProtocolMetrics>,
    tls: SharedTls,
}

#[derive(Clone)]
enum AnyServer {
    Http(Arc<HttpServer>),
    Resp(Arc<RespServer>),
    Rls(Arc<RlsServer>),
    Proxy(Arc<ProxyServer>),
}

/// Why a service could not be built or reloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// Certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The limits cannot be enforced.
    #[error(transparent)]
    Limits(#[from] BuildError),
    /// The limits cannot be changed like this.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// A reload would change what needs a restart.
    #[error("{what} cannot be changed while the service runs: restart it")]
    NeedsRestart {
        /// What would change.
        what: &'static str,
    },
}

impl Service {
    /// Builds a service. It does not listen yet.
    pub fn build(config: &Config) -> Result<Self, ServiceError> {
        let limiters = config.options.build()?;
        let metrics = limiters.metrics().cloned().unwrap_or_else(Metrics::new);
        let policies = config.policies.as_ref();
        let in_redis = |policies: &PoliciesConfig| policies.storage == StorageMode::Redis;
        let is_shared =
            config.dynamic.storage != StorageChoice::Memory || policies.is_some_and(in_redis);
        let store = if is_shared {
            limiters.redis_store()?
        } else {
            None
        };
        let redis = match config.dynamic.storage {
            StorageChoice::Memory => None,
            StorageChoice::Redis(on_failure) => store.clone().map(|store| (store, on_failure)),
        };
        let dynamic = DynamicOptions {
            redis,
            keys_max: config.dynamic.keys_max,
            limits_max: config.dynamic.limits_max,
            clock: Clock::precise(),
        };
        let limits = DecisionLimits {
            in_flight_max: config.server.in_flight_max,
            holds_max: config.server.holds_max,
            blocked_max: config.server.blocked_max,
            wait_max: config.server.wait_max,
            has_top_keys: config.state.is_some(),
        };
        let decisions = Decisions::new(limiters, dynamic, store.clone(), &limits, &metrics)?;
        let counters = ServiceMetrics::registered(&metrics);
        let source = decisions.clone();
        metrics.add_source(move |writer| source.write(writer));
        let access = SharedAccess::new(config.access.clone());
        let state = config.state.as_ref().map(|state| {
            let endpoint = StateEndpoint::new(state, metrics.clone(), decisions.clone());
            Arc::new(endpoint)
        });
        let policies = policies.map(|policies| Policies::new(policies, store.as_ref(), &metrics));
        let policies = policies.transpose()?;
        let parts = Parts {
            decisions: &decisions,
            policies: policies.as_ref(),
            access: &access,
        };
        let protocols = protocols(config, &parts, &counters)?;
        Ok(Self(Arc::new(Inner {
            config: RwLock::new(config.clone()),
            decisions,
            access,
            metrics,
            counters,
            state,
            policies,
            protocols,
        })))
    }

    /// Applies another configuration. Buckets, connections and counters stay. On an error, nothing has
    /// changed.
    pub fn reload(&self, config: &Config) -> Result<(), ServiceError> {
        let applied = self.try_reload(config);
        self.0.counters.count_reload(applied.is_ok());
        applied
    }

    /// Counts a reload whose file could not be read, so that nothing was applied.
    pub fn reload_refused(&self) {
        self.0.counters.count_reload(false);
    }

    fn try_reload(&self, config: &Config) -> Result<(), ServiceError> {
        let mut current = self.0.config.write();
        if let Some(what) = needs_restart(&current, config) {
            return Err(ServiceError::NeedsRestart { what });
        }
        let mut certificates = Vec::new();
        for protocol in &self.0.protocols {
            let listener = config.listener(protocol.name);
            let tls = listener.map(|listener| listener.tls(protocol.server.alpn()));
            certificates.push(tls.transpose()?.flatten());
        }
        let running = &self.0.decisions.named().limiters;
        let limiters = config.options.reload(&current.options, running)?;
        if let (Some(policies), Some(changed)) = (&self.0.policies, &config.policies) {
            policies.replace(changed)?;
        }
        for protocol in &self.0.protocols {
            match (&protocol.server, &config.rls) {
                (AnyServer::Rls(server), Some(rls)) => server.replace(&rls.rules),
                (AnyServer::Proxy(server), _) => server.replace(proxy_options(&limiters)),
                _ => {}
            }
        }
        self.0.decisions.replace(limiters, config.server.wait_max);
        for (protocol, tls) in self.0.protocols.iter().zip(certificates) {
            *protocol.tls.write() = tls;
        }
        self.0.access.replace(config.access.clone());
        if let (Some(endpoint), Some(state)) = (&self.0.state, &config.state) {
            endpoint.replace(state);
        }
        *current = config.clone();
        Ok(())
    }

    /// The metrics of the service and its limiters.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// What runs the commands of all protocols.
    pub fn decisions(&self) -> &Decisions {
        &self.0.decisions
    }

    /// Announces that the service is about to end: from now on `/readyz` on the state endpoint
    /// is 503, and health checks over gRPC say that it does not serve.
    /// The service still accepts and serves everything.
    pub async fn drain(&self) {
        if let Some(state) = &self.0.state {
            state.drain();
        }
        for protocol in &self.0.protocols {
            if let AnyServer::Rls(server) = &protocol.server {
                server.set_serving(false).await;
            }
        }
    }

    /// How long a program should wait between [`drain`](Service::drain) and the end of the service, as
    /// the current file says.
    pub fn drain_delay(&self) -> Duration {
        self.0.config.read().server.drain_delay
    }

    /// Binds all addresses.
    pub async fn bind(&self) -> io::Result<Bound> {
        let config = self.0.config.read().clone();
        let mut listeners = Vec::new();
        for protocol in &self.0.protocols {
            if let Some(listener) = config.listener(protocol.name) {
                let tls = Arc::clone(&protocol.tls);
                listeners.push(Listener::bind(listener, tls).await?);
            }
        }
        let state = match &config.state {
            Some(state) => {
                let address = state.address;
                let socket = balde::http::listen(address).await.map_err(|error| {
                    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
                })?;
                Some(socket)
            }
            None => None,
        };
        Ok(Bound {
            service: self.clone(),
            listeners,
            state,
        })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("config", &*self.0.config.read())
            .finish_non_exhaustive()
    }
}

/// A service that listens, and serves once it [runs](Bound::run).
#[derive(Debug)]
pub struct Bound {
    service: Service,
    /// In the order of the protocols.
    listeners: Vec<Listener>,
    state: Option<TcpListener>,
}

impl Bound {
    /// The address of each protocol, with the protocol's name.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let protocols = self.service.0.protocols.iter().zip(&self.listeners);
        protocols
            .filter_map(|(protocol, listener)| Some((protocol.name, listener.address()?)))
            .collect()
    }

    /// The URL of each protocol, with the protocol's name.
    pub fn urls(&self) -> Vec<(&'static str, String)> {
        let protocols = self.service.0.protocols.iter().zip(&self.listeners);
        let url = |(protocol, listener): (&ProtocolServer, &Listener)| {
            let address = listener.address()?;
            let scheme = match (protocol.name, protocol.tls.read().is_some()) {
                ("resp", false) => "redis",
                ("resp", true) => "rediss",
                (_, false) => "http",
                (_, true) => "https",
            };
            Some((protocol.name, format!("{scheme}://{address}/")))
        };
        protocols.filter_map(url).collect()
    }

    /// The address of the state endpoint.
    pub fn state_address(&self) -> Option<SocketAddr> {
        self.state.as_ref()?.local_addr().ok()
    }

    /// Serves until `shutdown` completes. Requests in flight are then answered, within the server's
    /// timeout; tokens on lease go back, and holds that are open stay charged or are given back as their
    /// callers said.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let inner = &self.service.0;
        let (end, ended) = watch::channel(false);
        let timeout = inner.config.read().server.shutdown_timeout;
        let mut tasks = JoinSet::new();
        for (protocol, listener) in inner.protocols.iter().zip(self.listeners) {
            let (server, metrics) = (protocol.server.clone(), Arc::clone(&protocol.metrics));
            let ended = ended.clone();
            tasks.spawn(async move {
                match server {
                    AnyServer::Http(server) => {
                        listener.serve(server, metrics, ended, timeout).await;
                    }
                    AnyServer::Resp(server) => {
                        listener.serve(server, metrics, ended, timeout).await;
                    }
                    AnyServer::Rls(server) => {
                        server.set_serving(true).await;
                        listener.serve(server, metrics, ended, timeout).await;
                    }
                    AnyServer::Proxy(server) => {
                        listener.serve(server, metrics, ended, timeout).await;
                    }
                }
            });
        }
        if let (Some(listener), Some(endpoint)) = (self.state, &inner.state) {
            tasks.spawn(Arc::clone(endpoint).serve(listener, ended.clone()));
        }
        tasks.spawn(expire_holds(inner.decisions.clone(), ended.clone()));
        shutdown.await;
        let _all_have_ended = end.send(true);
        while tasks.join_next().await.is_some() {}
        inner.decisions.close().await;
        if let Some(policies) = &inner.policies {
            policies.settled().await;
        }
    }
}

impl AnyServer {
    fn alpn(&self) -> &'static [&'static [u8]] {
        match self {
            Self::Http(server) => server.alpn(),
            Self::Resp(server) => server.alpn(),
            Self::Rls(server) => server.alpn(),
            Self::Proxy(server) => server.alpn(),
        }
    }
}

/// What the servers of the protocols are made of.
struct Parts<'s> {
    decisions: &'s Decisions,
    policies: Option<&'s Policies>,
    access: &'s SharedAccess,
}

fn protocols(
    config: &Config,
    parts: &Parts<'_>,
    counters: &ServiceMetrics,
) -> Result<Vec<ProtocolServer>, ServiceError> {
    let mut protocols = Vec::new();
    let mut add = |name, listener: &ListenerConfig, server: AnyServer, metrics| {
        let tls = listener.tls(server.alpn())?;
        protocols.push(ProtocolServer {
            name,
            server,
            metrics,
            tls: Arc::new(RwLock::new(tls)),
        });
        Ok::<_, TlsError>(())
    };
    if let Some(http) = &config.http {
        let metrics = Arc::clone(&counters.http);
        let (decisions, access) = (parts.decisions.clone(), parts.access.clone());
        let server = HttpServer::new(http, decisions, access, Arc::clone(&metrics));
        add(
            "http",
            &http.listener,
            AnyServer::Http(Arc::new(server)),
            metrics,
        )?;
    }
    if let Some(resp) = &config.resp {
        let metrics = Arc::clone(&counters.resp);
        let (decisions, access) = (parts.decisions.clone(), parts.access.clone());
        let server = RespServer::new(resp, decisions, access, Arc::clone(&metrics));
        add(
            "resp",
            &resp.listener,
            AnyServer::Resp(Arc::new(server)),
            metrics,
        )?;
    }
    if let Some(rls) = &config.rls {
        let metrics = Arc::clone(&counters.rls);
        let (decisions, access) = (parts.decisions.clone(), parts.access.clone());
        let server = RlsServer::new(rls, decisions, access, Arc::clone(&metrics));
        add(
            "rls",
            &rls.listener,
            AnyServer::Rls(Arc::new(server)),
            metrics,
        )?;
    }
    if let (Some(proxy), Some(policies)) = (&config.proxy, parts.policies) {
        let metrics = Arc::clone(&counters.proxy);
        let options = proxy_options(&parts.decisions.named().limiters);
        let server = ProxyServer::new(proxy, policies.clone(), options, Arc::clone(&metrics));
        add(
            "proxy",
            &proxy.listener,
            AnyServer::Proxy(Arc::new(server)),
            metrics,
        )?;
    }
    Ok(protocols)
}

/// How proxies' clients are identified, and which fields answers have.
fn proxy_options(limiters: &Limiters) -> ProxyOptions {
    ProxyOptions {
        identity: limiters.identity().clone(),
        fields: CachedHeaders::new(limiters.header_options()),
    }
}

/// What differs that a reload cannot change.
fn needs_restart(current: &Config, config: &Config) -> Option<&'static str> {
    let state = |config: &Config| config.state.as_ref().map(|state| state.address);
    // What of a listener can be replaced: its certificates.
    let listener = |listener: &ListenerConfig| ListenerConfig {
        identity: None,
        client_ca: None,
        is_client_required: false,
        ..listener.clone()
    };
    let fixed = |config: &Config| {
        let mut http = config.http.clone();
        let mut resp = config.resp.clone();
        let mut rls = config.rls.clone();
        let mut proxy = config.proxy.clone();
        if let Some(http) = &mut http {
            http.listener = listener(&http.listener);
        }
        if let Some(resp) = &mut resp {
            resp.listener = listener(&resp.listener);
        }
        if let Some(rls) = &mut rls {
            rls.listener = listener(&rls.listener);
            rls.rules = DescriptorRules::default();
        }
        if let Some(proxy) = &mut proxy {
            proxy.listener = listener(&proxy.listener);
        }
        (http, resp, rls, proxy)
    };
    let policies = |config: &Config| {
        let policies = config.policies.as_ref();
        policies.map(|policies| (policies.storage, policies.keys_max))
    };
    let server = |config: &Config| crate::config::ServerConfig {
        wait_max: Duration::ZERO,
        drain_delay: Duration::ZERO,
        shutdown_timeout: Duration::ZERO,
        ..config.server.clone()
    };
    if fixed(current) != fixed(config) {
        return Some("what a protocol's section says besides its certificates and rules");
    }
    if policies(current) != policies(config) {
        return Some("whether there are policies, and where their buckets are kept,");
    }
    if state(current) != state(config) {
        return Some("the address of the state endpoint");
    }
    if server(current) != server(config) {
        return Some("`workers` and the maxima of [server]");
    }
    (current.dynamic != config.dynamic).then_some("[dynamic]")
}

async fn expire_holds(decisions: Decisions, mut shutdown: watch::Receiver<bool>) {
    let mut interval = tokio::time::interval(EXPIRE_INTERVAL);
    loop {
        tokio::select! {
            _ = interval.tick() => decisions.expire_holds(),
            () = shutdown_begun(&mut shutdown) => return,
        }
    }
}
