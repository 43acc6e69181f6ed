//! Where Redis is, and how it is spoken to.

use std::fmt;
use std::ops::Range;
#[cfg(feature = "redis")]
use std::time::Duration;

use super::environment::Environment;
use super::fault::Faults;
use super::limits::LimitOptions;
use super::section::{At, Section};
use crate::error::BuildError;
#[cfg(feature = "redis")]
use crate::store::redis::{REDIS_TIMEOUT_MAX, RedisBuilder, RedisStore};

/// As [`REDIS_TIMEOUT_MAX`] says, which is not there without the feature.
const TIMEOUT_MS_MAX: u64 = 100;
const CONNECTIONS_MAX: u64 = 64;

/// The store that limiters share, where one is needed.
pub(super) struct Store(#[cfg(feature = "redis")] pub(super) Option<RedisStore>);

impl Store {
    #[cfg(feature = "redis")]
    pub(super) fn of(
        limits: &[LimitOptions],
        redis: Option<&RedisOptions>,
    ) -> Result<Self, BuildError> {
        let is_needed = limits.iter().any(LimitOptions::is_redis);
        let redis = redis.filter(|_| is_needed);
        Ok(Self(
            redis.map(|redis| redis.builder().build()).transpose()?,
        ))
    }

    #[cfg(not(feature = "redis"))]
    #[expect(
        clippy::unnecessary_wraps,
        reason = "the same with the feature can fail"
    )]
    pub(super) fn of(
        limits: &[LimitOptions],
        _redis: Option<&RedisOptions>,
    ) -> Result<Self, BuildError> {
        debug_assert!(!limits.iter().any(LimitOptions::is_redis));
        Ok(Self())
    }
}

#[derive(Clone)]
#[cfg_attr(
    not(feature = "redis"),
    expect(
        dead_code,
        reason = "checked all the same, but there is nothing to build"
    )
)]
pub(super) struct RedisOptions {
    addresses: Vec<String>,
    is_cluster: bool,
    user: Option<String>,
    password: Option<String>,
    ca_file: Option<String>,
    identity_files: Option<(String, String)>,
    timeout_ms: Option<u64>,
    connections: Option<u64>,
    prefix: Option<String>,
}

impl RedisOptions {
    /// Reads `[redis]`; nothing, if neither the file nor the environment speaks of it.
    pub(super) fn check(
        section: Option<Section<'_>>,
        environment: &Environment<'_>,
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let Some(mut section) = section else {
            let address = environment.redis_addr.as_deref()?;
            let redis = Self {
                addresses: split(address),
                is_cluster: false,
                user: None,
                password: environment.redis_password.clone(),
                ca_file: None,
                identity_files: None,
                timeout_ms: None,
                connections: None,
                prefix: None,
            };
            redis.check_whole(None, faults);
            return Some(redis);
        };
        let addr = section.text("addr", faults);
        let is_cluster = section.flag("cluster", faults).is_some_and(|at| at.value);
        let tls = section.flag("tls", faults);
        let user = section.text("user", faults);
        let password = password(&mut section, environment, faults);
        let ca_file = section.text("ca_file", faults);
        let cert_file = section.text("cert_file", faults);
        let key_file = section.text("key_file", faults);
        let timeout_ms = section.number("timeout_ms", (1, TIMEOUT_MS_MAX), faults);
        let connections = section.number("connections", (1, CONNECTIONS_MAX), faults);
        let prefix = section.text("prefix", faults);
        if cert_file.is_some() != key_file.is_some() {
            let span = cert_file
                .as_ref()
                .or(key_file.as_ref())
                .map(|at| at.span.clone());
            faults.at(span, "`cert_file` and `key_file` go together");
        }
        section.finish(faults);

        let whole = environment
            .redis_addr
            .as_deref()
            .or(addr.as_ref().map(|at| at.value));
        let mut addresses = whole.map(split).unwrap_or_default();
        // What is wrong with an address is wrong where it came from.
        let span = match &environment.redis_addr {
            Some(_) => None,
            None => addr.map(|at| at.span),
        };
        if let Some(tls) = tls {
            for address in &mut addresses {
                match with_tls(address, tls.value) {
                    Some(told) => *address = told,
                    None => faults.at(
                        Some(tls.span.clone()),
                        "the address begins with rediss://, so this must be true",
                    ),
                }
            }
        }
        let text = |at: Option<At<&str>>| at.map(|at| at.value.to_owned());
        let redis = Self {
            addresses,
            is_cluster,
            user: text(user),
            password,
            ca_file: text(ca_file),
            identity_files: text(cert_file).zip(text(key_file)),
            timeout_ms: timeout_ms.map(|at| at.value),
            connections: connections.map(|at| at.value),
            prefix: text(prefix),
        };
        redis.check_whole(span.as_ref(), faults);
        Some(redis)
    }

