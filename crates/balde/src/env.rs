//! The store that environment variables choose: `RL_STORAGE_MODE`, `REDIS_ADDR`, `REDIS_PASSWORD`.

use crate::error::BuildError;
use crate::failure::OnFailure;
#[cfg(feature = "redis")]
use crate::store::redis::RedisStore;

/// The store of a limiter.
#[derive(Debug)]
pub(crate) enum Storage {
    Memory,
    #[cfg(feature = "redis")]
    Redis(RedisStore, OnFailure),
}

/// Where buckets are kept: the values of the environment variable `RL_STORAGE_MODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageMode {
    /// In the memory of the process.
    Memory,
    /// In Redis, shared between processes.
    Redis,
}

impl StorageMode {
    pub(crate) const VARIABLE: &'static str = "RL_STORAGE_MODE";

    /// Reads `RL_STORAGE_MODE`; `None` when it is unset or empty.
    pub fn from_env() -> Result<Option<Self>, BuildError> {
        let value = std::env::var(Self::VARIABLE).ok();
        let value = value.filter(|value| !value.trim().is_empty());
        value
            .map(|value| Self::parse(&value))
            .transpose()
            .map_err(|advice| BuildError::Environment {
                variable: Self::VARIABLE,
                advice,
            })
    }

    /// Parses the value of the variable. The error says what to set it to.
    pub(crate) fn parse(value: &str) -> Result<Self, &'static str> {
        match value.trim() {
            "memory" => Ok(Self::Memory),
            "redis" if cfg!(feature = "redis") => Ok(Self::Redis),
            "redis" => {
                Err("redis needs the feature \"redis\" of the crate balde; enable it or set memory")
            }
            _ => Err("unknown storage; set it to redis or memory"),
        }
    }
}

/// Reads the variables through `lookup`, so that tests need not change those of the process.
pub(crate) fn storage(
    lookup: impl Fn(&str) -> Option<String>,
    on_failure: OnFailure,
) -> Result<Storage, BuildError> {
    let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
    let mode = match set(StorageMode::VARIABLE) {
        Some(value) => StorageMode::parse(&value),
        None => Err("is not set; set it to redis or memory"),
    };
    match mode {
        Ok(StorageMode::Memory) => Ok(Storage::Memory),
        Ok(StorageMode::Redis) => redis(set, on_failure),
        Err(advice) => Err(BuildError::Environment {
            variable: StorageMode::VARIABLE,
            advice,
        }),
    }
}

#[cfg(feature = "redis")]
fn redis(
    set: impl Fn(&str) -> Option<String>,
    on_failure: OnFailure,
) -> Result<Storage, BuildError> {
    let Some(address) = set("REDIS_ADDR") else {
        return Err(BuildError::Environment {
            variable: "REDIS_ADDR",
            advice: "is not set, but RL_STORAGE_MODE=redis needs it; set it to host:port or a URL",
        });
    };
    let mut builder = RedisStore::builder().address(address.trim());
    if let Some(password) = set("REDIS_PASSWORD") {
        builder = builder.password(password);
    }
    Ok(Storage::Redis(builder.build()?, on_failure))
}

#[cfg(not(feature = "redis"))]
fn redis(
    _set: impl Fn(&str) -> Option<String>,
    _on_failure: OnFailure,
) -> Result<Storage, BuildError> {
    unreachable!("without the feature, `StorageMode::parse` refuses redis")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Storage, BuildError> {
        let lookup = |name: &str| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        storage(lookup, OnFailure::Deny)
    }

    fn advice(pairs: &[(&str, &str)]) -> String {
        with(pairs).unwrap_err().to_string()
    }

    #[test]
    fn a_missing_or_unknown_mode_says_what_to_set() {
        assert!(advice(&[]).contains("RL_STORAGE_MODE: is not set; set it to redis or memory"));
        assert!(advice(&[("RL_STORAGE_MODE", " ")]).contains("is not set"));
        assert!(advice(&[("RL_STORAGE_MODE", "etcd")]).contains("redis or memory"));
        let memory = with(&[("RL_STORAGE_MODE", "memory"), ("REDIS_ADDR", "ignored")]);
        assert!(matches!(memory, Ok(Storage::Memory)));
    }

    #[cfg(feature = "redis")]
    #[test]
    fn redis_needs_an_address_and_never_repeats_a_password() {
        let mode = ("RL_STORAGE_MODE", "redis");
        assert!(advice(&[mode]).contains("REDIS_ADDR: is not set"));
        for address in ["127.0.0.1:1", "redis://user:pass@127.0.0.1:1/2"] {
            let store = with(&[mode, ("REDIS_ADDR", address), ("REDIS_PASSWORD", "secret")]);
            let shown = format!("{store:?}");
            assert!(matches!(store, Ok(Storage::Redis(..))), "{shown}");
            assert!(
                !shown.contains("pass@") && !shown.contains("secret"),
                "{shown}"
            );
        }
        let bad = advice(&[mode, ("REDIS_ADDR", "http://user:hunter2@host")]);
        assert!(
            bad.contains("redis://") && !bad.contains("hunter2"),
            "{bad}"
        );
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn redis_without_its_feature_says_so() {
        assert!(advice(&[("RL_STORAGE_MODE", "redis")]).contains("feature"));
    }
}
