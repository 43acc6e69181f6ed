//! The section `[redis]`: the address of Redis, credentials, TLS and timeouts.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use balde_config::{Diagnostics, Located, Section, Span};

use super::Limiters;
use super::variables::Variables;
use crate::error::BuildError;
#[cfg(feature = "redis")]
use crate::error::RedisConfigError;
#[cfg(feature = "redis")]
use crate::store::redis::{REDIS_TIMEOUT_MAX, RedisBuilder, RedisStore};

/// The same as [`REDIS_TIMEOUT_MAX`], which does not exist without the feature.
const TIMEOUT_MAX: Duration = Duration::from_millis(100);
const CONNECTIONS_MAX: u64 = 64;

/// The Redis store that limiters share, if any of them needs one.
pub(super) struct SharedStore(#[cfg(feature = "redis")] pub(super) Option<RedisStore>);

impl SharedStore {
    #[cfg(feature = "redis")]
    pub(super) fn build(is_needed: bool, redis: Option<&RedisOptions>) -> Result<Self, BuildError> {
        let redis = redis.filter(|_| is_needed);
        Ok(Self(redis.map(RedisOptions::store).transpose()?))
    }

    #[cfg(not(feature = "redis"))]
    #[expect(
        clippy::unnecessary_wraps,
        reason = "the same function with the feature can fail"
    )]
    pub(super) fn build(
        is_needed: bool,
        _redis: Option<&RedisOptions>,
    ) -> Result<Self, BuildError> {
        debug_assert!(!is_needed);
        Ok(Self())
    }

    /// The store that running limiters share, or a new one for those that are added to them.
    #[cfg(feature = "redis")]
    pub(super) fn of_running(running: &Limiters) -> Result<Self, BuildError> {
        Ok(Self(running.redis_store()?))
    }

    #[cfg(not(feature = "redis"))]
    #[expect(
        clippy::unnecessary_wraps,
        reason = "the same function with the feature can fail"
    )]
    pub(super) fn of_running(_running: &Limiters) -> Result<Self, BuildError> {
        Ok(Self())
    }
}

#[derive(Clone, Default, PartialEq)]
pub(super) struct RedisOptions {
    addresses: Vec<String>,
    is_cluster: bool,
    user: Option<String>,
    password: Option<String>,
    ca_file: Option<String>,
    identity_files: Option<(String, String)>,
    timeout: Option<Duration>,
    connections: Option<u64>,
    prefix: Option<String>,
}

impl RedisOptions {
    /// Redis as the environment describes it; nothing without an address.
    pub(super) fn from_variables(
        variables: &Variables<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let redis = Self {
            addresses: split(variables.redis_addr.as_deref()?),
            password: variables.redis_password.clone(),
            ..Self::default()
        };
        redis.check(None, diagnostics);
        Some(redis)
    }

