//! The whole service: built from a configuration, reloaded, run.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use balde::options::{ReloadError, StorageChoice};
use balde::telemetry::Metrics;
use balde::{BuildError, Clock};
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::Access;
use crate::config::{Config, ListenerConfig};
use crate::decisions::{DecisionLimits, Decisions, DynamicOptions};
use crate::http::HttpServer;
use crate::listener::{Listener, Protocol, SharedTls};
use crate::metrics::{ProtocolMetrics, ServiceMetrics};
use crate::resp::RespServer;
use crate::shutdown;
use crate::state::StateEndpoint;
use crate::tls::TlsError;

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
///     listen = "127.0.0.1:0"
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
    access: Arc<RwLock<Access>>,
    metrics: Metrics,
    counters: Arc<ServiceMetrics>,
    state: Option<Arc<StateEndpoint>>,
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
        let redis = match config.dynamic.storage {
            StorageChoice::Memory => None,
            StorageChoice::Redis(on_failure) => {
                limiters.redis_store()?.map(|store| (store, on_failure))
            }
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
        };
        let decisions = Decisions::new(limiters, dynamic, &limits, &metrics)?;
        let counters = ServiceMetrics::registered(&metrics);
        let source = decisions.clone();
        metrics.add_source(move |writer| source.write(writer));
        let access = Arc::new(RwLock::new(config.access.clone()));
        let state = config.state.as_ref().map(|state| {
            let endpoint = StateEndpoint::new(&state.token, metrics.clone(), decisions.clone());
            Arc::new(endpoint)
        });
        let protocols = protocols(config, &decisions, &access, &counters)?;
        Ok(Self(Arc::new(Inner {
            config: RwLock::new(config.clone()),
            decisions,
            access,
            metrics,
            counters,
            state,
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
            let listener = listener(config, protocol.name);
            let tls = listener.map(|listener| listener.tls(protocol.server.alpn()));
            certificates.push(tls.transpose()?.flatten());
        }
        let running = &self.0.decisions.named().limiters;
        let limiters = config.options.reload(&current.options, running)?;
        self.0.decisions.replace(limiters, config.server.wait_max);
        for (protocol, tls) in self.0.protocols.iter().zip(certificates) {
            *protocol.tls.write() = tls;
        }
        *self.0.access.write() = config.access.clone();
        if let (Some(endpoint), Some(state)) = (&self.0.state, &config.state) {
            endpoint.set_token(&state.token);
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

    /// Announces that the service is about to end: from now on `/readyz` on the state endpoint is 503.
    /// The service still accepts and serves everything.
    pub fn drain(&self) {
        if let Some(state) = &self.0.state {
            state.drain();
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
            if let Some(listener) = listener(&config, protocol.name) {
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
            let metrics = Arc::clone(&protocol.metrics);
            match protocol.server.clone() {
                AnyServer::Http(server) => {
                    tasks.spawn(listener.serve(server, metrics, ended.clone(), timeout));
                }
                AnyServer::Resp(server) => {
                    tasks.spawn(listener.serve(server, metrics, ended.clone(), timeout));
                }
            }
        }
        if let (Some(listener), Some(endpoint)) = (self.state, &inner.state) {
            tasks.spawn(Arc::clone(endpoint).serve(listener, ended.clone()));
        }
        tasks.spawn(expire_holds(inner.decisions.clone(), ended.clone()));
        shutdown.await;
        let _all_have_ended = end.send(true);
        while tasks.join_next().await.is_some() {}
        inner.decisions.close().await;
    }
}

impl AnyServer {
    fn alpn(&self) -> &'static [&'static [u8]] {
        match self {
            Self::Http(server) => server.alpn(),
            Self::Resp(server) => server.alpn(),
        }
    }
}

fn protocols(
    config: &Config,
    decisions: &Decisions,
    access: &Arc<RwLock<Access>>,
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
        let server = HttpServer::new(http, decisions.clone(), Arc::clone(access), metrics);
        let metrics = Arc::clone(&counters.http);
        add(
            "http",
            &http.listener,
            AnyServer::Http(Arc::new(server)),
            metrics,
        )?;
    }
    if let Some(resp) = &config.resp {
        let metrics = Arc::clone(&counters.resp);
        let server = RespServer::new(resp, decisions.clone(), Arc::clone(access), metrics);
        let metrics = Arc::clone(&counters.resp);
        add(
            "resp",
            &resp.listener,
            AnyServer::Resp(Arc::new(server)),
            metrics,
        )?;
    }
    Ok(protocols)
}

fn listener<'c>(config: &'c Config, name: &str) -> Option<&'c ListenerConfig> {
    match name {
        "http" => config.http.as_ref().map(|http| &http.listener),
        "resp" => config.resp.as_ref().map(|resp| &resp.listener),
        _ => None,
    }
}

/// What differs that a reload cannot change.
fn needs_restart(current: &Config, config: &Config) -> Option<&'static str> {
    let state = |config: &Config| config.state.as_ref().map(|state| state.address);
    let fixed = |config: &Config| {
        let listener = |listener: &ListenerConfig| ListenerConfig {
            identity: None,
            client_ca: None,
            is_client_required: false,
            ..listener.clone()
        };
        let http = config.http.clone().map(|mut http| {
            http.listener = listener(&http.listener);
            http
        });
        let resp = config.resp.clone().map(|mut resp| {
            resp.listener = listener(&resp.listener);
            resp
        });
        (http, resp)
    };
    let server = |config: &Config| crate::config::ServerConfig {
        wait_max: Duration::ZERO,
        drain_delay: Duration::ZERO,
        shutdown_timeout: Duration::ZERO,
        ..config.server.clone()
    };
    if fixed(current) != fixed(config) {
        return Some("what a protocol's section says besides its certificates");
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
            () = shutdown::begun(&mut shutdown) => return,
        }
    }
}
