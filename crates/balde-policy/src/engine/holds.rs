//! The highest prices of requests in flight, by bucket.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use parking_lot::{Mutex, MutexGuard};

use super::ruleset::Ruleset;
use super::ticket::{Bucket, Indices};
use crate::policy::Key;

/// The highest prices of requests in flight, by bucket. Deciding a request by a bucket's level and its
/// holds, and adding its own, happens under one lock.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<ByBucket>);

type ByBucket = HashMap<(u64, Key), u64>;

/// The holds while a request is decided.
pub(super) struct LockedHolds<'h>(MutexGuard<'h, ByBucket>);

impl Holds {
    pub(super) fn lock(&self) -> LockedHolds<'_> {
        LockedHolds(self.0.lock())
    }

    /// Ends the holds of a request on its buckets.
    pub(super) fn release(&self, rules: &Ruleset, buckets: &mut [Bucket]) {
        let mut holds = self.0.lock();
        for bucket in buckets.iter_mut().filter(|bucket| bucket.held > 0) {
            let name = name_of(rules, bucket);
            if let Some(held) = holds.get_mut(&name) {
                *held = held.saturating_sub(bucket.held);
                if *held == 0 {
                    holds.remove(&name);
                }
            }
            bucket.held = 0;
        }
    }

    /// The tokens held on the bucket with this key under a policy.
    pub(super) fn held(&self, policy: &str, key: &Key) -> u64 {
        let name = (hash(policy), key.clone());
        self.0.lock().get(&name).copied().unwrap_or(0)
    }
}

impl LockedHolds<'_> {
    /// The tokens held on a bucket.
    pub(super) fn on(&self, rules: &Ruleset, bucket: &Bucket) -> u64 {
        self.0.get(&name_of(rules, bucket)).copied().unwrap_or(0)
    }

    /// Holds the highest price on some buckets.
    pub(super) fn add(&mut self, rules: &Ruleset, buckets: &mut [Bucket], indices: &Indices) {
        for index in indices {
            let bucket = &mut buckets[*index];
            let highest = rules.policy(bucket.policy).prices().highest();
            if highest > 0 {
                *self.0.entry(name_of(rules, bucket)).or_default() += highest;
                bucket.held = highest;
            }
        }
    }
}

fn name_of(rules: &Ruleset, bucket: &Bucket) -> (u64, Key) {
    let policy = rules.policy(bucket.policy).name();
    (hash(policy), bucket.located.key.clone())
}

/// Policies are told apart by their names, because their order may change with the profile.
fn hash(policy: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    policy.hash(&mut hasher);
    hasher.finish()
}
