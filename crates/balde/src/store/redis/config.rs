//! The settings of a store, checked before it connects. Error messages never contain a password.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::io::tcp::TcpSettings;
use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    TlsCertificates,
};

use super::link::{SingleServer, Target};
use super::{RedisStore, Settings, stream};
use crate::error::RedisConfigError;

/// The longest timeout of a call to Redis.
pub const REDIS_TIMEOUT_MAX: Duration = Duration::from_millis(100);

const TIMEOUT_DEFAULT: Duration = Duration::from_millis(50);
const CONNECTIONS_DEFAULT: usize = 2;
const CONNECTIONS_MAX: usize = 64;

/// For each node. A dead node must not delay the others for long.
const CLUSTER_CONNECT_WITHIN: Duration = Duration::from_millis(250);

/// Configures a [`RedisStore`]. Only the address has no default.
///
/// ```
/// use balde::RedisStore;
/// use std::time::Duration;
///
/// let store = RedisStore::builder()
///     .address("redis://127.0.0.1:6379")
///     .password("secret")
///     .timeout(Duration::from_millis(30))
///     .build()?;
/// # Ok::<(), balde::RedisConfigError>(())
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct RedisBuilder {
    addresses: Vec<String>,
    is_cluster: bool,
    user: Option<String>,
    password: Option<String>,
    ca: Option<Pem>,
    identity: Option<(Pem, Pem)>,
    connections: usize,
    timeout: Duration,
    prefix: String,
}

/// A certificate or a key: its text, or the file to read it from.
enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

impl RedisBuilder {
    pub(super) fn new() -> Self {
        Self {
            addresses: Vec::new(),
            is_cluster: false,
            user: None,
            password: None,
            ca: None,
            identity: None,
            connections: CONNECTIONS_DEFAULT,
            timeout: TIMEOUT_DEFAULT,
            prefix: "balde".to_owned(),
        }
    }

    /// Connects to one server: `host:port`, `redis://[user:password@]host:port[/database]`, or the
    /// same with `rediss://` for TLS.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses = vec![address.into()];
        self.is_cluster = false;
        self
    }

    /// Connects to a Redis Cluster through some of its nodes, each written as in
    /// [`address`](RedisBuilder::address). The other nodes are discovered.
    pub fn cluster<A: Into<String>>(mut self, addresses: impl IntoIterator<Item = A>) -> Self {
        self.addresses = addresses.into_iter().map(Into::into).collect();
        self.is_cluster = true;
        self
    }

    /// Sets the ACL user. By default the server's default user.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the password. It never appears in logs or errors.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Sets the CA certificates to trust under TLS, as PEM text. By default those of the system.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(Pem::Text(pem.into()));
        self
    }

    /// [`ca_pem`](RedisBuilder::ca_pem) from a file.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(Pem::File(path.into()));
        self
    }

    /// Sets the client certificate chain and its key for mutual TLS, as PEM text.
    pub fn identity_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((Pem::Text(chain.into()), Pem::Text(key.into())));
        self
    }

    /// [`identity_pem`](RedisBuilder::identity_pem) from two files.
    pub fn identity_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((Pem::File(chain.into()), Pem::File(key.into())));
        self
    }

    /// Sets the number of connections, 1 to 64; by default 2. In a Cluster, that many to each node.
    ///
    /// Connections are multiplexed and used in turn: concurrent calls are pipelined.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how long a decision waits for Redis: by default 50 ms, at most [`REDIS_TIMEOUT_MAX`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the prefix of all key names in Redis. By default `balde`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Builds the store. It connects in the background, so the server need not be running yet.
    pub fn build(self) -> Result<RedisStore, RedisConfigError> {
        if self.timeout.is_zero() || self.timeout > REDIS_TIMEOUT_MAX {
            let timeout = self.timeout;
            return Err(RedisConfigError::Timeout { timeout });
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            let connections = self.connections;
            return Err(RedisConfigError::Connections { connections });
        }
        let target = self.target()?;
        let settings = Settings {
            prefix: self.prefix,
            timeout: patient_in_tests(self.timeout),
            connections: self.connections,
            is_cluster: self.is_cluster,
        };
        RedisStore::start(target, settings)
    }

    /// Checks the address and the certificates.
    #[cfg(feature = "options")]
    pub(crate) fn check(&self) -> Result<(), RedisConfigError> {
        self.target().map(|_| ())
    }

    fn target(&self) -> Result<Target, RedisConfigError> {
        let infos = self
            .addresses
            .iter()
            .map(|address| self.info(address))
            .collect::<Result<Vec<_>, _>>()?;
        let is_tls = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let wants_tls = infos.iter().any(is_tls);
        let certificates = self.certificates()?;
        if certificates.is_some() && !wants_tls {
            return Err(tls(
                "certificates are given, but the address does not begin with rediss://",
            ));
        }
        if infos.iter().any(is_insecure) {
            return Err(tls(
                "an address ends with #insecure; certificates are always verified: give the CA's",
            ));
        }
        if wants_tls {
            choose_ring();
        }
        if self.is_cluster {
            return cluster(infos, certificates);
        }
        let info = infos
            .into_iter()
            .next()
            .ok_or(RedisConfigError::NoAddress)?;
        let tls = if wants_tls {
            let config = stream::tls_config(certificates.as_ref()).map_err(tls)?;
            Some(Arc::new(config))
        } else {
            None
        };
        Ok(Target::Single(Box::new(SingleServer { info, tls })))
    }

    fn info(&self, address: &str) -> Result<ConnectionInfo, RedisConfigError> {
        let info = if address.contains("://") {
            address.into_connection_info()
        } else {
            format!("redis://{address}").into_connection_info()
        };
        let info = info.map_err(|_| RedisConfigError::Address)?;
        let mut redis = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        if let Some(user) = &self.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.password {
            redis = redis.set_password(password);
        }
        Ok(info.set_redis_settings(redis))
    }

    fn certificates(&self) -> Result<Option<TlsCertificates>, RedisConfigError> {
        if self.ca.is_none() && self.identity.is_none() {
            return Ok(None);
        }
        let client_tls = match &self.identity {
            Some((chain, key)) => Some(ClientTlsConfig {
                client_cert: chain.read()?,
                client_key: key.read()?,
            }),
            None => None,
        };
        Ok(Some(TlsCertificates {
            client_tls,
            root_cert: self.ca.as_ref().map(Pem::read).transpose()?,
        }))
    }
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, RedisConfigError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => fs::read(path).map_err(|error| RedisConfigError::CertificateFile {
                path: path.clone(),
                kind: error.kind(),
            }),
        }
    }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may carry a password.
        f.debug_struct("RedisBuilder")
            .field("is_cluster", &self.is_cluster)
            .field("connections", &self.connections)
            .field("timeout", &self.timeout)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

