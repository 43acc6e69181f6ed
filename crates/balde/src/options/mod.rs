//! Limiters from a TOML file and the environment.
//!
//! A file is read and validated as a whole before anything is built; every problem is reported with
//! file, line and column. `docs/options.toml` is a file with every key.

#[cfg(feature = "http")]
mod http;
mod limits;
mod logs;
mod metrics;
mod redis;
mod reload;
#[cfg(all(feature = "http", feature = "redis"))]
mod service;
mod storage;
mod strategy;
#[cfg(feature = "logs")]
mod telemetry;
mod tracing;
mod variables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use balde_config::{Document, Source};

#[cfg(feature = "http")]
use self::http::HttpOptions;
use self::limits::{LimitOptions, SharedParts};
use self::logs::LogsOptions;
use self::metrics::MetricsOptions;
use self::redis::{RedisOptions, SharedStore};
use self::tracing::TracingOptions;
use self::variables::Variables;
use crate::error::BuildError;
#[cfg(feature = "http")]
use crate::http::{HeaderOptions, Identity};
use crate::limiter::RateLimiter;
#[cfg(feature = "redis")]
use crate::store::redis::RedisStore;
#[cfg(feature = "prometheus")]
use crate::telemetry::Metrics;

pub use self::reload::ReloadError;
#[cfg(all(feature = "http", feature = "redis"))]
pub use self::service::ServiceOptions;
pub use self::storage::{SectionContext, StorageChoice};
#[cfg(feature = "logs")]
pub use self::telemetry::{TelemetryError, TelemetryGuard};
pub use balde_config::{ConfigError, Diagnostic, Diagnostics, Environment, Position, Section};

/// The most limits in a file.
pub const LIMITS_MAX: usize = 256;

/// Sections that other crates read.
const FOREIGN_SECTIONS: [(&str, &str); 1] = [(
    "throttlers",
    "[throttlers] is read by the crate balde-throttle: use balde_throttle::ThrottlerOptions::read \
     instead of balde::Options::read",
)];

/// What a file must contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Limits,
    /// A file may consist of the sections of another crate alone.
    Nothing,
}

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
    metrics: MetricsOptions,
    logs: LogsOptions,
    tracing: Option<TracingOptions>,
    log_salt: Option<String>,
}

