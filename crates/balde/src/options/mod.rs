//! Limiters from a file and the environment: read, checked as a whole, and only then built.
//!
//! Whatever is wrong is told at once and all together, with file, line, column and what to do.
//! `docs/options.toml` is a file with every key.

mod environment;
mod fault;
#[cfg(feature = "http")]
mod http;
mod limits;
mod mask;
mod numbers;
mod redis;
mod section;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::Path;

use toml::de::DeTable;

use self::environment::Environment;
#[cfg(feature = "http")]
use self::http::HttpOptions;
use self::limits::LimitOptions;
use self::redis::RedisOptions;
use crate::error::BuildError;
#[cfg(feature = "http")]
use crate::http::{HeaderOptions, Identity};
use crate::limiter::RateLimiter;

pub use fault::{Fault, Faults, OptionsError, Place};
pub use section::{At, Section};

/// The largest file that is read.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// The most limits in a file.
pub const LIMITS_MAX: usize = 256;

/// Options that have been checked.
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
    /// Reads a file. The environment goes before it: `RL_STORAGE_MODE` says where all buckets are
    /// kept, `REDIS_ADDR` and `REDIS_PASSWORD` where Redis is, and `RL_LOG_SALT` how keys are hashed
    /// in logs. Variables that are empty are not set.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, OptionsError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        Self::parse(&text_of(path)?, &name)
    }

    /// [`read`](Options::read) of a text that is there already; `name` is what messages call it.
    pub fn parse(text: &str, name: &str) -> Result<Self, OptionsError> {
        Self::parse_with(text, name, |variable| std::env::var_os(variable))
    }

    /// [`parse`](Options::parse) with an environment of your own.
    pub fn parse_with(
        text: &str,
        name: &str,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, OptionsError> {
        let mut faults = Faults::new(name, text);
        let environment = Environment::new(&lookup, &mut faults);
        check_document(faults, |root, faults| {
            Self::check(root, &environment, faults)
        })
    }

    /// Options from the environment alone: one limit called `default`, from `RL_LIMIT` (as
    /// `10/s burst 20`), with `RL_ON_FAILURE` (`deny`, `allow`, or `local` and a share, as
    /// `local 25%`), which `RL_STORAGE_MODE=redis` needs, and the variables of
    /// [`read`](Options::read).
    pub fn from_env() -> Result<Self, OptionsError> {
        Self::from_env_with(|variable| std::env::var_os(variable))
    }

    /// [`from_env`](Options::from_env) with an environment of your own.
    pub fn from_env_with(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, OptionsError> {
        let mut faults = Faults::new("", "");
        let environment = Environment::new(&lookup, &mut faults);
        let limit = LimitOptions::of_environment(&environment, &mut faults);
        let none = DeTable::new();
        let redis = RedisOptions::check(None, &environment, &mut faults);
        let options = Self {
            limits: limit.into_iter().collect(),
            redis,
            #[cfg(feature = "http")]
            http: HttpOptions::check(&mut Section::new(&none, "", None), &mut faults),
            log_salt: environment.log_salt,
        };
        #[cfg(not(feature = "http"))]
        let _ = none;
        options.check_storage(&mut faults);
        faults.into_result(options)
    }

    /// The limiters, with one connection to Redis for all of them.
    pub fn build(&self) -> Result<Limiters, BuildError> {
        let store = redis::Store::of(&self.limits, self.redis.as_ref())?;
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

    /// The names of the limits, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.limits.iter().map(LimitOptions::name)
    }

    /// What keys are hashed with before they are logged, from `RL_LOG_SALT`. Do not print it.
    pub fn log_salt(&self) -> Option<&str> {
        self.log_salt.as_deref()
    }

    fn check(mut root: Section<'_>, environment: &Environment, faults: &mut Faults<'_>) -> Self {
        let limits = limits::check(&mut root, environment, faults);
        let redis = RedisOptions::check(root.table("redis", faults), environment, faults);
        #[cfg(feature = "http")]
        let http = HttpOptions::check(&mut root, faults);
        #[cfg(not(feature = "http"))]
        for name in ["identity", "headers"] {
            if let Some(section) = root.table(name, faults) {
                faults.at(
                    section.span(),
                    "this needs the feature \"http\" of the crate balde",
                );
            }
        }
        root.finish(faults);
        let options = Self {
            limits,
            redis,
            #[cfg(feature = "http")]
            http,
            log_salt: environment.log_salt.clone(),
        };
        options.check_storage(faults);
        options
    }

    /// What only all the parts together tell.
    fn check_storage(&self, faults: &mut Faults<'_>) {
        for limit in &self.limits {
            limit.check_storage(self.redis.as_ref(), faults);
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the salt nor the password.
        let mut shown = f.debug_struct("Options");
        shown.field("limits", &self.limits);
        shown.field("redis", &self.redis);
        #[cfg(feature = "http")]
        shown.field("http", &self.http);
        shown.finish_non_exhaustive()
    }
}

/// What a file or an environment describes, built.
#[derive(Clone, Debug)]
pub struct Limiters {
    limiters: Vec<RateLimiter>,
    #[cfg(feature = "http")]
    http: HttpOptions,
}

impl Limiters {
    /// The limiter of this name.
    pub fn get(&self, name: &str) -> Option<&RateLimiter> {
        self.iter().find(|limiter| limiter.name() == name)
    }

    /// All limiters, by name in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &RateLimiter> {
        self.limiters.iter()
    }

    /// How callers are told apart.
    #[cfg(feature = "http")]
    pub fn identity(&self) -> &Identity {
        self.http.identity()
    }

    /// Which fields are written.
    #[cfg(feature = "http")]
    pub fn header_options(&self) -> HeaderOptions {
        self.http.headers()
    }
}

/// Reads the text that `faults` are about as TOML and lets `check` take it apart: the value, or all
/// that is wrong. For files of other programs that want the same messages.
///
/// ```
/// use balde::options::{Faults, check_document};
///
/// let faults = Faults::new("example.toml", "listen = 8080\nworkers = 2");
/// let error = check_document(faults, |mut root, faults| {
///     let workers = root.number("workers", (1, 8), faults);
///     let _listen = root.text("listen", faults);
///     root.finish(faults);
///     workers.map(|workers| workers.value)
/// })
/// .unwrap_err();
/// assert_eq!(
///     error.faults()[0].to_string(),
///     "example.toml:1:10: `listen` must be a text in quotes, and this is a whole number",
/// );
/// ```
pub fn check_document<T>(
    mut faults: Faults<'_>,
    check: impl FnOnce(Section<'_>, &mut Faults<'_>) -> T,
) -> Result<T, OptionsError> {
    let (document, errors) = DeTable::parse_recoverable(faults.text());
    if !errors.is_empty() {
        // What would follow from a broken line is only noise.
        for error in &errors {
            faults.at(error.span(), error.message());
        }
        return Err(faults.into_error());
    }
    let value = check(Section::new(document.get_ref(), "", None), &mut faults);
    faults.into_result(value)
}

/// The text of a file of at most [`FILE_BYTES_MAX`].
pub fn text_of(path: &Path) -> Result<String, OptionsError> {
    let name = path.display().to_string();
    let wrong = |why: String| OptionsError::of_file(&name, why);
    let cannot = |error: std::io::Error| wrong(format!("cannot be read: {error}"));
    let bytes = fs::metadata(path).map_err(cannot)?.len();
    if bytes > FILE_BYTES_MAX {
        let why = format!("has {bytes} bytes, more than {FILE_BYTES_MAX}");
        return Err(wrong(why));
    }
    fs::read_to_string(path).map_err(cannot)
}
