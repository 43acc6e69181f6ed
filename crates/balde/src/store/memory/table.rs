//! All buckets of one limiter in memory: the shards, the limit, and the maximum number of keys.

use balde_core::{Command, Decision, Limit, Start};

use super::directory::Directory;
use super::fingerprint::{Fingerprint, Fingerprints};
use super::shard::{Found, Locked, Shard};
use super::sync::{AtomicU64, Mutex, Ordering, fence};
use super::word::Packing;
#[cfg(feature = "tower")]
use crate::key::ShortKey;

/// The keys that an eviction compares, to find the bucket nearest to full; in a small shard, all.
const EVICT_KEYS: usize = 100;
const EVICT_STRIDE: usize = 32;
const EVICT_ALL_SLOTS: usize = 512;

/// Lock-free attempts before a check takes the lock.
const ATTEMPTS_MAX: usize = 16;

pub(crate) struct Table {
    secrets: Fingerprints,
    directory: Directory,
    /// The limits of the current generation and of the one before or after it, by parity.
    limits: [Words; 2],
    /// Locked while the limit changes.
    changing: Mutex<()>,
    keys_max: u64,
    counts: Counts,
}

#[repr(align(128))]
struct Words([AtomicU64; 6]);

/// Written only when keys are added or removed.
#[repr(align(128))]
#[derive(Default)]
struct Counts {
    keys: AtomicU64,
    swept: AtomicU64,
    evicted: AtomicU64,
}

/// Counters and gauges of the memory store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Keys in the store now.
    pub keys: u64,
    /// Full buckets removed since the start. Nothing was lost with them.
    pub swept_total: u64,
    /// Buckets that were not full and were evicted because `keys_max` was reached. Their keys start
    /// with a new bucket.
    pub evicted_total: u64,
    /// How often a check had to wait for the lock of its shard. Only new keys, decisions over several
    /// buckets and rearrangements take a lock.
    pub lock_waits_total: u64,
}

impl Table {
    pub(crate) fn new(limit: Limit, keys_max: usize, now_us: u64) -> Self {
        let keys_max = keys_max.max(1);
        let horizon_us = now_us.saturating_add(Packing::new(limit).span_us());
        let words = Words(limit.to_words().map(AtomicU64::new));
        let spare = Words(limit.to_words().map(AtomicU64::new));
        Self {
            secrets: Fingerprints::new(),
            directory: Directory::new(keys_max, horizon_us),
            limits: [words, spare],
            changing: Mutex::new(()),
            keys_max: keys_max as u64,
            counts: Counts::default(),
        }
    }

    /// Runs a command on a key's bucket.
    pub(crate) fn run(&self, key: &[u8], command: Command, now_us: u64) -> Decision {
        match self.try_run(self.fingerprint(key), command, || now_us) {
            Some(decision) => decision,
            None => self.run_locked(key, command, now_us),
        }
    }

