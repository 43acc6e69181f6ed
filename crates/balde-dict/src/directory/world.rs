//! Where records are kept: in this process, or in Redis, where several simulators find them.
//!
//! Both are the same to whoever uses them: records by name, sets ordered by a number, counts with a
//! maximum, and changes that happen wholly or not at all. A [`Change`] remembers what was read; if
//! any of that is something else by the time it is committed, nothing happens and the caller begins
//! again.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::here::Here;
use super::shared::Shared;

/// The most events that a list keeps; the oldest go first.
pub const EVENTS_MAX: u64 = 10_000;

/// What can be kept.
pub(crate) trait Kept: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Kept for T {}

/// Where records are.
#[derive(Debug)]
pub(crate) enum World {
    Here(Here),
    Shared(Shared),
}

/// A value that a record had when it was read.
#[derive(Debug)]
pub(super) enum Seen {
    /// In memory every change of a record has a number; none is zero.
    Version(u64),
    /// In Redis the text itself.
    Text(Option<String>),
}

/// A value that a record shall have.
#[derive(Debug)]
pub(super) enum Value {
    Here(Arc<dyn Any + Send + Sync>),
    Shared(String),
}

/// One step of a change.
#[derive(Debug)]
pub(super) enum Step {
    Put(String, Value),
    Delete(String),
    /// Adds to an ordered set, or moves what is in it.
    Add {
        set: String,
        score: u64,
        member: String,
    },
    Remove {
        set: String,
        member: String,
    },
    /// Adds to a count, which must not pass a maximum.
    Count {
        name: String,
        delta: i64,
        max: u64,
    },
    /// Appends to a list of events. Its place in the order of all events comes before its text.
    Event {
        list: String,
        score: u64,
        text: String,
    },
}

/// What shall happen, wholly or not at all.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(super) seen: Vec<(String, Seen)>,
    pub(super) steps: Vec<Step>,
}

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    Done,
    /// Something that was read is something else by now.
    Conflict,
    /// This count would have passed its maximum.
    Full(String),
}

/// The records' store cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldError {
    pub(super) why: String,
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the directory's store cannot be asked: {}", self.why)
    }
}

impl std::error::Error for WorldError {}

impl World {
    /// A record.
    pub(crate) async fn get<T: Kept>(&self, name: &str) -> Result<Option<Arc<T>>, WorldError> {
        match self {
            Self::Here(here) => Ok(here.get(name).0),
            Self::Shared(shared) => Ok(shared.get(name).await?.0),
        }
    }

    /// Several records, in the order of their names; those that are not there are left out.
    pub(crate) async fn get_all<T: Kept>(
        &self,
        names: &[String],
    ) -> Result<Vec<Arc<T>>, WorldError> {
        match self {
            Self::Here(here) => Ok(names.iter().filter_map(|name| here.get(name).0).collect()),
            Self::Shared(shared) => shared.get_all(names).await,
        }
    }

    /// A record that the change hangs on.
    pub(crate) async fn read<T: Kept>(
        &self,
        change: &mut Change,
        name: &str,
    ) -> Result<Option<Arc<T>>, WorldError> {
        let (found, seen) = match self {
            Self::Here(here) => {
                let (found, version) = here.get(name);
                (found, Seen::Version(version))
            }
            Self::Shared(shared) => {
                let (found, text) = shared.get(name).await?;
                (found, Seen::Text(text))
            }
        };
        change.seen.push((name.to_owned(), seen));
        Ok(found)
    }

    /// Notes that a record shall have this value.
    pub(crate) fn put<T: Kept>(
        &self,
        change: &mut Change,
        name: String,
        value: Arc<T>,
    ) -> Result<(), WorldError> {
        let value = match self {
            Self::Here(_) => Value::Here(value),
            Self::Shared(_) => {
                let text = serde_json::to_string(&*value).map_err(|error| WorldError {
                    why: error.to_string(),
                })?;
                Value::Shared(text)
            }
        };
        change.steps.push(Step::Put(name, value));
        Ok(())
    }

    /// Members of an ordered set with their numbers, from the lowest: those between two numbers,
    /// after skipping some, at most so many.
    pub(crate) async fn members(
        &self,
        set: &str,
        range: std::ops::RangeInclusive<u64>,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(u64, String)>, WorldError> {
        match self {
            Self::Here(here) => Ok(here.members(set, range, skip, limit)),
            Self::Shared(shared) => shared.members(set, range, skip, limit).await,
        }
    }

    /// How many members an ordered set has.
    pub(crate) async fn len(&self, set: &str) -> Result<u64, WorldError> {
        match self {
            Self::Here(here) => Ok(here.len(set)),
            Self::Shared(shared) => shared.len(set).await,
        }
    }

    /// A number that nobody else gets.
    pub(crate) async fn next_number(&self) -> Result<u64, WorldError> {
        match self {
            Self::Here(here) => Ok(here.next_number()),
            Self::Shared(shared) => shared.next_number().await,
        }
    }

    /// Makes a change happen, wholly or not at all.
    pub(crate) async fn commit(&self, change: Change) -> Result<Committed, WorldError> {
        match self {
            Self::Here(here) => Ok(here.commit(change)),
            Self::Shared(shared) => shared.commit(change).await,
        }
    }
}

impl Change {
    pub(crate) fn delete(&mut self, name: String) {
        self.steps.push(Step::Delete(name));
    }

    pub(crate) fn add(&mut self, set: String, score: u64, member: &str) {
        let member = member.to_owned();
        self.steps.push(Step::Add { set, score, member });
    }

    pub(crate) fn remove(&mut self, set: String, member: &str) {
        let member = member.to_owned();
        self.steps.push(Step::Remove { set, member });
    }

    pub(crate) fn count(&mut self, name: String, delta: i64, max: u64) {
        self.steps.push(Step::Count { name, delta, max });
    }

    pub(crate) fn event(&mut self, list: String, score: u64, text: String) {
        self.steps.push(Step::Event { list, score, text });
    }
}
