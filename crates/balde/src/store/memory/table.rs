//! All buckets of one limiter in memory: the shards, the limits, and the maximum number of keys.
//!
//! A key is in a tier, and each tier has a limit; zero is the tier of keys that were never assigned
//! one. The slot of a bucket holds its tier, so finding the bucket finds the limit. Who knows the tier
//! of each key passes it with every command, and a bucket that is found under another tier is
//! converted first ([`Assignment::Given`]). Otherwise [`set_tier`](Table::set_tier) decides, and the
//! slot is the only place that knows ([`Assignment::Stored`]): it is kept even if its bucket is full.

use balde_core::{Command, Decision, Limit, Start};

use super::directory::Directory;
use super::fingerprint::{Fingerprint, Fingerprints};
use super::held::HeldTokens;
use super::shard::{Found, Locked, Shard};
use super::sync::{AtomicU64, Mutex, Ordering, fence};
use super::tag::TierId;
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
    /// The limits by tier: of the current generation and of the one before or after it, by parity.
    limits: Box<[[Words; 2]]>,
    /// Whether a slot with a tier is the only place that knows it.
    assignment: Assignment,
    /// One limit and no holds: a check needs nothing but the word of its bucket.
    is_plain: bool,
    /// What is held of buckets, if this table has holds.
    held: Option<HeldTokens>,
    /// Locked while the limit changes.
    changing: Mutex<()>,
    keys_max: u64,
    counts: Counts,
}