impl Options {
    /// Reads a file. The environment takes precedence over it: `RL_STORAGE_MODE` is where all
    /// buckets are kept, `REDIS_ADDR` and `REDIS_PASSWORD` are the address and password of Redis,
    /// `RL_METRICS`, `RL_LOG_LEVEL`, `RL_LOG_FORMAT`, `RL_LOG_DENIALS` and `RL_TRACING` configure
    /// telemetry, and `RL_LOG_SALT` is the salt of key hashes in logs. An empty variable counts as
    /// unset.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?, Environment::of_process())
    }

    /// Reads a file in which another crate has sections of its own. `sections` takes them from the
    /// root table, with the same reader; sections that nobody has taken are reported. The file need
    /// not contain a limit.
    pub fn read_extended<T>(
        path: impl AsRef<Path>,
        sections: impl FnOnce(&mut Section<'_>, &SectionContext<'_>, &mut Diagnostics) -> T,
    ) -> Result<(Self, T), ConfigError> {
        let source = Source::read(path)?;
        Self::extended(&source, Environment::of_process(), sections)
    }

    /// Validates a file like [`read_extended`](Options::read_extended) on a machine that does not have
    /// its secrets: no environment variable is read, those that the file names may be unset, and
    /// certificates may be missing. Options that were read like this cannot be built.
    pub fn check_extended<T>(
        path: impl AsRef<Path>,
        sections: impl FnOnce(&mut Section<'_>, &SectionContext<'_>, &mut Diagnostics) -> T,
    ) -> Result<(Self, T), ConfigError> {
        Self::extended(&Source::read(path)?, Environment::assumed(), sections)
    }

    /// Parses a text like [`read_extended`](Options::read_extended), with the environment that
    /// `lookup` describes.
    pub fn parse_extended<T>(
        text: &str,
        name: &str,
        lookup: impl Fn(&str) -> Option<OsString>,
        sections: impl FnOnce(&mut Section<'_>, &SectionContext<'_>, &mut Diagnostics) -> T,
    ) -> Result<(Self, T), ConfigError> {
        let source = Source::new(name, text);
        Self::extended(&source, Environment::new(&lookup), sections)
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
    /// [`read`](Options::read). With `RL_TRACING=on`, spans go to `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_environment(Environment::of_process())
    }

    /// [`from_env`](Options::from_env) with the environment that `lookup` describes.
    pub fn from_env_with(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        Self::from_environment(Environment::new(&lookup))
    }

    /// Builds the limiters, with one connection to Redis for all of them. With the feature
    /// `prometheus` they are counted in [`Limiters::metrics`], unless `[metrics]` says otherwise.
    ///
    /// This does not touch the subscriber of `tracing`: see `init_telemetry` (feature `logs`).
    pub fn build(&self) -> Result<Limiters, BuildError> {
        self.check_features()?;
        let store = SharedStore::build(
            self.limits.iter().any(LimitOptions::is_redis),
            self.redis.as_ref(),
        )?;
        #[cfg(feature = "prometheus")]
        let metrics = self.metrics.build();
        let mut shared = SharedParts {
            store: &store,
            #[cfg(feature = "prometheus")]
            metrics: metrics.as_ref(),
            log_salt: self.log_salt.as_deref(),
            denials: self.logs.denials(),
            clocks: BTreeMap::new(),
        };
        let limiters = self
            .limits
            .iter()
            .map(|limit| limit.build(&mut shared))
            .collect::<Result<_, _>>()?;
        Ok(Limiters {
            limiters,
            #[cfg(feature = "http")]
            http: self.http.clone(),
            #[cfg(feature = "prometheus")]
            metrics,
            #[cfg(feature = "redis")]
            store: store.0,
            #[cfg(feature = "redis")]
            redis: self.redis.clone(),
        })
    }

    /// The settings of `[redis]`, to build a store for another purpose than the limiters; `None` if
    /// neither the file nor the environment has an address.
    #[cfg(feature = "redis")]
    pub fn redis_builder(&self) -> Option<crate::store::redis::RedisBuilder> {
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

    /// Sections can be validated without the features that they need, but not obeyed.
    fn check_features(&self) -> Result<(), BuildError> {
        let is_tracing_missing = cfg!(not(feature = "otlp")) && self.tracing.is_some();
        for (is_missing, section, feature) in [
            (self.metrics.is_missing(), "metrics", "prometheus"),
            (self.logs.is_missing(), "logs", "logs"),
            (is_tracing_missing, "tracing", "otlp"),
        ] {
            if is_missing {
                return Err(BuildError::Feature { section, feature });
            }
        }
        Ok(())
    }

    fn from_source(source: &Source, environment: Environment<'_>) -> Result<Self, ConfigError> {
        let mut diagnostics = Diagnostics::new(source);
        let variables = Variables::read(environment, &mut diagnostics);
        Document::read(source, diagnostics, |root, diagnostics| {
            let refuse_foreign =
                |root: &mut Section<'_>, _: &SectionContext<'_>, diagnostics: &mut Diagnostics| {
                    for (name, message) in FOREIGN_SECTIONS {
                        if let Some(span) = root.forbidden(name) {
                            diagnostics.at(span, message);
                        }
                    }
                };
            let (options, ()) =
                Self::from_root(root, Need::Limits, &variables, refuse_foreign, diagnostics);
            options
        })
    }

    fn extended<T>(
        source: &Source,
        environment: Environment<'_>,
        sections: impl FnOnce(&mut Section<'_>, &SectionContext<'_>, &mut Diagnostics) -> T,
    ) -> Result<(Self, T), ConfigError> {
        let mut diagnostics = Diagnostics::new(source);
        let variables = Variables::read(environment, &mut diagnostics);
        Document::read(source, diagnostics, |root, diagnostics| {
            Self::from_root(root, Need::Nothing, &variables, sections, diagnostics)
        })
    }

    fn from_environment(environment: Environment<'_>) -> Result<Self, ConfigError> {
        let mut diagnostics = Diagnostics::new(&Source::unnamed(""));
        let variables = Variables::read(environment, &mut diagnostics);
        let redis = RedisOptions::from_variables(&variables, &mut diagnostics);
        let context = variables.context(redis.as_ref().is_some_and(RedisOptions::has_address));
        let limit = LimitOptions::from_variables(&context, &mut diagnostics);
        let options = Self {
            limits: limit.into_iter().collect(),
            redis,
            #[cfg(feature = "http")]
            http: HttpOptions::default(),
            metrics: MetricsOptions::read(None, &variables, &mut diagnostics),
            logs: LogsOptions::read(None, &variables, &mut diagnostics),
            tracing: TracingOptions::read(None, &variables, &mut diagnostics),
            log_salt: variables.log_salt,
        };
        diagnostics.into_result(options)
    }

    fn from_root<T>(
        mut root: Section<'_>,
        need: Need,
        variables: &Variables<'_>,
        sections: impl FnOnce(&mut Section<'_>, &SectionContext<'_>, &mut Diagnostics) -> T,
        diagnostics: &mut Diagnostics,
    ) -> (Self, T) {
        let problems = diagnostics.len();
        // The order of the sections in the file does not matter, but limits need to know Redis.
        let redis = match root.get("redis") {
            Some(value) => value
                .table(diagnostics)
                .map(|section| RedisOptions::from_section(section, variables, diagnostics)),
            None => RedisOptions::from_variables(variables, diagnostics),
        };
        let has_address = redis.as_ref().is_some_and(RedisOptions::has_address);
        // What is wrong with [redis] has been said; that it has no address may follow from that.
        let is_invalid = diagnostics.len() > problems;
        let context = variables.context(has_address || is_invalid);
        let limits = limits::read(&mut root, &context, need, diagnostics);
        #[cfg(feature = "http")]
        let http = HttpOptions::read(&mut root, diagnostics);
        #[cfg(not(feature = "http"))]
        for name in ["identity", "headers"] {
            if let Some(section) = root.table(name, diagnostics) {
                let message = "this section needs the feature \"http\" of the crate balde";
                diagnostics.at(section.span(), message);
            }
        }
        let metrics = MetricsOptions::read(Some(&mut root), variables, diagnostics);
        let logs = LogsOptions::read(Some(&mut root), variables, diagnostics);
        let tracing = TracingOptions::read(Some(&mut root), variables, diagnostics);
        let others = sections(&mut root, &context, diagnostics);
        root.finish(diagnostics);
        let options = Self {
            limits,
            redis,
            #[cfg(feature = "http")]
            http,
            metrics,
            logs,
            tracing,
            log_salt: variables.log_salt.clone(),
        };
        (options, others)
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
        debug.field("metrics", &self.metrics);
        debug.field("logs", &self.logs);
        debug.field("tracing", &self.tracing);
        debug.finish_non_exhaustive()
    }
}

/// The limiters that were built from a file or from the environment.
#[derive(Clone, Debug)]
pub struct Limiters {
    #[expect(clippy::struct_field_names, reason = "they are the limiters")]
    limiters: Vec<RateLimiter>,
    #[cfg(feature = "http")]
    http: HttpOptions,
    #[cfg(feature = "prometheus")]
    metrics: Option<Metrics>,
    #[cfg(feature = "redis")]
    store: Option<RedisStore>,
    #[cfg(feature = "redis")]
    redis: Option<RedisOptions>,
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

    /// The metrics that count all limiters, to be served at `/metrics`; `None` if `[metrics]` or
    /// `RL_METRICS` turned them off.
    #[cfg(feature = "prometheus")]
    pub fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_ref()
    }

    /// The Redis of `[redis]`: the one that the limiters use, or a new one if they are all in
    /// memory. `None` without an address.
    #[cfg(feature = "redis")]
    pub fn redis_store(&self) -> Result<Option<RedisStore>, BuildError> {
        if self.store.is_some() {
            return Ok(self.store.clone());
        }
        let redis = self.redis.as_ref().filter(|redis| redis.has_address());
        Ok(redis.map(RedisOptions::store).transpose()?)
    }
}