    pub(super) const fn has_address(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Whether a store could be built of it. Nothing is connected.
    fn check_whole(&self, span: Option<&Range<usize>>, faults: &mut Faults<'_>) {
        let mut tell = |message: String| match span {
            Some(span) => faults.at(Some(span.clone()), message),
            None => faults.in_environment("REDIS_ADDR", message),
        };
        let is_one = self.addresses.len() == 1;
        if self.has_address() && !is_one && !self.is_cluster {
            tell("several addresses need cluster = true in [redis]".to_owned());
        }
        #[cfg(feature = "redis")]
        if self.has_address()
            && (is_one || self.is_cluster)
            && let Err(error) = self.builder().check()
        {
            tell(error.to_string());
        }
    }

    #[cfg(feature = "redis")]
    fn builder(&self) -> RedisBuilder {
        let mut builder = RedisStore::builder();
        builder = if self.is_cluster {
            builder.cluster(self.addresses.iter().map(String::as_str))
        } else {
            // One, or it was refused.
            builder.address(self.addresses.first().map_or("", String::as_str))
        };
        if let Some(user) = &self.user {
            builder = builder.user(user);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password);
        }
        if let Some(file) = &self.ca_file {
            builder = builder.ca_file(file);
        }
        if let Some((chain, key)) = &self.identity_files {
            builder = builder.identity_files(chain, key);
        }
        if let Some(ms) = self.timeout_ms {
            builder = builder.timeout(Duration::from_millis(ms).min(REDIS_TIMEOUT_MAX));
        }
        if let Some(connections) = self.connections {
            builder = builder.connections(usize::try_from(connections).unwrap_or(usize::MAX));
        }
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        builder
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may carry a password, too.
        f.debug_struct("RedisOptions")
            .field("is_cluster", &self.is_cluster)
            .field("timeout_ms", &self.timeout_ms)
            .field("connections", &self.connections)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The password is in the environment and nowhere else: files are copied, printed and checked in.
fn password(
    section: &mut Section<'_>,
    environment: &Environment<'_>,
    faults: &mut Faults<'_>,
) -> Option<String> {
    if let Some(value) = section.forbidden("password") {
        let message = "passwords do not belong into files: set REDIS_PASSWORD, or name another \
                       variable with password_env";
        // The whole value is masked where it is shown.
        faults.at(Some(value.span()), message);
    }
    let Some(variable) = section.text("password_env", faults) else {
        return environment.redis_password.clone();
    };
    match environment.look(variable.value) {
        Ok(Some(password)) => Some(password),
        Ok(None) => {
            faults.at(
                Some(variable.span),
                "this variable of the environment is not set",
            );
            None
        }
        Err(why) => {
            faults.at(Some(variable.span), format!("the variable it names: {why}"));
            None
        }
    }
}

/// Several nodes of a Cluster are written with commas between them.
fn split(addresses: &str) -> Vec<String> {
    let parts = addresses.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The address with or without TLS; nothing, where it says the contrary itself.
fn with_tls(address: &str, is_tls: bool) -> Option<String> {
    match (address.split_once("://"), is_tls) {
        (Some(("rediss", _)), false) => None,
        (Some(("redis", rest)), true) => Some(format!("rediss://{rest}")),
        (None, true) => Some(format!("rediss://{address}")),
        _ => Some(address.to_owned()),
    }
}
