//! All buckets of one limit: shards, the limit they are under, and the bound on their number.

use balde_core::{Command, Decision, Limit, Start};

use super::directory::Directory;
use super::fingerprint::{Fingerprint, Fingerprints};
use super::shard::{Found, Locked, Shard};
use super::sync::{AtomicU64, Mutex, Ordering, fence};
use super::word::Packing;
#[cfg(feature = "tower")]
use crate::key::ShortKey;

/// The most keys a table can be asked to keep.
pub(crate) const KEYS_MAX_MAX: usize = 1 << 30;

/// Keys looked at for the bucket nearest to full when one must go; in a smaller shard, all.
const EVICT_KEYS: usize = 100;
const EVICT_STRIDE: usize = 32;
const EVICT_ALL_SLOTS: usize = 512;

/// Attempts without the lock before a check takes it.
const ATTEMPTS_MAX: usize = 16;

pub(crate) struct Table {
    secrets: Fingerprints,
    directory: Directory,
    /// The limits of the present generation and of the one before or after it, by parity.
    limits: [Words; 2],
    /// Held while the limit changes.
    changing: Mutex<()>,
    keys_max: u64,
    counts: Counts,
}

#[repr(align(128))]
struct Words([AtomicU64; 6]);

/// Touched only where keys come and go.
#[repr(align(128))]
#[derive(Default)]
struct Counts {
    keys: AtomicU64,
    swept: AtomicU64,
    evicted: AtomicU64,
}

/// What a memory store holds and has let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Keys kept now.
    pub keys: u64,
    /// Full buckets forgotten since the start: nothing was lost with them.
    pub swept_total: u64,
    /// Buckets that were not full and had to go because `keys_max` was reached: each key starts
    /// afresh.
    pub evicted_total: u64,
    /// How often a check found the lock of its part of the store taken and had to wait for it.
    /// Only new keys, decisions over several buckets and rearrangements take a lock.
    pub lock_waits_total: u64,
}

impl Table {
    pub(crate) fn new(limit: Limit, keys_max: usize, now_us: u64) -> Self {
        let keys_max = keys_max.clamp(1, KEYS_MAX_MAX);
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

    /// The common case: the key is there, and one compare-and-swap settles it. Nothing otherwise.
    ///
    /// The clock is read as late as can be: reading it holds up all that comes after.
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

    /// [`try_run`](Table::try_run) that gives up when it is disturbed once: without a loop around
    /// it, all that it knows stays in registers.
    #[cfg(feature = "tower")]
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "most of a decision that is made where it is used is never made"
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
        reason = "a decision in memory takes as long to move as to make"
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
        let standing = packing.snapshot(found.word(), now_us);
        let decision = packing.limit.decide(standing, command);
        if found.settle(&packing, &decision) {
            Attempt::Done(decision)
        } else {
            Attempt::Disturbed
        }
    }

