//! The sections `[server]` and `[state]`.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use balde_config::{Diagnostics, Resolver, Section};

use super::count;
use super::listener::address;

/// Threads, timeouts, and how many decisions may be under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The threads that serve requests; `None` for one per processor.
    pub workers: Option<usize>,
    /// The most decisions under way at a time; further ones are refused as overload.
    pub in_flight_max: usize,
    /// The most holds that are open at a time.
    pub holds_max: usize,
    /// The most keys that are blocked at a time.
    pub blocked_max: usize,
    /// The longest that a request may wait for tokens.
    pub wait_max: Duration,
    /// How long requests in flight may take after shutdown has begun.
    pub shutdown_timeout: Duration,
    /// How long the service goes on serving after SIGTERM, while `/readyz` says that it is not ready.
    pub drain_delay: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            workers: None,
            in_flight_max: 10_000,
            holds_max: 100_000,
            blocked_max: 100_000,
            wait_max: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(30),
            drain_delay: Duration::from_secs(5),
        }
    }
}

/// The endpoint for operators: metrics and readiness.
#[derive(Clone, PartialEq, Eq)]
pub struct StateConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The bearer token that requests need.
    pub token: String,
    /// Whether the page shows keys as they are. Otherwise it shows their hashes, as logs do.
    pub has_plain_keys: bool,
}

impl fmt::Debug for StateConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateConfig")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

pub(super) fn read(section: Option<Section<'_>>, diagnostics: &mut Diagnostics) -> ServerConfig {
    let default = ServerConfig::default();
    let Some(mut section) = section else {
        return default;
    };
    let workers = section.integer("workers", 1..=1_024, diagnostics);
    let mut counted = |key, default| count(&mut section, key, 1..=1 << 30, default, diagnostics);
    let in_flight_max = counted("in_flight_max", default.in_flight_max);
    let holds_max = counted("holds_max", default.holds_max);
    let blocked_max = counted("blocked_max", default.blocked_max);
    let mut time = |key, least, default: Duration| {
        let range = least..=Duration::from_secs(3_600);
        let time = section.duration(key, range, diagnostics);
        time.map_or(default, |time| time.value)
    };
    let least = Duration::from_millis(1);
    let config = ServerConfig {
        workers: workers.and_then(|workers| usize::try_from(workers.value).ok()),
        in_flight_max,
        holds_max,
        blocked_max,
        wait_max: time("wait_max", least, default.wait_max),
        shutdown_timeout: time("shutdown_timeout", least, default.shutdown_timeout),
        drain_delay: time("drain_delay", Duration::ZERO, default.drain_delay),
    };
    section.finish(diagnostics);
    config
}

pub(super) fn state(
    section: Option<Section<'_>>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<StateConfig> {
    let mut section = section?;
    let text = section.require("address", diagnostics);
    let text = text.and_then(|text| text.string(diagnostics));
    let token = resolver.secret(&mut section, "token_env", diagnostics);
    if !section.contains("token_env") {
        let message = "missing key `token_env` in [state]: the variable that holds the token";
        diagnostics.at(section.span(), message);
    }
    let plain_keys = section.boolean("plain_keys", diagnostics);
    section.finish(diagnostics);
    Some(StateConfig {
        address: address(text?, "127.0.0.1:8090", diagnostics)?,
        token: token?,
        has_plain_keys: plain_keys.is_some_and(|plain_keys| plain_keys.value),
    })
}
