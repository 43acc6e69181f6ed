//! Which shard a key is in. A table begins with one shard, and a shard that has filled up splits
//! in two, so a table of few keys is small and a rearrangement is always short.
//!
//! The directory has an entry for each value of a key's first bits; a shard owns a range of
//! entries. Readers use the directory without a lock. A reader that has read an entry which has just
//! changed does not find its key, takes the lock, and reads the entry again.

use super::fingerprint::Fingerprint;
use super::shard::{Locked, Shard, scaled};
use super::sync::{AtomicU64, Ordering};

/// A shard with more keys than this splits. Rearranging that many takes about ten microseconds, the
/// longest that a check can be delayed.
pub(super) const SHARD_KEYS: usize = 1_024;

pub(super) struct Directory {
    entries: Box<[AtomicU64]>,
    /// All shards that there can be; those that are not used yet have no slots.
    shards: Box<[Shard]>,
    used: AtomicU64,
}

impl Directory {
    pub(super) fn new(keys_max: usize, horizon_us: u64) -> Self {
        let shards_max = (keys_max / SHARD_KEYS).next_power_of_two();
        // Keys fall on shards at random; six standard deviations more than the mean is room
        // enough. The 64 are for decisions over many buckets, which split only afterwards.
        let mean = keys_max.div_ceil(shards_max);
        let crowded = match shards_max {
            1 => mean,
            _ => (mean + 6 * mean.isqrt()).max(SHARD_KEYS) + 64,
        };
        let shard = |_| Shard::new(horizon_us, crowded);
        let directory = Self {
            entries: (0..shards_max).map(|_| AtomicU64::new(0)).collect(),
            shards: (0..shards_max).map(shard).collect(),
            used: AtomicU64::new(1),
        };
        directory.shards[0].lock().set_range(0..shards_max);
        directory
    }

    /// The shard of a key, or the one that it was in a moment ago.
    #[inline]
    pub(super) fn shard(&self, key: Fingerprint) -> &Shard {
        &self.shards[self.shard_index(key)]
    }

    #[inline]
    pub(super) fn shard_index(&self, key: Fingerprint) -> usize {
        let entry = self.entries[self.entry(key)].load(Ordering::Acquire);
        usize::try_from(entry).unwrap_or(0)
    }

    pub(super) fn shard_at(&self, index: usize) -> &Shard {
        &self.shards[index]
    }

    /// Locks the shard that a key is in.
    pub(super) fn lock(&self, key: Fingerprint) -> Locked<'_> {
        loop {
            let index = self.shard_index(key);
            let locked = self.shards[index].lock();
            if self.shard_index(key) == index {
                return locked;
            }
        }
    }

    /// All shards in use, in the order of their creation. Shards that are created meanwhile are
    /// included.
    pub(super) fn in_use(&self) -> impl Iterator<Item = &Shard> {
        (0_usize..)
            .take_while(|index| (*index as u64) < self.used.load(Ordering::Acquire))
            .map(|index| &self.shards[index])
    }

    /// Splits a shard that has too many keys, if it can be split.
    pub(super) fn split_if_crowded(&self, crowded: &mut Locked<'_>) {
        let range = crowded.range();
        if crowded.taken() <= SHARD_KEYS || range.len() < 2 {
            return;
        }
        let middle = range.start + range.len() / 2;
        let index = self.used.fetch_add(1, Ordering::AcqRel);
        let new_index = usize::try_from(index).expect("there are few shards");
        // No other thread can reach this shard yet, so its lock is free.
        let mut new = self.shards[new_index].lock();
        crowded.split_off(&mut new, |key| self.entry(key) >= middle);
        crowded.set_range(range.start..middle);
        new.set_range(middle..range.end);
        for entry in &self.entries[middle..range.end] {
            entry.store(index, Ordering::Release);
        }
    }

    #[inline]
    fn entry(&self, key: Fingerprint) -> usize {
        scaled(key.hash() >> 32, self.entries.len() as u64)
    }
}
