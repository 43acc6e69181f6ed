//! A part of the table: slots that are read without a lock and rearranged under one.
//!
//! A check finds its slot, computes the new bucket and stores it with one compare-and-swap. Whatever
//! adds, moves or removes keys holds the shard's lock, and keeps three rules so that readers can
//! continue meanwhile:
//!
//! 1. Before a slot changes its key, its bucket is *frozen*: replaced by [`FROZEN`], so that no
//!    reader's compare-and-swap can succeed on it. A reader that finds a frozen bucket, or does not
//!    find its key, takes the lock and searches again; only under the lock is a missing key certain.
//! 2. A slot is filled bucket first and fingerprint last, and emptied bucket first too. A reader
//!    reads fingerprint, bucket, fingerprint: if both readings agree, the bucket was its own.
//! 3. A stored bucket is offset by its fingerprint, its tag and the table's generation. So the word
//!    that a slow reader holds cannot reappear under another key or another limit.

use std::ops::Range;

use super::fingerprint::Fingerprint;
use super::region::{GROUP_SLOTS, Region, Slot};
use super::sync::{AtomicU64, Mutex, MutexGuard, OnceLock, Ordering, fence, lock_counting};
use super::tag::{Tag, TierId};

/// The word of a slot that is being rearranged. No bucket is ever stored as this word.
const FROZEN: u64 = 0;

/// An odd constant (the golden ratio) spreads generations over all 64 bits.
const GENERATION_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Groups of a shard with its first key.
const GROUPS_MIN: usize = 2;

/// A shard grows when it has more keys per group than this on average.
const GROUP_KEYS_MAX: usize = 4;

/// Groups that a reader searches before it takes the lock.
const GROUPS_FOLLOWED_MAX: usize = 4;

#[repr(align(128))]
pub(super) struct Shard {
    /// Groups in use (upper half) and generation (lower half), so that both change at once.
    shape: AtomicU64,
    /// After this time words might be misread, and the shard must be rewritten first.
    horizon_us: AtomicU64,
    /// Memory for all groups that the shard may need; allocated with its first key.
    region: OnceLock<Region>,
    groups_max: usize,
    /// How often a thread had to wait for the lock.
    waits: AtomicU64,
    arrangement: Mutex<Arrangement>,
}

/// The data that the lock protects.
#[derive(Debug, Default)]
pub(super) struct Arrangement {
    taken: usize,
    hand: usize,
    /// Keys added since full buckets were last removed.
    added: usize,
    /// Entries of the directory that lead here.
    range: Range<usize>,
}

/// How many groups a shard uses, and under which generation of the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    groups: u32,
    pub(super) generation: u32,
}

/// A bucket that was found.
pub(super) struct Found<'s> {
    slot: Slot<'s>,
    tag: Tag,
    offset: u64,
    stored: u64,
}

/// A key with its tag and its bucket, taken out of its slot.
type Entry = (Fingerprint, Tag, u64);

impl Shard {
    /// A shard with room for `keys`, once it is used.
    pub(super) fn new(horizon_us: u64, keys: usize) -> Self {
        let groups_max = keys / GROUP_KEYS_MAX + GROUPS_MIN;
        Self {
            shape: AtomicU64::new(Shape::default().to_word()),
            horizon_us: AtomicU64::new(horizon_us),
            region: first_region(groups_max),
            groups_max,
            waits: AtomicU64::new(0),
            arrangement: Mutex::new(Arrangement::default()),
        }
    }

    #[inline]
    pub(super) fn shape(&self) -> Shape {
        Shape::of_word(self.shape.load(Ordering::Acquire))
    }

    /// Returns whether the shape has not changed since it was read.
    #[inline]
    pub(super) fn is_still(&self, shape: Shape) -> bool {
        fence(Ordering::Acquire);
        self.shape.load(Ordering::Relaxed) == shape.to_word()
    }

    #[inline]
    pub(super) fn horizon_us(&self) -> u64 {
        self.horizon_us.load(Ordering::Relaxed)
    }

