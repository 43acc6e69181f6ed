//! A set of writes and what they depend on, in the form that both stores commit.

use std::any::Any;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The most events that a list keeps. The oldest events are removed first.
pub(crate) const EVENTS_MAX: u64 = 10_000;

/// A value that can be kept in either store.
pub(crate) trait Record: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Record for T {}

/// Writes that are applied together, if every expected record version still holds.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) expected: Vec<(String, Version)>,
    pub(super) writes: Vec<Write>,
}

/// What a record was when it was read.
#[derive(Debug)]
pub(super) enum Version {
    /// In memory, the number of the record's last change, or zero for a record that does not exist.
    Number(u64),
    /// In Redis, the record's text.
    Text(Option<String>),
}

/// A record's new value, in the form of the store it is written to.
#[derive(Debug)]
pub(super) enum Value {
    Memory(Arc<dyn Any + Send + Sync>),
    Text(String),
}

/// One write of a change.
#[derive(Debug)]
pub(super) enum Write {
    Put(String, Value),
    Delete(String),
    /// Adds a member to a sorted set, or changes its score.
    AddMember {
        set: String,
        score: u64,
        member: String,
    },
    RemoveMember {
        set: String,
        member: String,
    },
    /// Adds to a counter. Growing it above `max` fails the whole change.
    Count {
        name: String,
        delta: i64,
        max: u64,
    },
    /// Appends to a list of events. The stored text starts with the event's sequence number.
    AppendEvent {
        list: String,
        score: u64,
        text: String,
    },
}

/// The result of committing a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommitResult<T> {
    /// Everything was written. Carries the transaction's result.
    Committed(T),
    /// A record that was read has changed since. Nothing was written.
    Conflict,
    /// The counter of this name would have passed its maximum. Nothing was written.
    LimitReached(String),
}

/// The store of the directory's records failed or is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the directory's store is unavailable: {reason}")]
pub struct RecordStoreError {
    reason: String,
}

impl RecordStoreError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}
