//! Limiters from a TOML file and the environment.
//!
//! A file is read and validated as a whole before anything is built; every problem is reported with
//! file, line and column. `docs/options.toml` is a file with every key.

#[cfg(feature = "http")]
mod http;
mod limits;
mod redis;
mod strategy;
mod variables;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use balde_config::{Diagnostics, Document, Environment, Section, Source};

#[cfg(feature = "http")]
use self::http::HttpOptions;
use self::limits::LimitOptions;
use self::redis::RedisOptions;
use self::variables::Variables;
use crate::error::BuildError;
#[cfg(feature = "http")]
use crate::http::{HeaderOptions, Identity};
use crate::limiter::RateLimiter;

pub use balde_config::{ConfigError, Diagnostic, Position};

/// The most limits in a file.
pub const LIMITS_MAX: usize = 256;

/// Validated options, from which limiters are built.
///
/// ```
/// use balde::Options;
///
/// let options = Options::parse_with(
///     r#"
///     [limits.per-user]
///     limit = "10/s burst 20"
///     "#,
///     "example.toml",
///     |_variable| None,
/// )?;
/// let limiters = options.build()?;
/// let per_user = limiters.get("per-user").expect("it is in the file");
/// assert!(per_user.blocking().check("alice").is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Options {
    limits: Vec<LimitOptions>,
    redis: Option<RedisOptions>,
    #[cfg(feature = "http")]
    http: HttpOptions,
    log_salt: Option<String>,
}

impl Options {
    /// Reads a file. The environment takes precedence over it: `RL_STORAGE_MODE` is where all
    /// buckets are kept, `REDIS_ADDR` and `REDIS_PASSWORD` are the address and password of Redis,
    /// and `RL_LOG_SALT` is the salt of key hashes in logs. An empty variable counts as unset.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?, Environment::of_process())
    }

    /// Parses a text in the same way as [`read`](Options::read) parses a file; `name` is the file
    /// name in messages.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        Self::from_source(&Source::new(name, text), Environment::of_process())
    }

    /// Parses a text with the environment that `lookup` describes.
    pub fn parse_with(
        text: &str,
        name: &str,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        Self::from_source(&Source::new(name, text), Environment::new(&lookup))
    }

    /// Reads the environment alone: one limit called `default`, from `RL_LIMIT` (as
    /// `10/s burst 20`), with `RL_ON_FAILURE` (`deny`, `allow`, or `local` and a share, as
    /// `local 25%`), which `RL_STORAGE_MODE=redis` requires, and the variables of
    /// [`read`](Options::read).
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_environment(Environment::of_process())
    }

    /// [`from_env`](Options::from_env) with the environment that `lookup` describes.
    pub fn from_env_with(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        Self::from_environment(Environment::new(&lookup))
    }

    /// Builds the limiters, with one connection to Redis for all of them.
    pub fn build(&self) -> Result<Limiters, BuildError> {
        let store = redis::SharedStore::build(&self.limits, self.redis.as_ref())?;
        let limiters = self
            .limits
            .iter()
            .map(|limit| limit.build(&store))
            .collect::<Result<_, _>>()?;
        Ok(Limiters {
            limiters,
            #[cfg(feature = "http")]
            http: self.http.clone(),
        })
    }

    /// The settings of `[redis]`, to build a store for another purpose than the limiters; `None` if
    /// neither the file nor the environment has an address.
    #[cfg(feature = "redis")]
    pub fn redis_builder(&self) -> Option<crate::RedisBuilder> {
        self.redis.as_ref().map(RedisOptions::builder)
    }

    /// The names of the limits, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.limits.iter().map(LimitOptions::name)
    }

    /// The salt with which keys are hashed in logs, from `RL_LOG_SALT`; `None` if that is unset. It
    /// is a secret.
    pub fn log_salt(&self) -> Option<&str> {
        self.log_salt.as_deref()
    }

    fn from_source(source: &Source, environment: Environment<'_>) -> Result<Self, ConfigError> {
        let mut diagnostics = Diagnostics::new(source);
        let variables = Variables::read(environment, &mut diagnostics);
        Document::read(source, diagnostics, |root, diagnostics| {
            Self::from_root(root, &variables, diagnostics)
        })
    }

    fn from_environment(environment: Environment<'_>) -> Result<Self, ConfigError> {
        let mut diagnostics = Diagnostics::new(&Source::unnamed(""));
        let variables = Variables::read(environment, &mut diagnostics);
        let limit = LimitOptions::from_variables(&variables, &mut diagnostics);
        let redis = RedisOptions::from_variables(&variables, &mut diagnostics);
        let options = Self {
            limits: limit.into_iter().collect(),
            redis,
            #[cfg(feature = "http")]
            http: HttpOptions::default(),
            log_salt: variables.log_salt,
        };
        options.check_storage(&mut diagnostics);
        diagnostics.into_result(options)
    }

    fn from_root(
        mut root: Section<'_>,
        variables: &Variables<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let limits = limits::read(&mut root, variables, diagnostics);
        let redis = match root.get("redis") {
            Some(value) => value
                .table(diagnostics)
                .map(|section| RedisOptions::from_section(section, variables, diagnostics)),
            None => RedisOptions::from_variables(variables, diagnostics),
        };
        #[cfg(feature = "http")]
        let http = HttpOptions::read(&mut root, diagnostics);
        #[cfg(not(feature = "http"))]
        for name in ["identity", "headers"] {
            if let Some(section) = root.table(name, diagnostics) {
                let message = "this section needs the feature \"http\" of the crate balde";
                diagnostics.at(section.span(), message);
            }
        }
        root.finish(diagnostics);
        let options = Self {
            limits,
            redis,
            #[cfg(feature = "http")]
            http,
            log_salt: variables.log_salt.clone(),
        };
        options.check_storage(diagnostics);
        options
    }

    /// Checks that limits in Redis have an address and a failure policy, which may come from
    /// different sections or from the environment.
    fn check_storage(&self, diagnostics: &mut Diagnostics) {
        for limit in &self.limits {
            limit.check_storage(self.redis.as_ref(), diagnostics);
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the salt nor the password.
        let mut debug = f.debug_struct("Options");
        debug.field("limits", &self.limits);
        debug.field("redis", &self.redis);
        #[cfg(feature = "http")]
        debug.field("http", &self.http);
        debug.finish_non_exhaustive()
    }
}

/// The limiters that were built from a file or from the environment.
#[derive(Clone, Debug)]
pub struct Limiters {
    limiters: Vec<RateLimiter>,
    #[cfg(feature = "http")]
    http: HttpOptions,
}

impl Limiters {
    /// The limiter with this name.
    pub fn get(&self, name: &str) -> Option<&RateLimiter> {
        self.iter().find(|limiter| limiter.name() == name)
    }

    /// All limiters, by name in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &RateLimiter> {
        self.limiters.iter()
    }

    /// How callers are identified, from `[identity]`.
    #[cfg(feature = "http")]
    pub fn identity(&self) -> &Identity {
        self.http.identity()
    }

    /// Which header fields are written, from `[headers]`.
    #[cfg(feature = "http")]
    pub fn header_options(&self) -> HeaderOptions {
        self.http.headers()
    }
}