    /// The bucket of a key, if it can be found without the lock.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the result stays in registers if this is inlined"
    )]
    pub(super) fn find(&self, shape: Shape, key: Fingerprint) -> Option<Found<'_>> {
        let region = self.region.get()?;
        let home = shape.home(key);
        for index in home..home + GROUPS_FOLLOWED_MAX {
            let group = region.group(index)?;
            let found = group.matches(key.hi);
            if found != 0 {
                let slot = group.slot(found.trailing_zeros() as usize);
                let stored = slot.word.load(Ordering::Acquire);
                // Whoever sees a new tag sees that the old word is frozen, so that a decision under the
                // wrong limit is not stored.
                let lo = slot.lo.load(Ordering::Acquire);
                let tag = Tag::of_lo(lo);
                let is_own = lo & !Tag::MASK == key.lo
                    && slot.hi.load(Ordering::Relaxed) == key.hi
                    && stored != FROZEN;
                return is_own.then(|| Found {
                    slot,
                    tag,
                    offset: offset(key, tag, shape.generation),
                    stored,
                });
            }
            if group.overflowed().load(Ordering::Relaxed) == 0 {
                return None;
            }
        }
        None
    }

    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            arrangement: lock_counting(&self.arrangement, &self.waits),
            shape: self.shape(),
            shard: self,
        }
    }
}

