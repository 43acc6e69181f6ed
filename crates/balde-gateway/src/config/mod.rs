//! The gateway's configuration file.
//!
//! A file is read and validated as a whole before anything is built; every problem is reported with
//! file, line and column. `docs/gateway.toml` is a file with every key.

mod dict;
mod limiting;
mod paths;
mod routes;
mod server;
mod upstreams;
mod warnings;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use balde::options::ServiceOptions;
use balde_config::{ConfigError, Diagnostics, Document, Environment, Resolver, Source};

pub use dict::{DictConfig, Refill, UserStart};
pub use limiting::{LimitingConfig, Reserve, Shadow};
pub use paths::{ForwardedPath, MethodOverride, PathsConfig};
pub(crate) use routes::RECONCILIATION_CLASS;
pub use routes::{CallerClass, RouteConfig};
pub use server::{ListenerConfig, ServerConfig, StateConfig};
pub use upstreams::{HostHeader, Protocol, Retry, UpstreamConfig};

/// A validated configuration file.
#[derive(Clone)]
pub struct Config {
    /// The addresses to listen on.
    pub listeners: Vec<ListenerConfig>,
    /// Sizes, timeouts and numbers of connections.
    pub server: ServerConfig,
    /// Which spellings of requests are accepted.
    pub paths: PathsConfig,
    /// The servers that requests are forwarded to.
    pub upstreams: Vec<UpstreamConfig>,
    /// Which requests go to which upstream.
    pub routes: Vec<RouteConfig>,
    /// Groups of callers, which routes and reserves refer to.
    pub classes: Vec<CallerClass>,
    /// Which policies are enforced, and where their buckets are kept.
    pub limiting: LimitingConfig,
    /// How clients are identified, which header fields are written, and where Redis is.
    pub service: ServiceOptions,
    /// The state endpoint.
    pub state: Option<StateConfig>,
    /// What a gateway in front of DICT needs.
    pub dict: Option<DictConfig>,
}

impl Config {
    /// Reads a file. Relative paths in it are resolved against its folder.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::from_source(&Source::read(path)?, folder, Environment::of_process())
    }

    /// Validates a file on a machine that does not have its secrets: environment variables, keys and
    /// certificates that are missing are no errors. A configuration that was read like this cannot be
    /// run.
    pub fn check_without_secrets(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::from_source(&Source::read(path)?, folder, Environment::assumed())
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
        let source = Source::new(name, text);
        Self::from_source(&source, folder, Environment::new(&lookup))
    }

    fn from_source(
        source: &Source,
        folder: &Path,
        environment: Environment<'_>,
    ) -> Result<Self, ConfigError> {
        let resolver = Resolver::new(folder, environment);
        Document::read(source, Diagnostics::new(source), |mut root, diagnostics| {
            let service = ServiceOptions::read(&mut root, environment, diagnostics);
            let mut dict = dict::read(&mut root, diagnostics);
            let server = server::read(root.table("server", diagnostics), diagnostics);
            let paths = paths::read(root.table("paths", diagnostics), diagnostics);
            let listeners = server::listeners(&mut root, &resolver, diagnostics);
            let state = server::state(root.table("state", diagnostics), &resolver, diagnostics);
            let is_dict = dict.is_some();
            let upstreams = upstreams::read(&mut root, is_dict, &resolver, diagnostics);
            let classes = routes::classes(&mut root, diagnostics);
            let routes = routes::read(&mut root, &upstreams, &classes, is_dict, diagnostics);
            let limiting = limiting::read(
                &mut root,
                &service,
                dict.as_ref(),
                &classes,
                &resolver,
                diagnostics,
            );
            if let Some(dict) = &mut dict {
                dict::set_charged(dict, &upstreams, diagnostics);
            }
            let profile = limiting.profile.as_ref();
            dict::check(dict.as_ref(), &upstreams, profile, diagnostics);
            root.finish(diagnostics);
            Self {
                listeners,
                server,
                paths,
                upstreams,
                routes,
                classes,
                limiting,
                service,
                state,
                dict: dict.map(|dict| dict.value),
            }
        })
    }

    /// The addresses to listen on.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|listener| listener.address)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and tokens are in here, too.
        f.debug_struct("Config")
            .field("listeners", &self.listeners)
            .field("upstreams", &self.upstreams)
            .field("routes", &self.routes.len())
            .finish_non_exhaustive()
    }
}
