//! Small values that processes share. Read together, changed one at a time, by the server's clock.

use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use super::RedisStore;
use super::error::failure_of;
use super::key::Names;
use crate::failure::StoreFailure;

const REGISTER: &str = include_str!("register.lua");

/// The registers of one name. All of them are in one slot of a Cluster.
pub(crate) struct Registers {
    store: RedisStore,
    names: Names,
}

/// What registers hold, and when that was.
pub(crate) struct Held {
    pub(crate) now_us: u64,
    pub(crate) is_changed: bool,
    pub(crate) values: Vec<Vec<u8>>,
}

impl Registers {
    pub(crate) fn new(store: &RedisStore, name: &str, hash_tag: &[u8]) -> Self {
        Self {
            names: Names::new(&store.0.settings.prefix, name, Some(hash_tag)),
            store: store.clone(),
        }
    }

    pub(crate) async fn read(&self, keys: &[&str]) -> Result<Held, StoreFailure> {
        self.request(keys, None).await
    }

    /// Puts `new` in the place of `old`, unless something else is there.
    pub(crate) async fn change(
        &self,
        key: &str,
        old: &[u8],
        new: &[u8],
        lasts: Duration,
    ) -> Result<Held, StoreFailure> {
        self.request(&[key], Some((old, new, lasts))).await
    }

    async fn request(
        &self,
        keys: &[&str],
        change: Option<(&[u8], &[u8], Duration)>,
    ) -> Result<Held, StoreFailure> {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(REGISTER).arg(keys.len());
        for key in keys {
            command.arg(self.names.bucket(key.as_bytes()));
        }
        if let Some((old, new, lasts)) = change {
            let ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX).max(1);
            command.arg(old).arg(new).arg(ms);
        }
        let deadline = Instant::now() + self.store.timeout();
        let asking = async {
            let (link, number, mut connection) = self.store.connection().await?;
            connection.send(&command).await.map_err(|error| {
                let failure = failure_of(&error);
                if failure == StoreFailure::Disconnected {
                    link.lost(number);
                }
                failure
            })
        };
        let answer = timeout_at(deadline, asking).await;
        let reply = answer.unwrap_or(Err(StoreFailure::Timeout))?;
        held(reply, keys.len()).ok_or(StoreFailure::Script)
    }
}

fn held(reply: Value, registers: usize) -> Option<Held> {
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
    Some(Held {
        now_us,
        is_changed,
        values,
    })
}