impl Found<'_> {
    #[inline]
    pub(super) fn tier(&self) -> TierId {
        self.tag.tier()
    }

    #[inline]
    pub(super) fn word(&self) -> u64 {
        self.stored.wrapping_sub(self.offset)
    }

    /// Returns whether the bucket has not changed since it was found.
    #[inline]
    pub(super) fn is_still(&self) -> bool {
        self.slot.word.load(Ordering::Acquire) == self.stored
    }

    /// Replaces the bucket by `word`, unless another thread has changed it.
    #[inline]
    pub(super) fn replace(&self, word: u64) -> bool {
        let stored = stored(word, self.offset);
        self.slot
            .word
            .compare_exchange(self.stored, stored, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// A locked shard: only the holder adds, moves or removes keys.
pub(super) struct Locked<'s> {
    arrangement: MutexGuard<'s, Arrangement>,
    shape: Shape,
    shard: &'s Shard,
}

impl<'s> Locked<'s> {
    pub(super) fn generation(&self) -> u32 {
        self.shape.generation
    }

    /// Slots that hold a key.
    pub(super) fn taken(&self) -> usize {
        self.arrangement.taken
    }

    /// Slots in use, with a key or without.
    pub(super) fn slots_len(&self) -> usize {
        self.shape.groups as usize * GROUP_SLOTS
    }

    /// Entries of the directory that lead here.
    pub(super) fn range(&self) -> Range<usize> {
        self.arrangement.range.clone()
    }

    pub(super) fn set_range(&mut self, range: Range<usize>) {
        self.arrangement.range = range;
    }

    pub(super) fn horizon_us(&self) -> u64 {
        self.shard.horizon_us()
    }

    pub(super) fn set_horizon_us(&self, horizon_us: u64) {
        self.shard.horizon_us.store(horizon_us, Ordering::Relaxed);
    }

    /// The slot of a key. Only under the lock is it certain that there is none.
    pub(super) fn position(&self, key: Fingerprint) -> Option<usize> {
        let mut index = self.shape.home(key);
        for _ in 0..self.shape.groups {
            let group = self.region().group(index)?;
            let mut found = group.matches(key.hi);
            while found != 0 {
                let slot = found.trailing_zeros() as usize;
                if group.slot(slot).lo.load(Ordering::Relaxed) & !Tag::MASK == key.lo {
                    return Some(index * GROUP_SLOTS + slot);
                }
                found &= found - 1;
            }
            if group.overflowed().load(Ordering::Relaxed) == 0 {
                return None;
            }
            index = self.shape.after(index);
        }
        None
    }

    /// The bucket in a taken slot; other threads may replace it at any time.
    pub(super) fn found(&self, at: usize) -> Found<'s> {
        let slot = self.slot(at);
        let (key, tag) = identity(slot);
        Found {
            slot,
            tag,
            offset: offset(key, tag, self.shape.generation),
            stored: slot.word.load(Ordering::Acquire),
        }
    }

    /// The tier of the key in a taken slot. Only the holder of the lock changes it.
    pub(super) fn tier(&self, at: usize) -> TierId {
        Tag::of_lo(self.slot(at).lo.load(Ordering::Relaxed)).tier()
    }

    /// Takes the bucket out of a slot, so that no other thread can change it before it is thawed.
    pub(super) fn freeze(&self, at: usize) -> u64 {
        let slot = self.slot(at);
        let stored = slot.word.swap(FROZEN, Ordering::AcqRel);
        let (key, tag) = identity(slot);
        stored.wrapping_sub(offset(key, tag, self.shape.generation))
    }

    /// Puts a bucket back into the slot that it was frozen in, under the limit of `tier`.
    pub(super) fn thaw(&self, at: usize, tier: TierId, word: u64) {
        let slot = self.slot(at);
        let (key, mut tag) = identity(slot);
        if tag.tier() != tier {
            tag = tag.moved_to(tier);
            // Before the word: a reader that sees the new word sees this too.
            slot.lo.store(key.lo | tag.bits(), Ordering::Release);
        }
        let offset = offset(key, tag, self.shape.generation);
        slot.word.store(stored(word, offset), Ordering::Release);
    }

    /// Returns whether full buckets should be removed before another key is added, and the shard
    /// grown if that does not free enough.
    pub(super) fn is_crowded(&self) -> bool {
        self.arrangement.taken >= self.shape.groups as usize * GROUP_KEYS_MAX
    }

    /// Returns whether many of the keys were added since full buckets were last removed.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.arrangement.added * 4 >= self.arrangement.taken
    }

    /// Grows the shard, unless many of its slots have just been freed.
    pub(super) fn grow_if_needed(&mut self) {
        let groups = self.shape.groups as usize;
        if self.arrangement.taken >= groups * GROUP_KEYS_MAX / 4 * 3 {
            let more = (groups * 7 / 5).max(groups + GROUPS_MIN);
            self.rearrange(more, self.shape.generation, |_, word| Some(word));
        }
    }

    /// Adds a key that has no slot. Returns false if the shard is full.
    pub(super) fn insert(&mut self, key: Fingerprint, tier: TierId, word: u64) -> bool {
        if self.arrangement.taken == self.slots_len() {
            return false;
        }
        self.place((key, Tag::new(tier), word));
        self.arrangement.taken += 1;
        self.arrangement.added += 1;
        true
    }

    /// Empties a slot.
    pub(super) fn remove(&mut self, at: usize) {
        let mut index = self.shape.home(identity(self.slot(at)).0);
        self.clear(at);
        self.arrangement.taken -= 1;
        while index != at / GROUP_SLOTS {
            self.count_overflowed(index, |count| count - 1);
            index = self.shape.after(index);
        }
    }

    /// The positions of the next `count` slots under the clock hand, which moves around the shard.
    pub(super) fn under_hand(&mut self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots_len();
        let from = self.arrangement.hand;
        let count = count.min(slots);
        self.arrangement.hand = (from + count).checked_rem(slots).unwrap_or(0);
        (from..from + count).map(move |at| at % slots)
    }

    pub(super) fn is_taken(&self, at: usize) -> bool {
        self.slot(at).hi.load(Ordering::Relaxed) != 0
    }

    /// Gives every bucket a new word under `generation`, or removes it. Slots may move.
    pub(super) fn rewrite(
        &mut self,
        generation: u32,
        new_word: impl FnMut(TierId, u64) -> Option<u64>,
    ) {
        self.rearrange(self.shape.groups as usize, generation, new_word);
    }

    /// Moves some keys to a shard that has none.
    pub(super) fn split_off(
        &mut self,
        other: &mut Locked<'_>,
        is_moving: impl Fn(Fingerprint) -> bool,
    ) {
        let (moving, staying): (Vec<_>, Vec<_>) = self
            .take_all()
            .into_iter()
            .partition(|(key, ..)| is_moving(*key));
        let generation = self.shape.generation;
        other.set_horizon_us(self.shard.horizon_us());
        other.fill(roomy(moving.len()), generation, moving);
        self.fill(roomy(staying.len()), generation, staying);
    }

    fn rearrange(
        &mut self,
        groups: usize,
        generation: u32,
        mut new_word: impl FnMut(TierId, u64) -> Option<u64>,
    ) {
        let mut kept = self.take_all();
        kept.retain_mut(|(_, tag, word)| match new_word(tag.tier(), *word) {
            Some(new) => {
                *word = new;
                true
            }
            None => false,
        });
        self.fill(groups, generation, kept);
    }

    /// Empties all slots. Readers find nothing and wait for the lock.
    fn take_all(&mut self) -> Vec<Entry> {
        let mut all = Vec::with_capacity(self.arrangement.taken);
        for at in 0..self.slots_len() {
            if self.is_taken(at) {
                let (key, tag) = identity(self.slot(at));
                let offset = offset(key, tag, self.shape.generation);
                all.push((key, tag, self.clear(at).wrapping_sub(offset)));
            }
        }
        for index in 0..self.shape.groups as usize {
            self.count_overflowed(index, |_| 0);
        }
        all
    }

    /// Fills a shard whose slots are all empty, under a new shape.
    fn fill(&mut self, groups: usize, generation: u32, keys: Vec<Entry>) {
        let groups = groups.min(self.shard.groups_max);
        self.shape = Shape {
            groups: u32::try_from(groups).expect("a shard has at most a few hundred groups"),
            generation,
        };
        self.shard
            .shape
            .store(self.shape.to_word(), Ordering::Release);
        self.arrangement.taken = keys.len();
        // The hand keeps its position: starting at zero each time would visit the first slots more
        // often than the others.
        let slots = self.slots_len();
        self.arrangement.hand = self.arrangement.hand.checked_rem(slots).unwrap_or(0);
        self.arrangement.added = 0;
        for entry in keys {
            self.place(entry);
        }
    }

    /// Fills the first empty slot from the key's home group on. There is one.
    fn place(&self, (key, tag, word): Entry) {
        let stored = stored(word, offset(key, tag, self.shape.generation));
        let mut index = self.shape.home(key);
        loop {
            let group = self.region().group(index);
            let group = group.expect("the region has room for every group of the shape");
            let empty = group.matches(0).trailing_zeros() as usize;
            if empty < GROUP_SLOTS {
                let slot = group.slot(empty);
                slot.lo.store(key.lo | tag.bits(), Ordering::Relaxed);
                slot.word.store(stored, Ordering::Release);
                slot.hi.store(key.hi, Ordering::Release);
                return;
            }
            self.count_overflowed(index, |count| count + 1);
            index = self.shape.after(index);
        }
    }

    fn clear(&self, at: usize) -> u64 {
        let slot = self.slot(at);
        let stored = slot.word.swap(FROZEN, Ordering::AcqRel);
        slot.hi.store(0, Ordering::Release);
        stored
    }

    fn count_overflowed(&self, index: usize, count: impl Fn(u64) -> u64) {
        if let Some(group) = self.region().group(index) {
            let overflowed = group.overflowed();
            overflowed.store(count(overflowed.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    fn slot(&self, at: usize) -> Slot<'s> {
        let group = self.region().group(at / GROUP_SLOTS);
        let group = group.expect("positions come from the shape, and the region has room for it");
        group.slot(at % GROUP_SLOTS)
    }

    fn region(&self) -> &'s Region {
        let groups_max = self.shard.groups_max;
        self.shard.region.get_or_init(|| Region::new(groups_max))
    }
}

impl Shape {
    /// The group where the search for a key begins: the hash scaled to the number of groups, which
    /// need not be a power of two.
    #[inline]
    fn home(self, key: Fingerprint) -> usize {
        scaled(key.hash() & 0xFFFF_FFFF, u64::from(self.groups))
    }

    fn after(self, index: usize) -> usize {
        if index + 1 == self.groups as usize {
            0
        } else {
            index + 1
        }
    }

    #[inline]
    fn to_word(self) -> u64 {
        u64::from(self.groups) << 32 | u64::from(self.generation)
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each half is taken on purpose"
    )]
    fn of_word(word: u64) -> Self {
        Self {
            groups: (word >> 32) as u32,
            generation: word as u32,
        }
    }
}

