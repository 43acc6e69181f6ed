//! Where the directory's records are kept: in this process, or in Redis to be shared by several
//! simulators.
//!
//! Both stores hold records by name, sorted sets, counters with a maximum and lists of events. A
//! [`RecordTransaction`] remembers what it has read. Its writes are applied together, and only if
//! none of that has changed in between (optimistic concurrency control).

mod change;
mod memory;
mod redis;

use std::ops::RangeInclusive;
use std::sync::Arc;

pub use change::RecordStoreError;
pub(crate) use change::{CommitResult, EVENTS_MAX, Record};
pub(crate) use memory::MemoryRecords;
pub(crate) use redis::RedisRecords;

use change::{Change, Value, Version, Write};

/// Where records are kept.
#[derive(Debug)]
pub(crate) enum RecordStore {
    Memory(MemoryRecords),
    Redis(RedisRecords),
}

impl RecordStore {
    /// Reads a record.
    pub(super) async fn get<T: Record>(
        &self,
        name: &str,
    ) -> Result<Option<Arc<T>>, RecordStoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.get(name).0),
            Self::Redis(redis) => Ok(redis.get(name).await?.0),
        }
    }

    /// Reads several records, in the order of `names`. Records that do not exist are left out.
    pub(super) async fn get_all<T: Record>(
        &self,
        names: &[String],
    ) -> Result<Vec<Arc<T>>, RecordStoreError> {
        match self {
            Self::Memory(memory) => {
                Ok(names.iter().filter_map(|name| memory.get(name).0).collect())
            }
            Self::Redis(redis) => redis.get_all(names).await,
        }
    }

    /// Returns members of a sorted set whose scores are within `range`, lowest score first: at most
    /// `limit` of them, after skipping `skip`.
    pub(super) async fn members(
        &self,
        set: &str,
        range: RangeInclusive<u64>,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(u64, String)>, RecordStoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.members(set, range, skip, limit)),
            Self::Redis(redis) => redis.members(set, range, skip, limit).await,
        }
    }

    /// Returns the number of members of a sorted set.
    pub(super) async fn len(&self, set: &str) -> Result<u64, RecordStoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.len(set)),
            Self::Redis(redis) => redis.len(set).await,
        }
    }

    /// Returns the next sequence number. No number is returned twice.
    pub(super) async fn next_number(&self) -> Result<u64, RecordStoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.next_number()),
            Self::Redis(redis) => redis.next_number().await,
        }
    }

    /// Starts a transaction.
    pub(super) fn begin(&self) -> RecordTransaction<'_> {
        RecordTransaction {
            store: self,
            change: Change::default(),
        }
    }
}

/// Reads and writes that are committed together or not at all.
#[derive(Debug)]
pub(super) struct RecordTransaction<'s> {
    store: &'s RecordStore,
    change: Change,
}

impl RecordTransaction<'_> {
    /// Reads a record. The commit fails if the record has changed by then.
    pub(super) async fn read<T: Record>(
        &mut self,
        name: &str,
    ) -> Result<Option<Arc<T>>, RecordStoreError> {
        let (found, version) = match self.store {
            RecordStore::Memory(memory) => {
                let (found, number) = memory.get(name);
                (found, Version::Number(number))
            }
            RecordStore::Redis(redis) => {
                let (found, text) = redis.get(name).await?;
                (found, Version::Text(text))
            }
        };
        self.change.expected.push((name.to_owned(), version));
        Ok(found)
    }

    /// Writes a record.
    pub(super) fn put<T: Record>(
        &mut self,
        name: String,
        value: Arc<T>,
    ) -> Result<(), RecordStoreError> {
        let value = match self.store {
            RecordStore::Memory(_) => Value::Memory(value),
            RecordStore::Redis(_) => {
                let text = serde_json::to_string(&*value);
                Value::Text(text.map_err(|error| RecordStoreError::new(error.to_string()))?)
            }
        };
        self.change.writes.push(Write::Put(name, value));
        Ok(())
    }

    /// Removes a record.
    pub(super) fn delete(&mut self, name: String) {
        self.change.writes.push(Write::Delete(name));
    }

    /// Adds a member to a sorted set, or changes its score.
    pub(super) fn add_member(&mut self, set: String, score: u64, member: &str) {
        let member = member.to_owned();
        self.change
            .writes
            .push(Write::AddMember { set, score, member });
    }

    /// Removes a member from a sorted set.
    pub(super) fn remove_member(&mut self, set: String, member: &str) {
        let member = member.to_owned();
        self.change.writes.push(Write::RemoveMember { set, member });
    }

    /// Adds to a counter. The commit fails if that would make it grow above `max`.
    pub(super) fn count(&mut self, name: String, delta: i64, max: u64) {
        self.change.writes.push(Write::Count { name, delta, max });
    }

    /// Appends to a list of events.
    pub(super) fn append_event(&mut self, list: String, score: u64, text: String) {
        self.change
            .writes
            .push(Write::AppendEvent { list, score, text });
    }

    /// Applies all writes, if no record that was read has changed, and passes `value` through. A
    /// transaction without writes always succeeds.
    pub(super) async fn commit<T>(self, value: T) -> Result<CommitResult<T>, RecordStoreError> {
        if self.change.writes.is_empty() {
            return Ok(CommitResult::Committed(value));
        }
        match self.store {
            RecordStore::Memory(memory) => Ok(memory.commit(self.change, value)),
            RecordStore::Redis(redis) => redis.commit(self.change, value).await,
        }
    }
}
