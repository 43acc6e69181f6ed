//! Records in this process.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::RwLock;

use super::world::{Change, Committed, EVENTS_MAX, Kept, Seen, Step, Value};

/// Records in this process.
#[derive(Default)]
pub(crate) struct Here(RwLock<Everything>);

#[derive(Default)]
struct Everything {
    records: HashMap<String, Record>,
    sets: HashMap<String, Set>,
    counts: HashMap<String, u64>,
    /// Of the last change, and of the last number given out.
    version: u64,
    number: u64,
}

struct Record {
    version: u64,
    value: Arc<dyn Any + Send + Sync>,
}

#[derive(Default)]
struct Set {
    by_score: BTreeSet<(u64, String)>,
    scores: HashMap<String, u64>,
}

impl Here {
    /// A record and the number of its last change; zero, where there is none.
    pub(super) fn get<T: Kept>(&self, name: &str) -> (Option<Arc<T>>, u64) {
        let everything = self.0.read();
        match everything.records.get(name) {
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
        let everything = self.0.read();
        let Some(set) = everything.sets.get(set) else {
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
        let everything = self.0.read();
        everything.sets.get(set).map_or(0, Set::len)
    }

    pub(super) fn next_number(&self) -> u64 {
        let mut everything = self.0.write();
        everything.number += 1;
        everything.number
    }

    pub(super) fn commit(&self, change: Change) -> Committed {
        let mut everything = self.0.write();
        for (name, seen) in &change.seen {
            let version = everything
                .records
                .get(name)
                .map_or(0, |record| record.version);
            if !matches!(seen, Seen::Version(seen) if *seen == version) {
                return Committed::Conflict;
            }
        }
        if let Some(full) = everything.full_count(&change.steps) {
            return Committed::Full(full);
        }
        for step in change.steps {
            everything.take(step);
        }
        Committed::Done
    }
}

impl Everything {
    fn full_count(&self, steps: &[Step]) -> Option<String> {
        let mut sums: HashMap<&str, i64> = HashMap::new();
        for step in steps {
            if let Step::Count { name, delta, max } = step {
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

    fn take(&mut self, step: Step) {
        match step {
            Step::Put(name, Value::Here(value)) => {
                self.version += 1;
                let version = self.version;
                self.records.insert(name, Record { version, value });
            }
            // A change is made for the world it is committed to.
            Step::Put(_, Value::Shared(_)) => {}
            Step::Delete(name) => {
                self.records.remove(&name);
            }
            Step::Add { set, score, member } => {
                self.sets.entry(set).or_default().add(score, member);
            }
            Step::Remove { set, member } => {
                if let Some(members) = self.sets.get_mut(&set) {
                    members.remove(&member);
                    if members.scores.is_empty() {
                        self.sets.remove(&set);
                    }
                }
            }
            Step::Count { name, delta, .. } => {
                let count = self.counts.get(&name).copied().unwrap_or(0);
                match count.saturating_add_signed(delta) {
                    0 => self.counts.remove(&name),
                    count => self.counts.insert(name, count),
                };
            }
            Step::Event { list, score, text } => {
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

impl Set {
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

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let everything = self.0.read();
        f.debug_struct("Here")
            .field("records", &everything.records.len())
            .finish_non_exhaustive()
    }
}