    /// The common case: the key is known, and one compare-and-swap decides. Otherwise `None`.
    ///
    /// The clock is read as late as possible, because reading it delays all later instructions.
    #[inline]
    pub(crate) fn try_run(
        &self,
        key: Fingerprint,
        command: Command,
        now_us: impl Fn() -> u64,
    ) -> Option<Decision> {
        let shard = self.directory.shard(key);
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(shard, key, command, &now_us) {
                Attempt::Done(decision) => return Some(decision),
                Attempt::Disturbed => {}
                Attempt::NotHere => return None,
            }
        }
        None
    }

    /// [`try_run`](Table::try_run) with a single attempt: without a loop, all values stay in
    /// registers.
    #[cfg(feature = "tower")]
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "unused fields of the decision are optimised away"
    )]
    pub(crate) fn try_run_once(
        &self,
        key: Fingerprint,
        command: Command,
        now_us: impl Fn() -> u64,
    ) -> Option<Decision> {
        match self.attempt(self.directory.shard(key), key, command, &now_us) {
            Attempt::Done(decision) => Some(decision),
            Attempt::Disturbed | Attempt::NotHere => None,
        }
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "copying a decision takes as long as making it"
    )]
    fn attempt(
        &self,
        shard: &Shard,
        key: Fingerprint,
        command: Command,
        now_us: &impl Fn() -> u64,
    ) -> Attempt {
        let shape = shard.shape();
        let words = self.limits[(shape.generation & 1) as usize].load();
        let Some(found) = shard.find(shape, key) else {
            return Attempt::NotHere;
        };
        let now_us = now_us();
        if now_us >= shard.horizon_us() {
            return Attempt::NotHere;
        }
        if !shard.is_still(shape) {
            return Attempt::Disturbed;
        }
        let packing = Packing::new(Limit::from_words(words));
        let snapshot = packing.snapshot(found.word(), now_us);
        let decision = packing.limit.decide(snapshot, command);
        if found.settle(&packing, &decision) {
            Attempt::Done(decision)
        } else {
            Attempt::Disturbed
        }
    }

    /// The rest of [`try_run`](Table::try_run): the key is new, or its shard is being rearranged.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_locked(&self, key: &[u8], command: Command, now_us: u64) -> Decision {
        let key = self.secrets.of(key);
        let mut locked = self.rewrite_if_due(self.directory.lock(key), now_us);
        let packing = self.packing(&locked);
        if let Some(at) = locked.position(key) {
            loop {
                let found = locked.found(at);
                let snapshot = packing.snapshot(found.word(), now_us);
                let decision = packing.limit.decide(snapshot, command);
                if found.settle(&packing, &decision) {
                    return decision;
                }
            }
        }
        let decision = packing.limit.decide(packing.limit.fresh(now_us), command);
        if decision.must_be_kept() {
            self.add(&mut locked, &packing, key, packing.pack(&decision), now_us);
            self.directory.split_if_crowded(&mut locked);
        }
        decision
    }

    /// Replaces the limit of all buckets. They keep their deficit. The time is read for each shard
    /// under its lock, so that no time is refilled twice.
    pub(crate) fn set_limit(&self, new: Limit, now_us: impl Fn() -> u64) {
        let _one_at_a_time = self.changing.lock();
        let generation = self.directory.shard_at(0).shape().generation;
        let old = self.limit();
        let (from, to) = (Packing::new(old), Packing::new(new));
        let next = generation.wrapping_add(1);
        // All shards are at `generation`, so a reader that still uses the words which are about to be
        // overwritten will find the shape of its shard changed.
        self.limits[(next & 1) as usize].store(new);
        for shard in self.directory.in_use() {
            let locked = shard.lock();
            let now_us = now_us();
            let mut locked = self.rewrite_if_due(locked, now_us);
            if locked.generation() == next {
                // Split off from a shard that has changed already.
                continue;
            }
            let taken = locked.taken();
            locked.rewrite(next, |word| {
                let state = old.change_to(&new, Some(from.state(word, now_us)), now_us)?;
                Some(to.pack_state(state))
            });
            self.count_swept(taken - locked.taken());
            locked.set_horizon_us(now_us.saturating_add(to.span_us()));
        }
    }

    /// The current limit.
    pub(crate) fn limit(&self) -> Limit {
        let shard = self.directory.shard_at(0);
        loop {
            let shape = shard.shape();
            let words = self.limits[(shape.generation & 1) as usize].load();
            if shard.is_still(shape) {
                return Limit::from_words(words);
            }
        }
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.counts.keys.load(Ordering::Relaxed),
            swept_total: self.counts.swept.load(Ordering::Relaxed),
            evicted_total: self.counts.evicted.load(Ordering::Relaxed),
            lock_waits_total: self.directory.in_use().map(Shard::waits).sum(),
        }
    }

    /// Removes every full bucket, shard by shard.
    pub(crate) fn sweep(&self, now_us: u64) {
        for shard in self.directory.in_use() {
            let mut locked = self.rewrite_if_due(shard.lock(), now_us);
            let packing = self.packing(&locked);
            self.remove_full(&mut locked, &packing, now_us, |word| {
                packing.ahead(word, now_us) <= 0
            });
        }
    }

    #[inline]
    pub(crate) fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        self.secrets.of(key)
    }

    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn short_fingerprint(&self, key: &ShortKey) -> Fingerprint {
        self.secrets.of_short(key)
    }

    pub(super) fn shard_index(&self, key: Fingerprint) -> usize {
        self.directory.shard_index(key)
    }

    pub(super) fn lock_shard(&self, index: usize, now_us: u64) -> Locked<'_> {
        self.rewrite_if_due(self.directory.shard_at(index).lock(), now_us)
    }

    pub(super) fn split_if_crowded(&self, locked: &mut Locked<'_>) {
        self.directory.split_if_crowded(locked);
    }

    pub(super) fn packing(&self, locked: &Locked<'_>) -> Packing {
        // Under the lock the generation stays, and with it its words.
        let words = self.limits[(locked.generation() & 1) as usize].load();
        Packing::new(Limit::from_words(words))
    }

    /// Adds a bucket for a new key, and makes room for it if necessary.
    pub(super) fn add(
        &self,
        locked: &mut Locked<'_>,
        packing: &Packing,
        key: Fingerprint,
        word: u64,
        now_us: u64,
    ) {
        let is_full = |word| packing.ahead(word, now_us) <= 0;
        if locked.is_crowded() {
            self.remove_full(locked, packing, now_us, is_full);
            locked.grow_if_needed();
        }
        let is_over = self.counts.keys.fetch_add(1, Ordering::Relaxed) >= self.keys_max;
        if is_over && locked.is_sweep_due() {
            self.remove_full(locked, packing, now_us, is_full);
        }
        let is_still_over = is_over && self.counts.keys.load(Ordering::Relaxed) > self.keys_max;
        if is_still_over && !self.evict(locked, packing, now_us) {
            // Nothing to evict in this shard, so the new key is not kept.
            self.counts.keys.fetch_sub(1, Ordering::Relaxed);
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        while !locked.insert(key, word) {
            self.evict(locked, packing, now_us);
        }
    }

    /// Rewrites the words of a shard, if that is due.
    fn rewrite_if_due<'s>(&self, mut locked: Locked<'s>, now_us: u64) -> Locked<'s> {
        let horizon_us = locked.horizon_us();
        if now_us >= horizon_us {
            let packing = self.packing(&locked);
            // Words were last written before the horizon. If that is longer ago than a word can
            // represent, the word is wrong; but every bucket has become full since.
            let is_ages_ago = now_us - horizon_us > packing.span_us();
            self.remove_full(&mut locked, &packing, now_us, |word| {
                is_ages_ago || packing.ahead(word, now_us) <= 0
            });
            locked.set_horizon_us(now_us.saturating_add(packing.span_us()));
        }
        locked
    }

    fn remove_full(
        &self,
        locked: &mut Locked<'_>,
        packing: &Packing,
        now_us: u64,
        is_full: impl Fn(u64) -> bool,
    ) {
        let taken = locked.taken();
        // A bucket that would start empty is not removed, but updated to now.
        let instead = (packing.limit.start() == Start::Empty).then(|| packing.full(now_us));
        locked.rewrite(locked.generation(), |word| {
            if is_full(word) { instead } else { Some(word) }
        });
        self.count_swept(taken - locked.taken());
    }

    fn count_swept(&self, count: usize) {
        self.counts.swept.fetch_add(count as u64, Ordering::Relaxed);
        self.counts.keys.fetch_sub(count as u64, Ordering::Relaxed);
    }

    /// Removes the bucket that is nearest to full among the next ones under the clock hand.
    fn evict(&self, locked: &mut Locked<'_>, packing: &Packing, now_us: u64) -> bool {
        let keys_wanted = if locked.slots_len() <= EVICT_ALL_SLOTS {
            usize::MAX
        } else {
            EVICT_KEYS
        };
        let mut nearest: Option<(i64, usize)> = None;
        let mut keys_seen = 0;
        let mut slots_left = locked.slots_len();
        // Counts keys, not slots: among few keys, the one nearest to full might be nearly empty.
        while keys_seen < keys_wanted && slots_left > 0 {
            for at in locked.under_hand(EVICT_STRIDE.min(slots_left)) {
                slots_left -= 1;
                if locked.is_taken(at) {
                    keys_seen += 1;
                    let ahead = packing.ahead(locked.found(at).word(), now_us);
                    if nearest.is_none_or(|(least, _)| ahead < least) {
                        nearest = Some((ahead, at));
                    }
                }
            }
        }
        let Some((ahead, at)) = nearest else {
            return false;
        };
        locked.remove(at);
        if ahead <= 0 && packing.limit.start() == Start::Full {
            self.count_swept(1);
        } else {
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
            self.counts.keys.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }
}

/// The result of a lock-free attempt.
enum Attempt {
    Done(Decision),
    /// Another thread changed the bucket or the shard at the same time.
    Disturbed,
    /// The key has no bucket that can be reached without the lock.
    NotHere,
}

impl Found<'_> {
    /// Stores the bucket after a decision. Returns false if another thread has changed it.
    #[inline]
    fn settle(&self, packing: &Packing, decision: &Decision) -> bool {
        if decision.owed() == decision.owed_before() {
            self.is_still()
        } else {
            self.replace(packing.pack(decision))
        }
    }
}

impl Words {
    #[inline]
    fn load(&self) -> [u64; 6] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    fn store(&self, limit: Limit) {
        fence(Ordering::Release);
        for (word, value) in self.0.iter().zip(limit.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }
}
