//! Records in Redis, where several simulators find them.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, RedisError, Script};
use serde_json::{Value as Json, json};

use super::world::{Change, Committed, EVENTS_MAX, Kept, Seen, Step, Value, WorldError};

/// The longest that a call may take.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Records in Redis.
#[derive(Clone)]
pub(crate) struct Shared {
    connection: ConnectionManager,
    /// In braces, so that a Cluster would keep all of a world in one place.
    prefix: String,
    script: Arc<Script>,
}

impl Shared {
    /// Connects when first asked something.
    pub(crate) fn new(client: redis::Client, world: &str) -> Result<Self, WorldError> {
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(TIMEOUT))
            .set_connection_timeout(Some(TIMEOUT))
            .set_number_of_retries(1);
        Ok(Self {
            connection: ConnectionManager::new_lazy_with_config(client, config)
                .map_err(|error| away(&error))?,
            prefix: format!("{{{world}}}:"),
            script: Arc::new(Script::new(include_str!("commit.lua"))),
        })
    }

    /// A record and its text.
    pub(super) async fn get<T: Kept>(
        &self,
        name: &str,
    ) -> Result<(Option<Arc<T>>, Option<String>), WorldError> {
        let text: Option<String> = self
            .connection
            .clone()
            .get(self.key(name))
            .await
            .map_err(|error| away(&error))?;
        let value = text.as_deref().map(read).transpose()?;
        Ok((value, text))
    }

    pub(super) async fn get_all<T: Kept>(
        &self,
        names: &[String],
    ) -> Result<Vec<Arc<T>>, WorldError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = names.iter().map(|name| self.key(name)).collect();
        let texts: Vec<Option<String>> = self
            .connection
            .clone()
            .mget(keys)
            .await
            .map_err(|error| away(&error))?;
        texts.iter().flatten().map(|text| read(text)).collect()
    }

    pub(super) async fn members(
        &self,
        set: &str,
        range: RangeInclusive<u64>,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(u64, String)>, WorldError> {
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
            .map_err(|error| away(&error))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "scores are milliseconds, whole and far below 2^53"
        )]
        let whole = |(member, score): (String, f64)| (score as u64, member);
        Ok(members.into_iter().map(whole).collect())
    }

    pub(super) async fn len(&self, set: &str) -> Result<u64, WorldError> {
        let len = self.connection.clone().zcard(self.key(set)).await;
        len.map_err(|error| away(&error))
    }

    pub(super) async fn next_number(&self) -> Result<u64, WorldError> {
        let number = self.connection.clone().incr(self.key("number"), 1).await;
        number.map_err(|error| away(&error))
    }

    pub(super) async fn commit(&self, change: Change) -> Result<Committed, WorldError> {
        let mut call = Call {
            keys: vec!["number".to_owned()],
            steps: Vec::new(),
        };
        for (name, seen) in change.seen {
            let place = call.place(name);
            call.steps.push(match seen {
                Seen::Text(Some(text)) => json!(["is", place, text]),
                Seen::Text(None) | Seen::Version(_) => json!(["absent", place]),
            });
        }
        for step in change.steps {
            call.add(step);
        }
        let mut invocation = self.script.prepare_invoke();
        for key in &call.keys {
            invocation.key(self.key(key));
        }
        invocation.arg(Json::Array(call.steps).to_string());
        let answer: String = invocation
            .invoke_async(&mut self.connection.clone())
            .await
            .map_err(|error| away(&error))?;
        match answer.as_str() {
            "done" => Ok(Committed::Done),
            "conflict" => Ok(Committed::Conflict),
            other => {
                let place = other
                    .strip_prefix("full")
                    .and_then(|n| n.parse::<usize>().ok());
                let name = place.and_then(|place| call.keys.get(place - 1).cloned());
                let name = name.ok_or_else(|| WorldError {
                    why: "it answers what the script does not".to_owned(),
                })?;
                Ok(Committed::Full(name))
            }
        }
    }

    /// A text that is no record.
    pub(crate) async fn text(&self, name: &str) -> Result<Option<String>, WorldError> {
        let text = self.connection.clone().get(self.key(name)).await;
        text.map_err(|error| away(&error))
    }

    /// Keeps a text that is no record, for so long.
    pub(crate) async fn keep_for(
        &self,
        name: &str,
        text: &str,
        seconds: u64,
    ) -> Result<(), WorldError> {
        let key = self.key(name);
        let kept = self.connection.clone().set_ex(key, text, seconds).await;
        kept.map_err(|error| away(&error))
    }

    /// Whether this is the first time that a name is taken, within so many seconds.
    pub(crate) async fn take_once(&self, name: &str, seconds: u64) -> Result<bool, WorldError> {
        let taken: Option<String> = redis::cmd("SET")
            .arg(self.key(name))
            .arg(1)
            .arg("NX")
            .arg("EX")
            .arg(seconds)
            .query_async(&mut self.connection.clone())
            .await
            .map_err(|error| away(&error))?;
        Ok(taken.is_some())
    }

    /// Forgets a text that is no record.
    pub(crate) async fn forget(&self, name: &str) -> Result<(), WorldError> {
        let forgotten = self.connection.clone().del(self.key(name)).await;
        forgotten.map_err(|error| away(&error))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// The script's arguments being put together.
struct Call {
    keys: Vec<String>,
    steps: Vec<Json>,
}

impl Call {
    /// The place of a key in KEYS, counted from one as Lua does.
    fn place(&mut self, name: String) -> usize {
        if let Some(place) = self.keys.iter().position(|key| *key == name) {
            return place + 1;
        }
        self.keys.push(name);
        self.keys.len()
    }

    fn add(&mut self, step: Step) {
        let step = match step {
            Step::Put(name, Value::Shared(text)) => json!(["put", self.place(name), text]),
            // A change is made for the world it is committed to.
            Step::Put(_, Value::Here(_)) => return,
            Step::Delete(name) => json!(["delete", self.place(name)]),
            Step::Add { set, score, member } => json!(["add", self.place(set), score, member]),
            Step::Remove { set, member } => json!(["remove", self.place(set), member]),
            Step::Count { name, delta, max } => json!(["count", self.place(name), delta, max]),
            Step::Event { list, score, text } => {
                json!(["event", self.place(list), score, text, EVENTS_MAX])
            }
        };
        self.steps.push(step);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

fn read<T: Kept>(text: &str) -> Result<Arc<T>, WorldError> {
    serde_json::from_str(text)
        .map(Arc::new)
        .map_err(|_| WorldError {
            why: "a record in Redis is not ours, or of another version".to_owned(),
        })
}

/// Without the error's own text: it may hold an address with a password.
fn away(error: &RedisError) -> WorldError {
    WorldError {
        why: format!("Redis: {}", error.category()),
    }
}
