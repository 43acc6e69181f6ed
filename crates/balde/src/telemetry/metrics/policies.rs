//! What is known of each policy: its counts, and the limiters to ask for the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limiter::{RateLimiter, WeakLimiter};
use crate::telemetry::meter::Counts;

/// The most policies that are told apart. All further ones are called `other`: names are written in
/// programs, but some programs make them up from what they are sent.
pub const POLICIES_MAX: usize = 200;

/// The longest name of a policy in a label, in bytes. Longer ones are cut, and those that are the
/// same then count together.
pub const POLICY_NAME_BYTES_MAX: usize = 64;

const OTHER: &str = "other";

#[derive(Default)]
pub(super) struct Policies(Mutex<BTreeMap<String, Policy>>);

#[derive(Default)]
struct Policy {
    counts: Arc<Counts>,
    sources: Vec<Source>,
    /// What limiters that are gone had counted. A counter must not go down with them.
    gone: Reading,
}

struct Source {
    limiter: WeakLimiter,
    last: Reading,
}

/// What limiters know by themselves.
#[derive(Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) keys: u64,
    pub(super) swept: u64,
    pub(super) evicted: u64,
    pub(super) lock_waits: u64,
    pub(super) lease_keys: u64,
    pub(super) lease_tokens: u64,
    pub(super) lease_tokens_max: u64,
    pub(super) lease_granted: u64,
    pub(super) lease_refused: u64,
    pub(super) lease_asked: u64,
    pub(super) lease_returned: u64,
}

/// A policy at a scrape.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) counts: Arc<Counts>,
    pub(super) reading: Reading,
}

impl Policies {
    pub(super) fn counts(&self, policy: &str) -> Arc<Counts> {
        let mut policies = self.0.lock();
        let name = label(&policies, policy);
        Arc::clone(&policies.entry(name).or_default().counts)
    }

    pub(super) fn attach(&self, limiter: &RateLimiter) {
        let mut policies = self.0.lock();
        let name = label(&policies, limiter.name());
        let policy = policies.entry(name).or_default();
        // Now and then, so that a program that makes and drops limiters does not pile them up.
        if policy.sources.len().is_power_of_two() {
            policy.read();
        }
        policy.sources.push(Source {
            limiter: limiter.downgrade(),
            last: Reading::default(),
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
    fn read(&mut self) -> Reading {
        let gone = &mut self.gone;
        self.sources.retain_mut(|source| {
            let limiter = source.limiter.upgrade();
            match &limiter {
                Some(limiter) => source.last = Reading::of(limiter),
                None => *gone = gone.plus(source.last.without_levels()),
            }
            limiter.is_some()
        });
        let sources = self.sources.iter();
        sources.fold(self.gone, |sum, source| sum.plus(source.last))
    }
}

impl Reading {
    fn of(limiter: &RateLimiter) -> Self {
        let memory = limiter.memory_stats();
        let reading = Self {
            keys: memory.keys,
            swept: memory.swept_total,
            evicted: memory.evicted_total,
            lock_waits: memory.lock_waits_total,
            ..Self::default()
        };
        #[cfg(feature = "redis")]
        let reading = {
            let leases = limiter.lease_stats();
            Self {
                lease_keys: leases.keys,
                lease_tokens: leases.tokens_out,
                lease_tokens_max: leases.block_max.saturating_mul(leases.keys),
                lease_granted: leases.granted_total,
                lease_refused: leases.refused_total,
                lease_asked: leases.asked_total,
                lease_returned: leases.returned_total,
                ..reading
            }
        };
        reading
    }

    fn plus(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            swept: self.swept + other.swept,
            evicted: self.evicted + other.evicted,
            lock_waits: self.lock_waits + other.lock_waits,
            lease_keys: self.lease_keys + other.lease_keys,
            lease_tokens: self.lease_tokens + other.lease_tokens,
            lease_tokens_max: self.lease_tokens_max.saturating_add(other.lease_tokens_max),
            lease_granted: self.lease_granted + other.lease_granted,
            lease_refused: self.lease_refused + other.lease_refused,
            lease_asked: self.lease_asked + other.lease_asked,
            lease_returned: self.lease_returned + other.lease_returned,
        }
    }

    /// What only a living limiter has is gone with it.
    fn without_levels(self) -> Self {
        Self {
            keys: 0,
            lease_keys: 0,
            lease_tokens: 0,
            lease_tokens_max: 0,
            ..self
        }
    }
}

/// What a policy is called in labels.
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
    fn names_are_cut_cleaned_and_not_told_apart_beyond_the_most() {
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
        let build = || {
            RateLimiter::builder()
                .limit("1/h")
                .keys_max(2)
                .build()
                .unwrap()
        };
        let limiters = [build(), build()];
        for limiter in &limiters {
            policies.attach(limiter);
            for key in ["a", "b", "c"] {
                limiter.blocking().check(key);
            }
        }
        let read = || policies.read().remove(0).reading;
        assert_eq!((read().keys, read().evicted), (4, 2));
        let [first, _second] = limiters;
        drop(first);
        assert_eq!((read().keys, read().evicted), (2, 2));
    }
}