    /// Reads `[redis]`.
    pub(super) fn from_section(
        mut section: Section<'_>,
        variables: &Variables<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let addr = section.string("address", diagnostics);
        let is_cluster = section.boolean("cluster", diagnostics);
        let tls = section.boolean("tls", diagnostics);
        let user = section.string("user", diagnostics);
        let password = password(&mut section, variables, diagnostics);
        let ca_file = section.string("ca", diagnostics);
        let cert_file = section.string("certificate", diagnostics);
        let key_file = section.string("key", diagnostics);
        let range = Duration::from_millis(1)..=TIMEOUT_MAX;
        let timeout = section.duration("timeout", range, diagnostics);
        section.renamed(&[
            ("addr", "address"),
            ("ca_file", "ca"),
            ("cert_file", "certificate"),
            ("key_file", "key"),
        ]);
        let connections = section.integer("connections", 1..=CONNECTIONS_MAX, diagnostics);
        let prefix = section.string("prefix", diagnostics);
        if cert_file.is_some() != key_file.is_some() {
            let file = cert_file.or(key_file);
            diagnostics.at(
                file.map(|file| file.span),
                "`certificate` and `key` are used together: write both or neither",
            );
        }
        section.finish(diagnostics);

        // A wrong address is reported where it came from.
        let (address, span) = match (&variables.redis_addr, addr) {
            (Some(address), _) => (Some(&**address), None),
            (None, Some(addr)) => (Some(addr.value), Some(addr.span)),
            (None, None) => (None, None),
        };
        let mut addresses = address.map(split).unwrap_or_default();
        if let Some(tls) = tls {
            for address in &mut addresses {
                match with_tls(address, tls.value) {
                    Some(with_scheme) => *address = with_scheme,
                    None => diagnostics.at(
                        tls.span,
                        "the address begins with rediss://, so `tls` must be true",
                    ),
                }
            }
        }
        let owned = |text: Option<Located<&str>>| text.map(|text| text.value.to_owned());
        // Where a file is only validated, its certificates may be on another machine.
        let is_there =
            |file: &String| !variables.environment.is_assumed() || Path::new(file).is_file();
        let redis = Self {
            addresses,
            is_cluster: is_cluster.is_some_and(|cluster| cluster.value),
            user: owned(user),
            password,
            ca_file: owned(ca_file).filter(is_there),
            identity_files: owned(cert_file)
                .filter(is_there)
                .zip(owned(key_file).filter(is_there)),
            timeout: timeout.map(|timeout| timeout.value),
            connections: connections.map(|connections| connections.value),
            prefix: owned(prefix),
        };
        redis.check(span, diagnostics);
        redis
    }

    pub(super) const fn has_address(&self) -> bool {
        !self.addresses.is_empty()
    }

    #[cfg(feature = "redis")]
    pub(super) fn store(&self) -> Result<RedisStore, RedisConfigError> {
        self.builder().build()
    }

    /// Checks that a store can be built, without connecting to it.
    fn check(&self, span: Option<Span>, diagnostics: &mut Diagnostics) {
        let mut report = |message: String| match span {
            Some(span) => diagnostics.at(span, message),
            None => diagnostics.in_variable("REDIS_ADDR", message),
        };
        let is_one = self.addresses.len() == 1;
        if self.has_address() && !is_one && !self.is_cluster {
            report("several addresses need cluster = true in [redis]".to_owned());
        }
        #[cfg(feature = "redis")]
        if self.has_address()
            && (is_one || self.is_cluster)
            && let Err(error) = self.builder().check()
        {
            report(error.to_string());
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn builder(&self) -> RedisBuilder {
        let mut builder = RedisStore::builder();
        builder = if self.is_cluster {
            builder.cluster(self.addresses.iter().map(String::as_str))
        } else {
            // `check` reports more than one.
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
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout.min(REDIS_TIMEOUT_MAX));
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
        // An address may contain a password, too.
        f.debug_struct("RedisOptions")
            .field("is_cluster", &self.is_cluster)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The password comes from the environment only: files are copied, printed and committed.
fn password(
    section: &mut Section<'_>,
    variables: &Variables<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    if let Some(span) = section.forbidden("password") {
        let message = "passwords do not belong in files: set REDIS_PASSWORD, or name another \
                       variable with `password_env`";
        diagnostics.at(span, message);
    }
    match section.string("password_env", diagnostics) {
        Some(variable) => variables.environment.read_named(&variable, diagnostics),
        None => variables.redis_password.clone(),
    }
}

/// Splits the addresses of several nodes of a cluster at the commas.
fn split(addresses: &str) -> Vec<String> {
    let parts = addresses.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The address with or without the scheme for TLS; `None` if its own scheme contradicts that.
fn with_tls(address: &str, is_tls: bool) -> Option<String> {
    match (address.split_once("://"), is_tls) {
        (Some(("rediss", _)), false) => None,
        (Some(("redis", rest)), true) => Some(format!("rediss://{rest}")),
        (None, true) => Some(format!("rediss://{address}")),
        _ => Some(address.to_owned()),
    }
}