/// Groups for this many keys, with room for a third more.
fn roomy(keys: usize) -> usize {
    keys / 3 + GROUPS_MIN
}

/// A shard's memory is allocated with its first key.
#[cfg(not(balde_loom))]
fn first_region(_: usize) -> OnceLock<Region> {
    OnceLock::new()
}

/// Loom needs its atomics to be created before the threads that use them.
#[cfg(balde_loom)]
fn first_region(groups_max: usize) -> OnceLock<Region> {
    OnceLock::from(Region::new(groups_max))
}

/// Scales 32 random bits to `0..range`.
#[inline]
pub(super) fn scaled(bits: u64, range: u64) -> usize {
    usize::try_from((bits * range) >> 32).unwrap_or(usize::MAX)
}

fn identity(slot: Slot<'_>) -> (Fingerprint, Tag) {
    let lo = slot.lo.load(Ordering::Relaxed);
    let key = Fingerprint {
        hi: slot.hi.load(Ordering::Relaxed),
        lo: lo & !Tag::MASK,
    };
    (key, Tag::of_lo(lo))
}

#[inline]
fn offset(key: Fingerprint, tag: Tag, generation: u32) -> u64 {
    key.lo
        .wrapping_add(tag.offset())
        .wrapping_add(u64::from(generation).wrapping_mul(GENERATION_STEP))
}

/// One word in 2^64 would equal [`FROZEN`]; its bucket is stored one unit emptier.
#[inline]
fn stored(word: u64, offset: u64) -> u64 {
    match word.wrapping_add(offset) {
        FROZEN => 1,
        stored => stored,
    }
}
