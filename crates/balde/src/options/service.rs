//! The sections that the files of servers share with an options file: `[identity]`, `[headers]` and
//! `[redis]`.

use balde_config::{Diagnostics, Environment, Section};

use super::http::HttpOptions;
use super::redis::RedisOptions;
use super::variables::Variables;
use crate::env::StorageMode;
use crate::http::{HeaderOptions, Identity};
use crate::store::redis::RedisBuilder;

/// `[identity]`, `[headers]` and `[redis]` of a server's configuration file, as in an options file.
/// The environment takes precedence in the same way.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    http: HttpOptions,
    redis: Option<RedisOptions>,
    is_redis_invalid: bool,
    storage: Option<StorageMode>,
}

impl ServiceOptions {
    /// Takes the sections out of a file's root table. Problems are reported to `diagnostics`.
    pub fn read(
        root: &mut Section<'_>,
        environment: Environment<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let variables = Variables::read(environment, diagnostics);
        let http = HttpOptions::read(root, diagnostics);
        let problems = diagnostics.len();
        let redis = match root.table("redis", diagnostics) {
            Some(section) => Some(RedisOptions::from_section(section, &variables, diagnostics)),
            None => RedisOptions::from_variables(&variables, diagnostics),
        };
        Self {
            http,
            redis: redis.filter(RedisOptions::has_address),
            is_redis_invalid: diagnostics.len() > problems,
            storage: variables.storage,
        }
    }

    /// How clients are identified, from `[identity]`.
    pub fn identity(&self) -> &Identity {
        self.http.identity()
    }

    /// Which header fields are written, from `[headers]`.
    pub fn header_options(&self) -> HeaderOptions {
        self.http.headers()
    }

    /// Where buckets are kept, if `RL_STORAGE_MODE` says so.
    pub fn storage(&self) -> Option<StorageMode> {
        self.storage
    }

    /// Returns true if `[redis]` or `REDIS_ADDR` has problems, which have been reported. That there is
    /// no [`redis`](ServiceOptions::redis) may be a consequence of them.
    pub const fn is_redis_invalid(&self) -> bool {
        self.is_redis_invalid
    }

    /// The Redis server, from `[redis]` or `REDIS_ADDR`; `None` without an address.
    pub fn redis(&self) -> Option<RedisBuilder> {
        self.redis.as_ref().map(RedisOptions::builder)
    }
}