/// Who knows the tier of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assignment {
    /// The table: [`Table::set_tier`] stores it in the key's slot.
    Stored,
    /// The caller, who passes it with every command.
    Given,
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
    /// A table with one limit.
    #[cfg(test)]
    pub(crate) fn new(limit: Limit, keys_max: usize, now_us: u64) -> Self {
        Self::with_tiers(&[limit], Assignment::Stored, keys_max, now_us)
    }

    /// A table whose keys are under the limits of their tiers. The first limit is that of keys
    /// without a tier; there must be one.
    pub(crate) fn with_tiers(
        limits: &[Limit],
        assignment: Assignment,
        keys_max: usize,
        now_us: u64,
    ) -> Self {
        let keys_max = keys_max.max(1);
        let words = |limit: &Limit| {
            let words = || Words(limit.to_words().map(AtomicU64::new));
            [words(), words()]
        };
        Self {
            secrets: Fingerprints::new(),
            directory: Directory::new(keys_max, now_us.saturating_add(span_us(limits))),
            limits: limits.iter().map(words).collect(),
            assignment,
            is_plain: limits.len() == 1,
            held: None,
            changing: Mutex::new(()),
            keys_max: keys_max as u64,
            counts: Counts::default(),
        }
    }

    /// Holds tokens until they are settled, instead of taking them. Commands are then run by
    /// [`run_all`](super::run_all), which locks the shards of its keys.
    pub(crate) fn with_holds(self) -> Self {
        Self {
            is_plain: false,
            held: Some(HeldTokens::new()),
            ..self
        }
    }

    pub(crate) const fn has_holds(&self) -> bool {
        self.held.is_some()
    }

    pub(super) const fn held(&self) -> Option<&HeldTokens> {
        self.held.as_ref()
    }

    /// Runs a command on the bucket of a key whose tier the table knows.
    #[cfg(test)]
    pub(crate) fn run(&self, key: &[u8], command: Command, now_us: u64) -> Decision {
        self.run_in(key, None, command, now_us)
    }

    /// Runs a command on a key's bucket. `tier` is that of the key, or `None` if the table knows it.
    pub(crate) fn run_in(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        command: Command,
        now_us: u64,
    ) -> Decision {
        match self.try_run(self.fingerprint(key), tier, command, || now_us) {
            Some(decision) => decision,
            None => self.run_locked(key, tier, command, now_us),
        }
    }

    /// The common case: the key is known, and one compare-and-swap decides. Otherwise `None`.
    ///
    /// The clock is read as late as possible, because reading it delays all later instructions.
    #[inline]
    pub(crate) fn try_run(
        &self,
        key: Fingerprint,
        tier: Option<TierId>,
        command: Command,
        now_us: impl Fn() -> u64,
    ) -> Option<Decision> {
        let shard = self.directory.shard(key);
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(shard, key, tier, command, &now_us) {
                Attempt::Done(decision) => return Some(decision),
                Attempt::Disturbed => {}
                Attempt::NotHere => return None,
            }
        }
        None
    }

    /// [`try_run`](Table::try_run) with a single attempt, where the table knows the tier: without a
    /// loop, all values stay in registers.
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
        match self.attempt(self.directory.shard(key), key, None, command, &now_us) {
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
        tier: Option<TierId>,
        command: Command,
        now_us: &impl Fn() -> u64,
    ) -> Attempt {
        let shape = shard.shape();
        // The only limit of a table without tiers is loaded while the slot is searched.
        let mut words = self.words(TierId::NONE, shape.generation).load();
        let Some(found) = shard.find(shape, key) else {
            return Attempt::NotHere;
        };
        if !self.is_plain {
            if self.has_holds() || tier.is_some_and(|tier| tier != found.tier()) {
                return Attempt::NotHere;
            }
            words = self.words(found.tier(), shape.generation).load();
        }
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
    pub(crate) fn run_locked(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        command: Command,
        now_us: u64,
    ) -> Decision {
        let key = self.secrets.of(key);
        let mut locked = self.rewrite_if_due(self.directory.lock(key), now_us);
        let mut at = locked.position(key);
        if let (Some(found), Some(tier)) = (at, tier) {
            if !command.is_write() {
                return self.peek_as(&locked, found, tier, now_us);
            }
            at = self.move_to(&mut locked, found, tier, now_us);
        }
        if let Some(at) = at {
            let packing = self.packing(&locked, locked.tier(at));
            loop {
                let found = locked.found(at);
                let snapshot = packing.snapshot(found.word(), now_us);
                let decision = packing.limit.decide(snapshot, command);
                if found.settle(&packing, &decision) {
                    return decision;
                }
            }
        }
        let tier = tier.unwrap_or_default();
        let packing = self.packing(&locked, tier);
        let decision = packing.limit.decide(packing.limit.fresh(now_us), command);
        if decision.must_be_kept() {
            self.add(&mut locked, key, tier, packing.pack(&decision), now_us);
            self.directory.split_if_crowded(&mut locked);
        }
        decision
    }

    /// Moves a key to another tier. Its bucket keeps its deficit. Returns false if there is no room
    /// for the key.
    pub(crate) fn set_tier(&self, key: &[u8], tier: TierId, now_us: u64) -> bool {
        let key = self.secrets.of(key);
        let mut locked = self.rewrite_if_due(self.directory.lock(key), now_us);
        if let Some(at) = locked.position(key) {
            self.move_to(&mut locked, at, tier, now_us);
            return true;
        }
        if tier == TierId::NONE {
            return true;
        }
        // A bucket that starts empty begins to refill now.
        let word = fresh(&self.packing(&locked, tier), now_us);
        let is_added = self.add(&mut locked, key, tier, word, now_us);
        self.directory.split_if_crowded(&mut locked);
        is_added
    }

    /// The tier of a key.
    pub(crate) fn tier(&self, key: &[u8]) -> TierId {
        let key = self.secrets.of(key);
        let locked = self.directory.lock(key);
        let at = locked.position(key);
        at.map_or(TierId::NONE, |at| locked.tier(at))
    }

    /// Removes a key with its bucket and its tier.
    pub(crate) fn forget(&self, key: &[u8]) {
        let key = self.secrets.of(key);
        let mut locked = self.directory.lock(key);
        if let Some(at) = locked.position(key) {
            locked.remove(at);
            self.counts.keys.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Reads a bucket as if it were in this tier: a peek changes nothing.
    fn peek_as(&self, locked: &Locked<'_>, at: usize, tier: TierId, now_us: u64) -> Decision {
        let from = self.packing(locked, locked.tier(at));
        let to = self.packing(locked, tier);
        let word = converted(&from, &to, locked.found(at).word(), now_us);
        let state = word.map(|word| to.state(word, now_us));
        to.limit.apply(state, Command::Peek, now_us)
    }

    /// Converts a bucket to the limit of another tier. Returns its slot, or `None` if the bucket
    /// equals one that was never used and was removed.
    fn move_to(
        &self,
        locked: &mut Locked<'_>,
        at: usize,
        tier: TierId,
        now_us: u64,
    ) -> Option<usize> {
        let old = locked.tier(at);
        if old == tier {
            return Some(at);
        }
        let (from, to) = (self.packing(locked, old), self.packing(locked, tier));
        let word = converted(&from, &to, locked.freeze(at), now_us);
        if word.is_none() && !self.is_pinned(tier) {
            locked.remove(at);
            self.count_swept(1);
            return None;
        }
        let word = word.unwrap_or_else(|| fresh(&to, now_us));
        locked.thaw(at, tier, word);
        Some(at)
    }

    /// Replaces the limit of all keys without a tier.
    #[cfg(test)]
    pub(crate) fn set_limit(&self, new: Limit, now_us: impl Fn() -> u64) {
        self.set_tier_limit(TierId::NONE, new, now_us);
    }

    /// Replaces the limit of all buckets of a tier. They keep their deficit. The time is read for
    /// each shard under its lock, so that no time is refilled twice.
    pub(crate) fn set_tier_limit(&self, changed: TierId, new: Limit, now_us: impl Fn() -> u64) {
        let _one_at_a_time = self.changing.lock();
        let generation = self.directory.shard_at(0).shape().generation;
        let old = self.tier_limit(changed);
        let (from, to) = (Packing::new(old), Packing::new(new));
        let next = generation.wrapping_add(1);
        // All shards are at `generation`, so a reader that still uses the words which are about to be
        // overwritten will find the shape of its shard changed.
        let mut limits = Vec::with_capacity(self.limits.len());
        for (index, words) in self.limits.iter().enumerate() {
            let current = &words[(generation & 1) as usize];
            let limit = if index == changed.index() {
                new
            } else {
                Limit::from_words(current.load())
            };
            words[(next & 1) as usize].store(limit);
            limits.push(limit);
        }
        let span_us = span_us(&limits);
        for shard in self.directory.in_use() {
            let locked = shard.lock();
            let now_us = now_us();
            let mut locked = self.rewrite_if_due(locked, now_us);
            if locked.generation() == next {
                // Split off from a shard that has changed already.
                continue;
            }
            let taken = locked.taken();
            locked.rewrite(next, |tier, word| {
                if tier != changed {
                    return Some(word);
                }
                let word = converted(&from, &to, word, now_us);
                word.or_else(|| self.is_pinned(tier).then(|| fresh(&to, now_us)))
            });
            self.count_swept(taken - locked.taken());
            locked.set_horizon_us(now_us.saturating_add(span_us));
        }
    }

    /// The current limit of keys without a tier.
    pub(crate) fn limit(&self) -> Limit {
        self.tier_limit(TierId::NONE)
    }

    /// The current limit of a tier.
    pub(crate) fn tier_limit(&self, tier: TierId) -> Limit {
        let shard = self.directory.shard_at(0);
        loop {
            let shape = shard.shape();
            let words = self.words(tier, shape.generation).load();
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
            self.remove_full(&mut locked, now_us, Stale::No);
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

    /// The packing of a tier's buckets.
    pub(super) fn packing(&self, locked: &Locked<'_>, tier: TierId) -> Packing {
        // Under the lock the generation stays, and with it its words.
        self.packing_of(tier, locked.generation())
    }

    fn packing_of(&self, tier: TierId, generation: u32) -> Packing {
        Packing::new(Limit::from_words(self.words(tier, generation).load()))
    }

    #[inline]
    fn words(&self, tier: TierId, generation: u32) -> &Words {
        &self.limits[tier.index()][(generation & 1) as usize]
    }

    /// Returns whether a slot is the only place that knows its key's tier.
    fn is_pinned(&self, tier: TierId) -> bool {
        tier != TierId::NONE && self.assignment == Assignment::Stored
    }

    /// Adds a bucket for a new key, and makes room for it if necessary. Returns false if there is none:
    /// then the key is not kept.
    pub(super) fn add(
        &self,
        locked: &mut Locked<'_>,
        key: Fingerprint,
        tier: TierId,
        word: u64,
        now_us: u64,
    ) -> bool {
        if locked.is_crowded() {
            self.remove_full(locked, now_us, Stale::No);
            locked.grow_if_needed();
        }
        let is_over = self.counts.keys.fetch_add(1, Ordering::Relaxed) >= self.keys_max;
        if is_over && locked.is_sweep_due() {
            self.remove_full(locked, now_us, Stale::No);
        }
        let is_still_over = is_over && self.counts.keys.load(Ordering::Relaxed) > self.keys_max;
        let mut has_room = !is_still_over || self.evict(locked, now_us);
        while has_room && !locked.insert(key, tier, word) {
            has_room = self.evict(locked, now_us);
        }
        if !has_room {
            // Nothing to evict in this shard.
            self.counts.keys.fetch_sub(1, Ordering::Relaxed);
            if !self.is_pinned(tier) {
                self.counts.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
        has_room
    }

    /// Rewrites the words of a shard, if that is due.
    fn rewrite_if_due<'s>(&self, mut locked: Locked<'s>, now_us: u64) -> Locked<'s> {
        let horizon_us = locked.horizon_us();
        if now_us >= horizon_us {
            let limits: Vec<_> = (0..self.limits.len())
                .filter_map(TierId::new)
                .map(|tier| self.packing(&locked, tier).limit)
                .collect();
            self.remove_full(&mut locked, now_us, Stale::Since(horizon_us));
            locked.set_horizon_us(now_us.saturating_add(span_us(&limits)));
        }
        locked
    }

    fn remove_full(&self, locked: &mut Locked<'_>, now_us: u64, stale: Stale) {
        let taken = locked.taken();
        let generation = locked.generation();
        // Of all but a few keys, so it is not computed for each of them.
        let untiered = self.packing_of(TierId::NONE, generation);
        locked.rewrite(generation, |tier, word| {
            let tiered;
            let packing = if tier == TierId::NONE {
                &untiered
            } else {
                tiered = self.packing_of(tier, generation);
                &tiered
            };
            // Words were last written before the horizon. If that is longer ago than a word can
            // represent, the word is wrong; but every bucket has become full since.
            let is_ages_ago = match stale {
                Stale::No => false,
                Stale::Since(horizon_us) => now_us - horizon_us > packing.span_us(),
            };
            if !is_ages_ago && packing.ahead(word, now_us) > 0 {
                return Some(word);
            }
            // A bucket that would start empty is not removed, but updated to now.
            let is_kept = packing.limit.start() == Start::Empty || self.is_pinned(tier);
            is_kept.then(|| packing.full(now_us))
        });
        self.count_swept(taken - locked.taken());
    }

    fn count_swept(&self, count: usize) {
        self.counts.swept.fetch_add(count as u64, Ordering::Relaxed);
        self.counts.keys.fetch_sub(count as u64, Ordering::Relaxed);
    }

    /// Removes the bucket that is nearest to full among the next ones under the clock hand. Returns
    /// false if there is none that can be removed.
    fn evict(&self, locked: &mut Locked<'_>, now_us: u64) -> bool {
        let keys_wanted = if locked.slots_len() <= EVICT_ALL_SLOTS {
            usize::MAX
        } else {
            EVICT_KEYS
        };
        // Under one limit, units can be compared without a division.
        let only = (self.limits.len() == 1).then(|| self.packing(locked, TierId::NONE));
        let ahead = |locked: &Locked<'_>, at: usize| {
            let word = locked.found(at).word();
            match &only {
                Some(packing) => packing.ahead(word, now_us).max(0).unsigned_abs(),
                None => self.packing(locked, locked.tier(at)).us_ahead(word, now_us),
            }
        };
        let mut nearest: Option<(u64, usize)> = None;
        let mut keys_seen = 0;
        let mut slots_left = locked.slots_len();
        // Counts keys, not slots: among few keys, the one nearest to full might be nearly empty.
        while keys_seen < keys_wanted && slots_left > 0 {
            for at in locked.under_hand(EVICT_STRIDE.min(slots_left)) {
                slots_left -= 1;
                if locked.is_taken(at) && !self.is_pinned(locked.tier(at)) {
                    keys_seen += 1;
                    let ahead = ahead(locked, at);
                    if nearest.is_none_or(|(least, _)| ahead < least) {
                        nearest = Some((ahead, at));
                    }
                }
            }
        }
        let Some((ahead, at)) = nearest else {
            return false;
        };
        let start = self.packing(locked, locked.tier(at)).limit.start();
        locked.remove(at);
        if ahead == 0 && start == Start::Full {
            self.count_swept(1);
        } else {
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
            self.counts.keys.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }
}

/// Whether the words of a shard may be too old to be read.
#[derive(Clone, Copy)]
enum Stale {
    No,
    /// They have not been rewritten since this time.
    Since(u64),
}

/// How long words stay valid under any of these limits.
fn span_us(limits: &[Limit]) -> u64 {
    let spans = limits.iter().map(|limit| Packing::new(*limit).span_us());
    spans.min().unwrap_or(0)
}

/// The word of a bucket under another limit; `None` if it equals a bucket that was never used.
pub(super) fn converted(from: &Packing, to: &Packing, word: u64, now_us: u64) -> Option<u64> {
    if from.limit == to.limit {
        return Some(word);
    }
    let state = Some(from.state(word, now_us));
    let state = from.limit.change_to(&to.limit, state, now_us)?;
    Some(to.pack_state(state))
}

/// The word of a bucket that is used for the first time.
pub(super) fn fresh(packing: &Packing, now_us: u64) -> u64 {
    let nothing = Command::Take { n: 0 };
    packing.pack(&packing.limit.apply(None, nothing, now_us))
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
