//! Records in Redis, where several simulators share them.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, RedisError, Script};
use serde_json::{Value as Json, json};

use super::change::{
    Change, CommitResult, EVENTS_MAX, Record, RecordStoreError, Value, Version, Write,
};

/// The timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Records in Redis.
#[derive(Clone)]
pub(crate) struct RedisRecords {
    connection: ConnectionManager,
    /// The namespace in braces: a hash tag, so that Redis Cluster keeps all its keys in one slot.
    prefix: String,
    script: Arc<Script>,
}

impl RedisRecords {
    /// Prepares a connection, which is made by the first call.
    pub(crate) fn new(client: redis::Client, namespace: &str) -> Result<Self, RecordStoreError> {
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(TIMEOUT))
            .set_connection_timeout(Some(TIMEOUT))
            .set_number_of_retries(1);
        Ok(Self {
            connection: ConnectionManager::new_lazy_with_config(client, config)
                .map_err(|error| store_error(&error))?,
            prefix: format!("{{{namespace}}}:"),
            script: Arc::new(Script::new(include_str!("commit.lua"))),
        })
    }

    /// Checks that Redis responds.
    pub(crate) async fn ping(&self) -> Result<(), RecordStoreError> {
        let mut connection = self.connection.clone();
        let pong: Result<(), RedisError> = redis::cmd("PING").query_async(&mut connection).await;
        pong.map_err(|error| store_error(&error))
    }

    /// Returns a record and its text.
    pub(super) async fn get<T: Record>(
        &self,
        name: &str,
    ) -> Result<(Option<Arc<T>>, Option<String>), RecordStoreError> {
        let text: Option<String> = self
            .connection
            .clone()
            .get(self.key(name))
            .await
            .map_err(|error| store_error(&error))?;
        let value = text.as_deref().map(read).transpose()?;
        Ok((value, text))
    }

    pub(super) async fn get_all<T: Record>(
        &self,
        names: &[String],
    ) -> Result<Vec<Arc<T>>, RecordStoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = names.iter().map(|name| self.key(name)).collect();
        let texts: Vec<Option<String>> = self
            .connection
            .clone()
            .mget(keys)
            .await
            .map_err(|error| store_error(&error))?;
        texts.iter().flatten().map(|text| read(text)).collect()
    }

    pub(super) async fn members(
        &self,
        set: &str,
        range: RangeInclusive<u64>,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(u64, String)>, RecordStoreError> {
        let limit = isize::try_from(limit).unwrap_or(isize::MAX);
        let skip = isize::try_from(skip).unwrap_or(isize::MAX);
        let members: Vec<(String, f64)> = redis::cmd("ZRANGEBYSCORE")
            .arg(self.key(set))
            .arg(*range.start())
            .arg(range.end().to_string())
            .arg("WITHSCORES")
            .arg("LIMIT")
            .arg(skip)
            .arg(limit)
            .query_async(&mut self.connection.clone())
            .await
            .map_err(|error| store_error(&error))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "scores are milliseconds, whole and far below 2^53"
        )]
        let whole = |(member, score): (String, f64)| (score as u64, member);
        Ok(members.into_iter().map(whole).collect())
    }

    pub(super) async fn len(&self, set: &str) -> Result<u64, RecordStoreError> {
        let len = self.connection.clone().zcard(self.key(set)).await;
        len.map_err(|error| store_error(&error))
    }

    pub(super) async fn next_number(&self) -> Result<u64, RecordStoreError> {
        let number = self.connection.clone().incr(self.key("number"), 1).await;
        number.map_err(|error| store_error(&error))
    }

    pub(super) async fn commit<T>(
        &self,
        change: Change,
        value: T,
    ) -> Result<CommitResult<T>, RecordStoreError> {
        let mut arguments = ScriptArguments {
            keys: vec!["number".to_owned()],
            steps: Vec::new(),
        };
        for (name, expected) in change.expected {
            let index = arguments.key_index(name);
            arguments.steps.push(match expected {
                Version::Text(Some(text)) => json!(["is", index, text]),
                Version::Text(None) | Version::Number(_) => json!(["absent", index]),
            });
        }
        for write in change.writes {
            arguments.add(write);
        }
        let mut invocation = self.script.prepare_invoke();
        for key in &arguments.keys {
            invocation.key(self.key(key));
        }
        invocation.arg(Json::Array(arguments.steps).to_string());
        let answer: String = invocation
            .invoke_async(&mut self.connection.clone())
            .await
            .map_err(|error| store_error(&error))?;
        match answer.as_str() {
            "done" => Ok(CommitResult::Committed(value)),
            "conflict" => Ok(CommitResult::Conflict),
            other => {
                let index = other
                    .strip_prefix("full")
                    .and_then(|index| index.parse::<usize>().ok());
                let name = index.and_then(|index| arguments.keys.get(index - 1).cloned());
                let name = name.ok_or_else(|| {
                    RecordStoreError::new("Redis returned an unknown result of the commit script")
                })?;
                Ok(CommitResult::LimitReached(name))
            }
        }
    }

    /// Reads a text that is not a record.
    pub(crate) async fn get_text(&self, name: &str) -> Result<Option<String>, RecordStoreError> {
        let text = self.connection.clone().get(self.key(name)).await;
        text.map_err(|error| store_error(&error))
    }

    /// Writes a text that is not a record and expires after `seconds`.
    pub(crate) async fn set_text(
        &self,
        name: &str,
        text: &str,
        seconds: u64,
    ) -> Result<(), RecordStoreError> {
        let key = self.key(name);
        let written = self.connection.clone().set_ex(key, text, seconds).await;
        written.map_err(|error| store_error(&error))
    }

    /// Creates a marker that expires after `seconds`. Returns false if it exists already.
    pub(crate) async fn create_marker(
        &self,
        name: &str,
        seconds: u64,
    ) -> Result<bool, RecordStoreError> {
        let created: Option<String> = redis::cmd("SET")
            .arg(self.key(name))
            .arg(1)
            .arg("NX")
            .arg("EX")
            .arg(seconds)
            .query_async(&mut self.connection.clone())
            .await
            .map_err(|error| store_error(&error))?;
        Ok(created.is_some())
    }

    /// Removes a text or a marker.
    pub(crate) async fn delete_text(&self, name: &str) -> Result<(), RecordStoreError> {
        let deleted = self.connection.clone().del(self.key(name)).await;
        deleted.map_err(|error| store_error(&error))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// The arguments of the commit script.
struct ScriptArguments {
    keys: Vec<String>,
    steps: Vec<Json>,
}

impl ScriptArguments {
    /// Returns the index of a key in KEYS, from one as in Lua.
    fn key_index(&mut self, name: String) -> usize {
        if let Some(index) = self.keys.iter().position(|key| *key == name) {
            return index + 1;
        }
        self.keys.push(name);
        self.keys.len()
    }

    fn add(&mut self, write: Write) {
        let step = match write {
            Write::Put(name, Value::Text(text)) => json!(["put", self.key_index(name), text]),
            // A transaction makes its values for the store that it is committed to.
            Write::Put(_, Value::Memory(_)) => return,
            Write::Delete(name) => json!(["delete", self.key_index(name)]),
            Write::AddMember { set, score, member } => {
                json!(["add", self.key_index(set), score, member])
            }
            Write::RemoveMember { set, member } => json!(["remove", self.key_index(set), member]),
            Write::Count { name, delta, max } => json!(["count", self.key_index(name), delta, max]),
            Write::AppendEvent { list, score, text } => {
                json!(["event", self.key_index(list), score, text, EVENTS_MAX])
            }
        };
        self.steps.push(step);
    }
}

impl fmt::Debug for RedisRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRecords")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

fn read<T: Record>(text: &str) -> Result<Arc<T>, RecordStoreError> {
    serde_json::from_str(text).map(Arc::new).map_err(|_| {
        RecordStoreError::new("a record in Redis has another format, or is of another version")
    })
}

/// Leaves out the error's own text, which may contain an address with a password.
fn store_error(error: &RedisError) -> RecordStoreError {
    RecordStoreError::new(format!("Redis: {}", error.category()))
}
