//! The service's configuration file.
//!
//! The limits, `[redis]`, `[identity]` and `[headers]` are those of an options file of the SDK; the
//! sections of the protocols, of tokens and of the server stand beside them. A file is read and
//! validated as a whole before anything is built; every problem is reported with file, line and
//! column. `docs/service.toml` is a file with every key.

mod listener;
mod policies;
mod protocols;
mod rls;
mod server;
mod tokens;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use balde::Options;
use balde::options::SectionContext;
use balde_config::{ConfigError, Diagnostics, Resolver, Section};

use crate::access::Access;

pub use listener::ListenerConfig;
pub use policies::{PoliciesConfig, ProxyConfig};
pub use protocols::{DynamicConfig, HttpConfig, RespConfig};
pub use rls::RlsConfig;
pub use server::{ServerConfig, StateConfig};

/// The sections of the protocols.
const PROTOCOLS: [&str; 4] = ["http", "resp", "rls", "proxy"];

/// A validated configuration file.
#[derive(Clone)]
pub struct Config {
    /// The limits, Redis, and how clients are identified.
    pub options: Options,
    /// Threads, timeouts, and how many decisions may be under way.
    pub server: ServerConfig,
    /// Who may do what.
    pub access: Access,
    /// JSON over HTTP.
    pub http: Option<HttpConfig>,
    /// The Redis protocol.
    pub resp: Option<RespConfig>,
    /// Envoy's rate limit service.
    pub rls: Option<RlsConfig>,
    /// The questions of proxies.
    pub proxy: Option<ProxyConfig>,
    /// The policies that decide on them.
    pub policies: Option<PoliciesConfig>,
    /// Limits that requests bring along.
    pub dynamic: DynamicConfig,
    /// The endpoint for operators.
    pub state: Option<StateConfig>,
}

/// The sections that stand beside those of the SDK.
struct Sections {
    server: ServerConfig,
    access: Access,
    http: Option<HttpConfig>,
    resp: Option<RespConfig>,
    rls: Option<RlsConfig>,
    proxy: Option<ProxyConfig>,
    policies: Option<PoliciesConfig>,
    dynamic: DynamicConfig,
    state: Option<StateConfig>,
}

impl Config {
    /// Reads a file. Relative paths in it are resolved against its folder.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        let read = Options::read_extended(path, |root, context, diagnostics| {
            Sections::read(root, folder, context, diagnostics)
        });
        read.map(Self::from_parts)
    }

    /// Validates a file on a machine that does not have its secrets: environment variables, keys and
    /// certificates that are missing are no errors. A configuration that was read like this cannot be
    /// run.
    pub fn check_without_secrets(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        let read = Options::check_extended(path, |root, context, diagnostics| {
            Sections::read(root, folder, context, diagnostics)
        });
        read.map(Self::from_parts)
    }

    /// Parses a text with the environment that `variable` describes; `name` is the file name in
    /// messages. An empty variable counts as unset.
    pub fn parse(
        text: &str,
        name: &str,
        folder: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let lookup = |name: &str| variable(name).map(OsString::from);
        let read = Options::parse_extended(text, name, lookup, |root, context, diagnostics| {
            Sections::read(root, folder, context, diagnostics)
        });
        read.map(Self::from_parts)
    }

    fn from_parts((options, sections): (Options, Sections)) -> Self {
        Self {
            options,
            server: sections.server,
            access: sections.access,
            http: sections.http,
            resp: sections.resp,
            rls: sections.rls,
            proxy: sections.proxy,
            policies: sections.policies,
            dynamic: sections.dynamic,
            state: sections.state,
        }
    }

    /// The address of each protocol in the file, with the protocol's name.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let addresses = PROTOCOLS.iter().filter_map(|name| {
            let listener = self.listener(name)?;
            Some((*name, listener.address))
        });
        addresses.collect()
    }

    /// The listener of a protocol.
    pub(crate) fn listener(&self, protocol: &str) -> Option<&ListenerConfig> {
        match protocol {
            "http" => self.http.as_ref().map(|http| &http.listener),
            "resp" => self.resp.as_ref().map(|resp| &resp.listener),
            "rls" => self.rls.as_ref().map(|rls| &rls.listener),
            "proxy" => self.proxy.as_ref().map(|proxy| &proxy.listener),
            _ => None,
        }
    }
}

impl Sections {
    fn read(
        root: &mut Section<'_>,
        folder: &Path,
        context: &SectionContext<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let resolver = Resolver::new(folder, context.environment());
        refuse_telemetry(root, diagnostics);
        let limits = root.get("limits").and_then(|limits| limits.keys());
        let limits = limits.unwrap_or_default();
        let has_redis = context.has_redis() || context.environment().is_assumed();
        if !PROTOCOLS.iter().any(|name| root.contains(name)) {
            let message = "the service listens nowhere; write [http], [resp], [rls] or [proxy] with \
                           `address`";
            diagnostics.at(None, message);
        }
        Self {
            server: server::read(root.table("server", diagnostics), diagnostics),
            access: tokens::read(root, &resolver, diagnostics),
            http: protocols::http(root, &resolver, diagnostics),
            resp: protocols::resp(root, &resolver, diagnostics),
            rls: rls::read(root, &limits, &resolver, diagnostics),
            proxy: policies::proxy(root, &resolver, diagnostics),
            policies: policies::read(root, has_redis, &resolver, diagnostics),
            dynamic: protocols::dynamic(root, context, diagnostics),
            state: server::state(root.table("state", diagnostics), &resolver, diagnostics),
        }
    }
}

/// The command line says how a service logs, as for the gateway.
fn refuse_telemetry(root: &mut Section<'_>, diagnostics: &mut Diagnostics) {
    for (name, remedy) in [
        ("logs", "use `balde serve --log-level` instead"),
        ("tracing", "the service does not export spans"),
    ] {
        if root.contains(name)
            && let Some(span) = root.forbidden(name)
        {
            diagnostics.at(
                span,
                format!("[{name}] is not used in a service's file; {remedy}"),
            );
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and tokens are in here, too.
        f.debug_struct("Config")
            .field("addresses", &self.addresses())
            .field("limits", &self.options.names().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Takes a number of bytes, such as `64 KiB`.
fn size(
    section: &mut Section<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: usize,
    diagnostics: &mut Diagnostics,
) -> usize {
    let bytes = section.size(key, range, diagnostics);
    bytes.map_or(default, |bytes| {
        usize::try_from(bytes.value).unwrap_or(usize::MAX)
    })
}

/// Takes a number that fits `usize`.
fn count(
    section: &mut Section<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: usize,
    diagnostics: &mut Diagnostics,
) -> usize {
    let number = section.integer(key, range, diagnostics);
    number.map_or(default, |number| {
        usize::try_from(number.value).unwrap_or(usize::MAX)
    })
}
