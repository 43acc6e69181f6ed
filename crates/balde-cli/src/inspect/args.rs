//! The arguments of `balde inspect`, and the store that they name.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use balde::{Options, RedisStore};

/// The fewest digits of a hash that are enough to look for a key.
const HASH_DIGITS_MIN: usize = 8;
const HASH_DIGITS: usize = 64;

/// Shows the buckets of a limiter in Redis: level, limit, and when each is full. Reads only.
///
/// With a key it reads one bucket. Without, it scans the server's keys and shows the emptiest
/// buckets. The password is read from `REDIS_PASSWORD`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The limiter's name. By default all limiters under the prefix
    limiter: Option<String>,
    /// The key whose bucket to show
    #[arg(requires = "limiter")]
    key: Option<String>,
    /// Look for the key with this hash (`key_hash` in logs; 8 digits or more). The salt is read from
    /// `RL_LOG_SALT`
    #[arg(long, value_name = "HEX", conflicts_with = "key")]
    hash: Option<String>,
    /// The hash tag of the limiter, if it was built with one
    #[arg(long, value_name = "TAG", requires = "key")]
    hash_tag: Option<String>,
    /// The address of Redis: HOST:PORT, redis:// or rediss://. In a Cluster, some nodes separated by
    /// commas
    #[arg(long, value_name = "ADDRESS", env = "REDIS_ADDR")]
    redis: Option<String>,
    /// The address is that of a Redis Cluster
    #[arg(long, requires = "redis")]
    cluster: bool,
    /// The ACL user. By default the server's default user
    #[arg(long, requires = "redis")]
    user: Option<String>,
    /// The CA certificates to trust, as PEM. By default those of the system
    #[arg(long, value_name = "FILE", requires = "redis")]
    ca_file: Option<PathBuf>,
    /// The prefix of the keys in Redis
    #[arg(long, default_value = "balde", conflicts_with = "options")]
    prefix: String,
    /// Read the address and the other settings of Redis from an options file, instead of the arguments
    #[arg(short = 'c', long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// How many buckets a scan shows: those with the least of their capacity left
    #[arg(long, value_name = "N", default_value_t = 20)]
    lowest: usize,
    /// How many keys of the server a scan looks at, at most
    #[arg(long, value_name = "KEYS", default_value_t = 100_000)]
    pub(super) scan_max: u64,
    /// Show it again every second, until interrupted
    #[arg(long)]
    pub(super) watch: bool,
    /// The seconds between two looks of --watch
    #[arg(long, value_name = "SECONDS", default_value_t = 1, requires = "watch",
        value_parser = clap::value_parser!(u64).range(1..=3_600))]
    interval: u64,
    /// Print JSON; with --watch one object per line
    #[arg(long)]
    pub(super) json: bool,
}

/// The buckets to show.
pub(super) enum Wanted<'a> {
    Key {
        limiter: String,
        hash_tag: Option<Vec<u8>>,
        key: Vec<u8>,
    },
    Hash {
        limiter: Option<&'a str>,
        digits: String,
        salt: String,
    },
    Lowest {
        limiter: Option<&'a str>,
        count: usize,
    },
}

impl Args {
    pub(super) fn wanted(&self) -> anyhow::Result<Wanted<'_>> {
        if let (Some(limiter), Some(key)) = (&self.limiter, &self.key) {
            return Ok(Wanted::Key {
                limiter: limiter.clone(),
                hash_tag: self.hash_tag.as_ref().map(|tag| tag.clone().into_bytes()),
                key: key.clone().into_bytes(),
            });
        }
        let limiter = self.limiter.as_deref();
        let Some(hash) = &self.hash else {
            let count = self.lowest;
            return Ok(Wanted::Lowest { limiter, count });
        };
        let is_hash = (HASH_DIGITS_MIN..=HASH_DIGITS).contains(&hash.len())
            && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_hash {
            bail!(
                "--hash takes {HASH_DIGITS_MIN} to {HASH_DIGITS} hexadecimal digits, as key_hash has"
            );
        }
        let salt = std::env::var("RL_LOG_SALT").unwrap_or_default();
        if salt.is_empty() {
            bail!(
                "--hash needs RL_LOG_SALT, the salt that the service hashes its keys with; without \
                 one, a service makes up a salt when it starts, and its hashes cannot be looked for"
            );
        }
        Ok(Wanted::Hash {
            limiter,
            digits: hash.to_ascii_lowercase(),
            salt,
        })
    }

    /// The store, and its address without credentials.
    pub(super) fn store(&self) -> anyhow::Result<(RedisStore, String)> {
        if let Some(file) = &self.options {
            // Problems are rendered over several lines, with their places.
            let options = Options::read(file).map_err(|error| anyhow::anyhow!("{error}"))?;
            let Some(builder) = options.redis_builder() else {
                bail!("{} has no [redis] with an address", file.display());
            };
            let store = builder.timeout(balde::REDIS_TIMEOUT_MAX).build()?;
            return Ok((store, format!("the address in {}", file.display())));
        }
        let address = self
            .redis
            .as_deref()
            .map(str::trim)
            .filter(|address| !address.is_empty());
        let address = address.context(
            "no address of Redis: give --redis HOST:PORT, set REDIS_ADDR, or name an options file \
             with -c",
        )?;
        let mut builder = RedisStore::builder()
            .timeout(balde::REDIS_TIMEOUT_MAX)
            .connections(1)
            .prefix(&self.prefix);
        builder = if self.cluster {
            builder.cluster(address.split(',').map(str::trim))
        } else {
            builder.address(address)
        };
        if let Some(user) = &self.user {
            builder = builder.user(user);
        }
        if let Ok(password) = std::env::var("REDIS_PASSWORD")
            && !password.is_empty()
        {
            builder = builder.password(password);
        }
        if let Some(file) = &self.ca_file {
            builder = builder.ca_file(file);
        }
        let without_credentials = address.rsplit('@').next().unwrap_or_default();
        Ok((builder.build()?, without_credentials.to_owned()))
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(self.interval)
    }
}