fn cluster(
    infos: Vec<ConnectionInfo>,
    certificates: Option<TlsCertificates>,
) -> Result<Target, RedisConfigError> {
    if infos.is_empty() {
        return Err(RedisConfigError::NoAddress);
    }
    // Without retries: the client cannot know which commands are safe to repeat. Without Nagle's
    // algorithm: a call would wait for the acknowledgement of the one before it.
    let mut builder = ClusterClient::builder(infos)
        .retries(0)
        .use_protocol(ProtocolVersion::RESP3)
        .tcp_settings(TcpSettings::default().set_nodelay(true))
        .connection_timeout(CLUSTER_CONNECT_WITHIN)
        .response_timeout(patient_in_tests(REDIS_TIMEOUT_MAX))
        .overall_response_timeout(None);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    let client = builder.build().map_err(|_| RedisConfigError::Address)?;
    Ok(Target::Cluster(Box::new(client)))
}

/// The longest timeout becomes ten seconds in a debug build if `BALDE_TEST_PATIENT_REDIS` is set, so
/// that a busy machine does not fail tests of something other than timeouts.
fn patient_in_tests(timeout: Duration) -> Duration {
    let is_patient = cfg!(debug_assertions)
        && timeout == REDIS_TIMEOUT_MAX
        && std::env::var_os("BALDE_TEST_PATIENT_REDIS").is_some();
    if is_patient {
        Duration::from_secs(10)
    } else {
        timeout
    }
}

/// Installs ring as rustls' crypto provider, unless the process has installed one.
fn choose_ring() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _chosen_meanwhile = rustls::crypto::ring::default_provider().install_default();
    }
}

/// The fragment that switches the verification of certificates off in the redis crate's addresses.
fn is_insecure(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. })
}

fn tls(reason: impl Into<String>) -> RedisConfigError {
    RedisConfigError::Tls {
        reason: reason.into(),
    }
}