    /// What [`try_run`](Table::try_run) left: the key is new, or somebody is rearranging.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_locked(&self, key: &[u8], command: Command, now_us: u64) -> Decision {
        let key = self.secrets.of(key);
        let mut locked = self.look_after(self.directory.lock(key), now_us);
        let packing = self.packing(&locked);
        if let Some(at) = locked.position(key) {
            loop {
                let found = locked.found(at);
                let standing = packing.snapshot(found.word(), now_us);
                let decision = packing.limit.decide(standing, command);
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

    /// Puts another limit under all buckets. They keep what they are below full. The time is read
    /// anew for each shard, under its lock: what has been refilled by then is not refilled again.
    pub(crate) fn set_limit(&self, new: Limit, now_us: impl Fn() -> u64) {
        let _one_at_a_time = self.changing.lock();
        let generation = self.directory.shard_at(0).shape().generation;
        let old = self.limit();
        let (from, to) = (Packing::new(old), Packing::new(new));
        let next = generation.wrapping_add(1);
        // All shards are at `generation`, so a reader who still goes by the words that are about to
        // be overwritten will find the shape of its shard changed.
        self.limits[(next & 1) as usize].store(new);
        for shard in self.directory.in_use() {
            let locked = shard.lock();
            let now_us = now_us();
            let mut locked = self.look_after(locked, now_us);
            if locked.generation() == next {
                // Split off from one that has changed already.
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

    /// The limit that checks are under now.
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

    /// Forgets every full bucket, shard by shard.
    pub(crate) fn sweep(&self, now_us: u64) {
        for shard in self.directory.in_use() {
            let mut locked = self.look_after(shard.lock(), now_us);
            let packing = self.packing(&locked);
            self.forget_full(&mut locked, &packing, now_us, |word| {
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
        self.look_after(self.directory.shard_at(index).lock(), now_us)
    }

    pub(super) fn split_if_crowded(&self, locked: &mut Locked<'_>) {
        self.directory.split_if_crowded(locked);
    }

    pub(super) fn packing(&self, locked: &Locked<'_>) -> Packing {
        // Under the lock the generation stays, and with it its words.
        let words = self.limits[(locked.generation() & 1) as usize].load();
        Packing::new(Limit::from_words(words))
    }

    /// Adds a bucket for a key that has none, and makes room for it if need be.
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
            self.forget_full(locked, packing, now_us, is_full);
            locked.grow_if_needed();
        }
        let is_over = self.counts.keys.fetch_add(1, Ordering::Relaxed) >= self.keys_max;
        if is_over && locked.is_sweep_due() {
            self.forget_full(locked, packing, now_us, is_full);
        }
        let is_still_over = is_over && self.counts.keys.load(Ordering::Relaxed) > self.keys_max;
        if is_still_over && !self.evict(locked, packing, now_us) {
            // Nothing to evict in this shard: the new key itself is the one that goes.
            self.counts.keys.fetch_sub(1, Ordering::Relaxed);
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        while !locked.insert(key, word) {
            self.evict(locked, packing, now_us);
        }
    }

    /// Looks after the words of a shard, if that is due.
    fn look_after<'s>(&self, mut locked: Locked<'s>, now_us: u64) -> Locked<'s> {
        let horizon_us = locked.horizon_us();
        if now_us >= horizon_us {
            let packing = self.packing(&locked);
            // Words were last written before the horizon. When that is longer ago than a word can
            // tell, what it tells is wrong; but every bucket has been full since.
            let is_ages_ago = now_us - horizon_us > packing.span_us();
            self.forget_full(&mut locked, &packing, now_us, |word| {
                is_ages_ago || packing.ahead(word, now_us) <= 0
            });
            locked.set_horizon_us(now_us.saturating_add(packing.span_us()));
        }
        locked
    }

    fn forget_full(
        &self,
        locked: &mut Locked<'_>,
        packing: &Packing,
        now_us: u64,
        is_full: impl Fn(u64) -> bool,
    ) {
        let taken = locked.taken();
        // A bucket that would start empty is not forgotten, but brought up to now.
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

    /// Drops the bucket that is nearest to full, of those under the hand.
    fn evict(&self, locked: &mut Locked<'_>, packing: &Packing, now_us: u64) -> bool {
        let keys_wanted = if locked.slots_len() <= EVICT_ALL_SLOTS {
            usize::MAX
        } else {
            EVICT_KEYS
        };
        let mut nearest: Option<(i64, usize)> = None;
        let mut keys_seen = 0;
        let mut slots_left = locked.slots_len();
        // Keys are what counts, not slots: a stretch that holds few would offer up whoever is left
        // there, however empty.
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

/// What came of an attempt without the lock.
enum Attempt {
    Done(Decision),
    /// Somebody else was there at the same moment.
    Disturbed,
    /// The key has no bucket that can be had without the lock.
    NotHere,
}

impl Found<'_> {
    /// Makes true what was decided on the bucket that was found. False when somebody else changed
    /// it meanwhile.
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
