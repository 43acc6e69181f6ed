//! The counters of each policy, and the registered limiters that the other numbers are read from.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::telemetry::meter::Counts;

/// The most policies with a label of their own. All further ones share the label `other`, because
/// some programs derive names from requests.
const POLICIES_MAX: usize = 200;

/// The longest policy name in a label, in bytes. Longer names are cut, and names that are equal then
/// count together.
const POLICY_NAME_BYTES_MAX: usize = 64;

const OTHER: &str = "other";

/// Reads the counters of a limiter; `None` once the limiter is gone.
type Read = Box<dyn Fn() -> Option<LimiterReading> + Send + Sync>;

#[derive(Default)]
pub(super) struct Policies(Mutex<BTreeMap<String, Policy>>);

#[derive(Default)]
struct Policy {
    counts: Arc<Counts>,
    sources: Vec<Source>,
    /// The counts of limiters that are gone. A counter must not go down with them.
    gone: LimiterReading,
}

struct Source {
    read: Read,
    last: LimiterReading,
}

/// The numbers that a limiter keeps itself.
#[derive(Clone, Copy, Default)]
pub(crate) struct LimiterReading {
    pub(crate) keys: u64,
    pub(crate) swept: u64,
    pub(crate) evicted: u64,
    pub(crate) lock_waits: u64,
    pub(crate) log_dropped: u64,
    pub(crate) waiters: u64,
    pub(crate) waits: WaitCounts,
    pub(crate) lease_keys: u64,
    pub(crate) lease_tokens: u64,
    pub(crate) lease_tokens_max: u64,
    pub(crate) lease_granted: u64,
    pub(crate) lease_refused: u64,
    pub(crate) lease_requests: u64,
    pub(crate) lease_returned: u64,
}

/// Calls of acquire that did not get their tokens at once, by outcome.
#[derive(Clone, Copy, Default)]
pub(crate) struct WaitCounts {
    pub(crate) granted: u64,
    pub(crate) timed_out: u64,
    pub(crate) dropped: u64,
    pub(crate) too_many_waiters: u64,
    pub(crate) refused: u64,
}

/// A policy at a scrape.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) counts: Arc<Counts>,
    pub(super) reading: LimiterReading,
}

impl Policies {
    pub(super) fn counts(&self, policy: &str) -> Arc<Counts> {
        let mut policies = self.0.lock();
        let name = label(&policies, policy);
        Arc::clone(&policies.entry(name).or_default().counts)
    }

    /// Registers a limiter under the name of its policy.
    pub(super) fn add(&self, policy: &str, read: Read) {
        let mut policies = self.0.lock();
        let name = label(&policies, policy);
        let policy = policies.entry(name).or_default();
        // Drops sources that are gone, so that they do not pile up in a program that makes and
        // drops limiters.
        if policy.sources.len().is_power_of_two() {
            policy.read();
        }
        policy.sources.push(Source {
            read,
            last: LimiterReading::default(),
        });
    }

    pub(super) fn read(&self) -> Vec<Row> {
        let mut policies = self.0.lock();
        let row = |(name, policy): (&String, &mut Policy)| Row {
            name: name.clone(),
            counts: Arc::clone(&policy.counts),
            reading: policy.read(),
        };
        policies.iter_mut().map(row).collect()
    }
}

impl Policy {
    fn read(&mut self) -> LimiterReading {
        let gone = &mut self.gone;
        self.sources.retain_mut(|source| {
            let reading = (source.read)();
            match reading {
                Some(reading) => source.last = reading,
                None => *gone = gone.plus(source.last.without_gauges()),
            }
            reading.is_some()
        });
        let sources = self.sources.iter();
        sources.fold(self.gone, |sum, source| sum.plus(source.last))
    }
}

impl LimiterReading {
    fn plus(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            swept: self.swept + other.swept,
            evicted: self.evicted + other.evicted,
            lock_waits: self.lock_waits + other.lock_waits,
            log_dropped: self.log_dropped + other.log_dropped,
            waiters: self.waiters + other.waiters,
            waits: self.waits.plus(other.waits),
            lease_keys: self.lease_keys + other.lease_keys,
            lease_tokens: self.lease_tokens + other.lease_tokens,
            lease_tokens_max: self.lease_tokens_max.saturating_add(other.lease_tokens_max),
            lease_granted: self.lease_granted + other.lease_granted,
            lease_refused: self.lease_refused + other.lease_refused,
            lease_requests: self.lease_requests + other.lease_requests,
            lease_returned: self.lease_returned + other.lease_returned,
        }
    }

    /// Gauges end with their limiter; counters stay.
    fn without_gauges(self) -> Self {
        Self {
            keys: 0,
            waiters: 0,
            lease_keys: 0,
            lease_tokens: 0,
            lease_tokens_max: 0,
            ..self
        }
    }
}

impl WaitCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            timed_out: self.timed_out + other.timed_out,
            dropped: self.dropped + other.dropped,
            too_many_waiters: self.too_many_waiters + other.too_many_waiters,
            refused: self.refused + other.refused,
        }
    }
}

/// The label of a policy.
fn label(known: &BTreeMap<String, Policy>, policy: &str) -> String {
    let end = policy.floor_char_boundary(POLICY_NAME_BYTES_MAX);
    let plain = |c: char| if c.is_control() { '_' } else { c };
    let name: String = policy[..end].chars().map(plain).collect();
    if known.len() < POLICIES_MAX || known.contains_key(&name) {
        name
    } else {
        OTHER.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_cleaned_and_share_a_label_beyond_the_maximum() {
        let policies = Policies::default();
        let long = "ã".repeat(POLICY_NAME_BYTES_MAX);
        policies.counts(&long);
        policies.counts("two\nlines");
        for number in 0..2 * POLICIES_MAX {
            policies.counts(&format!("policy-{number}"));
        }
        let names: Vec<String> = policies.read().into_iter().map(|row| row.name).collect();
        assert_eq!(names.len(), POLICIES_MAX + 1);
        assert!(names.contains(&"other".to_owned()));
        assert!(names.contains(&"two_lines".to_owned()));
        assert!(names.contains(&"ã".repeat(POLICY_NAME_BYTES_MAX / 2)));
        assert!(Arc::ptr_eq(
            &policies.counts("new"),
            &policies.counts("newer")
        ));
    }

    #[test]
    fn what_a_dropped_limiter_had_counted_stays() {
        let policies = Policies::default();
        let limiters = [Arc::new(()), Arc::new(())];
        for limiter in &limiters {
            let limiter = Arc::downgrade(limiter);
            let reading = LimiterReading {
                keys: 2,
                evicted: 1,
                ..LimiterReading::default()
            };
            policies.add("p", Box::new(move || limiter.upgrade().map(|_| reading)));
        }
        let read = || policies.read().remove(0).reading;
        assert_eq!((read().keys, read().evicted), (4, 2));
        let [first, _second] = limiters;
        drop(first);
        assert_eq!((read().keys, read().evicted), (2, 2));
    }
}
