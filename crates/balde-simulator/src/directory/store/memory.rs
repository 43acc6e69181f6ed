//! Records in this process's memory.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::RwLock;

use super::change::{Change, CommitResult, EVENTS_MAX, Record, Value, Version, Write};

/// Records in this process's memory.
#[derive(Default)]
pub(crate) struct MemoryRecords(RwLock<Tables>);

#[derive(Default)]
struct Tables {
    records: HashMap<String, StoredRecord>,
    sets: HashMap<String, SortedSet>,
    counts: HashMap<String, u64>,
    /// The version of the record that was written last.
    version: u64,
    /// The last sequence number that was given out.
    number: u64,
}

struct StoredRecord {
    version: u64,
    value: Arc<dyn Any + Send + Sync>,
}

#[derive(Default)]
struct SortedSet {
    by_score: BTreeSet<(u64, String)>,
    scores: HashMap<String, u64>,
}

impl MemoryRecords {
    /// Returns a record and its version. A record that does not exist has version zero.
    pub(super) fn get<T: Record>(&self, name: &str) -> (Option<Arc<T>>, u64) {
        let tables = self.0.read();
        match tables.records.get(name) {
            Some(record) => {
                let value = Arc::clone(&record.value).downcast().ok();
                (value, record.version)
            }
            None => (None, 0),
        }
    }

    pub(super) fn members(
        &self,
        set: &str,
        range: RangeInclusive<u64>,
        skip: usize,
        limit: usize,
    ) -> Vec<(u64, String)> {
        let tables = self.0.read();
        let Some(set) = tables.sets.get(set) else {
            return Vec::new();
        };
        set.by_score
            .range((*range.start(), String::new())..)
            .take_while(|(score, _)| score <= range.end())
            .skip(skip)
            .take(limit)
            .cloned()
            .collect()
    }

    pub(super) fn len(&self, set: &str) -> u64 {
        let tables = self.0.read();
        tables.sets.get(set).map_or(0, SortedSet::len)
    }

    pub(super) fn next_number(&self) -> u64 {
        let mut tables = self.0.write();
        tables.number += 1;
        tables.number
    }

    pub(super) fn commit<T>(&self, change: Change, value: T) -> CommitResult<T> {
        let mut tables = self.0.write();
        for (name, expected) in &change.expected {
            let version = tables.records.get(name).map_or(0, |record| record.version);
            if !matches!(expected, Version::Number(number) if *number == version) {
                return CommitResult::Conflict;
            }
        }
        if let Some(full) = tables.full_counter(&change.writes) {
            return CommitResult::LimitReached(full);
        }
        for write in change.writes {
            tables.apply(write);
        }
        CommitResult::Committed(value)
    }
}

impl Tables {
    /// The first counter that the writes would make grow above its maximum.
    fn full_counter(&self, writes: &[Write]) -> Option<String> {
        let mut sums: HashMap<&str, i64> = HashMap::new();
        for write in writes {
            if let Write::Count { name, delta, max } = write {
                let sum = sums.entry(name).or_default();
                *sum += delta;
                let count = self.counts.get(name).copied().unwrap_or(0);
                if *sum > 0 && count.saturating_add_signed(*sum) > *max {
                    return Some(name.clone());
                }
            }
        }
        None
    }

    fn apply(&mut self, write: Write) {
        match write {
            Write::Put(name, Value::Memory(value)) => {
                self.version += 1;
                let version = self.version;
                self.records.insert(name, StoredRecord { version, value });
            }
            // A transaction makes its values for the store that it is committed to.
            Write::Put(_, Value::Text(_)) => {}
            Write::Delete(name) => {
                self.records.remove(&name);
            }
            Write::AddMember { set, score, member } => {
                self.sets.entry(set).or_default().add(score, member);
            }
            Write::RemoveMember { set, member } => {
                if let Some(members) = self.sets.get_mut(&set) {
                    members.remove(&member);
                    if members.scores.is_empty() {
                        self.sets.remove(&set);
                    }
                }
            }
            Write::Count { name, delta, .. } => {
                let count = self.counts.get(&name).copied().unwrap_or(0);
                match count.saturating_add_signed(delta) {
                    0 => self.counts.remove(&name),
                    count => self.counts.insert(name, count),
                };
            }
            Write::AppendEvent { list, score, text } => {
                self.number += 1;
                let member = format!("{:016}:{text}", self.number);
                let events = self.sets.entry(list).or_default();
                events.add(score, member);
                while events.len() > EVENTS_MAX
                    && let Some((_, oldest)) = events.by_score.first().cloned()
                {
                    events.remove(&oldest);
                }
            }
        }
    }
}

impl SortedSet {
    fn len(&self) -> u64 {
        self.scores.len() as u64
    }

    fn add(&mut self, score: u64, member: String) {
        self.remove(&member);
        self.by_score.insert((score, member.clone()));
        self.scores.insert(member, score);
    }

    fn remove(&mut self, member: &str) {
        if let Some(score) = self.scores.remove(member) {
            self.by_score.remove(&(score, member.to_owned()));
        }
    }
}

impl fmt::Debug for MemoryRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.0.read();
        f.debug_struct("MemoryRecords")
            .field("records", &tables.records.len())
            .finish_non_exhaustive()
    }
}
