//! Small values that processes share: read together, changed one at a time, with the server's clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use super::RedisStore;
use super::error::failure_of;
use super::key::Names;
use crate::failure::StoreFailure;

const REGISTER: &str = include_str!("register.lua");

/// Small values in Redis that several processes read and change, for example the health of a backend
/// that all of them call. Several are read in one call; one is changed at a time, by compare-and-set.
/// Made by [`RedisStore::registers`](super::RedisStore::registers).
///
/// ```no_run
/// use balde::RedisStore;
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::new("redis://127.0.0.1")?;
/// let registers = store.registers("deploy", "deploy");
/// let day = Duration::from_secs(86_400);
/// let before = registers.read(&["version"]).await?;
/// let after = registers.compare_and_set("version", &before.values[0], b"2", day).await?;
/// if !after.is_changed {
///     println!("another process was first: {:?}", after.values[0]);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Registers {
    store: RedisStore,
    names: Arc<Names>,
}

/// The values of [`Registers`], and the time at which they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisterValues {
    /// The server's clock, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// True if [`compare_and_set`](Registers::compare_and_set) has changed the register. False after
    /// a read.
    pub is_changed: bool,
    /// The values, in the order of the keys. A register that does not exist is empty.
    pub values: Vec<Vec<u8>>,
}

impl Registers {
    pub(super) fn new(store: &RedisStore, name: &str, hash_tag: &[u8]) -> Self {
        Self {
            names: Arc::new(Names::new(&store.0.settings.prefix, name, Some(hash_tag))),
            store: store.clone(),
        }
    }

    /// Reads registers, all in one call.
    pub async fn read(&self, keys: &[&str]) -> Result<RegisterValues, StoreFailure> {
        self.call(keys, None).await
    }

    /// Writes `new` if the register holds `old` (empty: if it does not exist). Returns what the
    /// register holds afterwards. It expires after `ttl`.
    pub async fn compare_and_set(
        &self,
        key: &str,
        old: &[u8],
        new: &[u8],
        ttl: Duration,
    ) -> Result<RegisterValues, StoreFailure> {
        self.call(&[key], Some((old, new, ttl))).await
    }

    async fn call(
        &self,
        keys: &[&str],
        change: Option<(&[u8], &[u8], Duration)>,
    ) -> Result<RegisterValues, StoreFailure> {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(REGISTER).arg(keys.len());
        for key in keys {
            command.arg(self.names.bucket(key.as_bytes()));
        }
        if let Some((old, new, ttl)) = change {
            let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
            command.arg(old).arg(new).arg(ms);
        }
        let deadline = Instant::now() + self.store.timeout();
        let exchange = async {
            let (link, number, mut connection) = self.store.connection().await?;
            connection.send(&command).await.map_err(|error| {
                let failure = failure_of(&error);
                if failure == StoreFailure::Disconnected {
                    link.lost(number);
                }
                failure
            })
        };
        let reply = timeout_at(deadline, exchange).await;
        let reply = reply.unwrap_or(Err(StoreFailure::Timeout))?;
        values_of(reply, keys.len()).ok_or(StoreFailure::Rejected)
    }
}

impl fmt::Debug for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registers").finish_non_exhaustive()
    }
}

fn values_of(reply: Value, registers: usize) -> Option<RegisterValues> {
    let Value::Array(items) = reply else {
        return None;
    };
    let mut items = items.into_iter();
    let bytes = |value: Option<Value>| match value {
        Some(Value::BulkString(bytes)) => Some(bytes),
        _ => None,
    };
    let now_us = std::str::from_utf8(&bytes(items.next())?)
        .ok()?
        .parse()
        .ok()?;
    let is_changed = items.next()? == Value::Int(1);
    let values: Option<Vec<_>> = items.map(|item| bytes(Some(item))).collect();
    let values = values.filter(|values| values.len() == registers)?;
    Some(RegisterValues {
        now_us,
        is_changed,
        values,
    })
}
