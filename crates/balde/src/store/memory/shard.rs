//! One part of the table: slots that are read without a lock and rearranged under one.
//!
//! A slot is three words: the two halves of a fingerprint and the bucket. A check finds its slot,
//! works out the new bucket and swaps it in with one compare-and-swap. Everything that moves,
//! adds or removes slots holds the shard's lock, and obeys three rules that let readers go on
//! meanwhile:
//!
//! 1. Before a slot changes hands its bucket is *frozen*: swapped for [`FROZEN`], so that no
//!    reader's compare-and-swap can succeed on it any more. Whoever meets a frozen bucket, or does
//!    not find its key, takes the lock and looks again; only under the lock is "not there" true.
//! 2. A slot is filled bucket first and fingerprint last, and emptied fingerprint last. A reader
//!    reads fingerprint, bucket, fingerprint: if both readings agree, the bucket was its own.
//! 3. A stored bucket is offset by its own fingerprint and by the table's generation. So the
//!    word that a slow reader remembers cannot come back under another key or another limit.

use super::fingerprint::Fingerprint;
use super::sync::{AtomicU64, Mutex, MutexGuard, OnceLock, Ordering, empty_slots, fence};

/// The word of a slot that is being rearranged. No bucket is ever stored as this word.
const FROZEN: u64 = 0;

/// An odd constant (the golden ratio) spreads generations over all 64 bits.
const GENERATION_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Slots of a shard that holds its first key.
const SLOTS_MIN: usize = 8;

/// A shard grows when more than this many of its slots in ten are taken.
const TENTHS_TAKEN_MAX: usize = 8;

const HI: usize = 0;
const LO: usize = 1;
const WORD: usize = 2;

type Slot = [AtomicU64; 3];

#[repr(align(128))]
pub(super) struct Shard {
    /// Slots in use (upper half) and generation (lower half), so that both change at once.
    shape: AtomicU64,
    /// Past this moment words might be misread, and the shard must be looked after first.
    horizon_us: AtomicU64,
    /// Room for all the slots the shard may come to need; made with its first key.
    region: OnceLock<Box<[Slot]>>,
    arrangement: Mutex<Arrangement>,
}

/// What only the holder of the lock touches.
#[derive(Debug, Default)]
pub(super) struct Arrangement {
    taken: usize,
    hand: usize,
}

/// How many slots a shard uses, and under which generation of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    slots: u32,
    pub(super) generation: u32,
}

/// A bucket that was found without the lock.
pub(super) struct Found<'s> {
    slot: &'s Slot,
    offset: u64,
    stored: u64,
}

impl Shard {
    pub(super) fn new(horizon_us: u64) -> Self {
        Self {
            shape: AtomicU64::new(Shape::default().to_word()),
            horizon_us: AtomicU64::new(horizon_us),
            region: OnceLock::new(),
            arrangement: Mutex::new(Arrangement::default()),
        }
    }

    #[inline]
    pub(super) fn shape(&self) -> Shape {
        Shape::of_word(self.shape.load(Ordering::Acquire))
    }

    /// Whether the shape is still what it was before the readings since.
    #[inline]
    pub(super) fn is_still(&self, shape: Shape) -> bool {
        fence(Ordering::Acquire);
        self.shape.load(Ordering::Relaxed) == shape.to_word()
    }

    #[inline]
    pub(super) fn horizon_us(&self) -> u64 {
        self.horizon_us.load(Ordering::Relaxed)
    }

    /// The bucket of a key, if it can be had without the lock.
    #[inline]
    pub(super) fn find(&self, shape: Shape, key: Fingerprint) -> Option<Found<'_>> {
        let slots = self.region.get()?.get(..shape.slots as usize)?;
        let mut at = shape.home(key.hi);
        loop {
            let slot = slots.get(at)?;
            let hi = slot[HI].load(Ordering::Acquire);
            if hi == key.hi {
                let stored = slot[WORD].load(Ordering::Acquire);
                let is_own = slot[LO].load(Ordering::Relaxed) == key.lo
                    && slot[HI].load(Ordering::Relaxed) == key.hi;
                if is_own && stored != FROZEN {
                    return Some(Found {
                        slot,
                        offset: offset(key, shape.generation),
                        stored,
                    });
                }
                return None;
            }
            if hi == 0 {
                return None;
            }
            // Past the end the lock-holder wraps around; so rare that readers leave it to the lock.
            at += 1;
        }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            arrangement: self.arrangement.lock(),
            shape: self.shape(),
            shard: self,
        }
    }
}

impl Found<'_> {
    #[inline]
    pub(super) fn word(&self) -> u64 {
        self.stored.wrapping_sub(self.offset)
    }

    /// Whether the bucket is still what was found.
    #[inline]
    pub(super) fn is_still(&self) -> bool {
        self.slot[WORD].load(Ordering::Acquire) == self.stored
    }

    /// Puts `word` in the place of what was found, unless somebody was faster.
    #[inline]
    pub(super) fn replace(&self, word: u64) -> bool {
        let stored = stored(word, self.offset);
        self.slot[WORD]
            .compare_exchange(self.stored, stored, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// A shard whose slots stay where they are, except by the doing of who holds this.
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

    pub(super) fn slots_len(&self) -> usize {
        self.slots().len()
    }

    pub(super) fn set_horizon_us(&self, horizon_us: u64) {
        self.shard.horizon_us.store(horizon_us, Ordering::Relaxed);
    }

    /// Where a key's slot is. Only a holder of the lock can know that there is none.
    pub(super) fn position(&self, key: Fingerprint) -> Option<usize> {
        let slots = self.slots();
        let mut at = self.shape.home(key.hi);
        for _ in 0..slots.len() {
            let slot = &slots[at];
            match slot[HI].load(Ordering::Relaxed) {
                0 => return None,
                hi if hi == key.hi && slot[LO].load(Ordering::Relaxed) == key.lo => {
                    return Some(at);
                }
                _ => at = self.shape.after(at),
            }
        }
        None
    }

    /// The bucket in a taken slot; other callers may replace it at any time.
    pub(super) fn found(&self, at: usize) -> Found<'s> {
        let slot = &self.slots()[at];
        let key = fingerprint(slot);
        Found {
            slot,
            offset: offset(key, self.shape.generation),
            stored: slot[WORD].load(Ordering::Acquire),
        }
    }

    /// Takes the bucket out of a slot, so that nobody else can change it before it is thawed.
    pub(super) fn freeze(&self, at: usize) -> u64 {
        let slot = &self.slots()[at];
        let stored = slot[WORD].swap(FROZEN, Ordering::AcqRel);
        stored.wrapping_sub(offset(fingerprint(slot), self.shape.generation))
    }

    /// Puts a bucket back into the slot it was frozen in.
    pub(super) fn thaw(&self, at: usize, word: u64) {
        let slot = &self.slots()[at];
        let offset = offset(fingerprint(slot), self.shape.generation);
        slot[WORD].store(stored(word, offset), Ordering::Release);
    }

    /// Adds a key that has no slot. False when the shard has no room left.
    pub(super) fn insert(&mut self, key: Fingerprint, word: u64, slots_max: usize) -> bool {
        let needed = self.arrangement.taken + 1;
        if needed * 10 > self.slots().len() * TENTHS_TAKEN_MAX {
            let slots = (self.slots().len() * 3 / 2).max(SLOTS_MIN).min(slots_max);
            if slots > self.slots().len() {
                self.shard.region.get_or_init(|| empty_slots(slots_max));
                self.rearrange(slots, self.shape.generation, Some);
            } else if needed >= slots {
                return false;
            }
        }
        self.place(key, stored(word, offset(key, self.shape.generation)));
        self.arrangement.taken += 1;
        true
    }

    /// Empties a slot and closes the gap, so that every key can be found from its home.
    pub(super) fn remove(&mut self, at: usize) {
        self.clear(at);
        self.arrangement.taken -= 1;
        let (mut gap, mut at) = (at, self.shape.after(at));
        for _ in 1..self.slots().len() {
            let slot = &self.slots()[at];
            let hi = slot[HI].load(Ordering::Relaxed);
            if hi == 0 {
                return;
            }
            // A key may not move to before its home.
            if self.shape.distance(self.shape.home(hi), at) >= self.shape.distance(gap, at) {
                let key = fingerprint(slot);
                let stored = self.clear(at);
                self.fill(gap, key, stored);
                gap = at;
            }
            at = self.shape.after(at);
        }
    }

    /// The next `count` slots under the hand that goes round the shard, as their positions.
    pub(super) fn under_hand(&mut self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots().len();
        let from = self.arrangement.hand;
        let count = count.min(slots);
        self.arrangement.hand = (from + count).checked_rem(slots).unwrap_or(0);
        (from..from + count).map(move |at| at % slots)
    }

    pub(super) fn is_taken(&self, at: usize) -> bool {
        self.slots()[at][HI].load(Ordering::Relaxed) != 0
    }

    /// Gives every bucket a new word under `generation`, or drops it. Keys stay, slots may move.
    pub(super) fn rewrite(&mut self, generation: u32, rule: impl FnMut(u64) -> Option<u64>) {
        self.rearrange(self.slots().len(), generation, rule);
    }

    fn rearrange(
        &mut self,
        slots: usize,
        generation: u32,
        mut rule: impl FnMut(u64) -> Option<u64>,
    ) {
        let mut kept = Vec::with_capacity(self.arrangement.taken);
        for at in 0..self.slots().len() {
            if self.is_taken(at) {
                let key = fingerprint(&self.slots()[at]);
                let word = self
                    .clear(at)
                    .wrapping_sub(offset(key, self.shape.generation));
                kept.extend(rule(word).map(|word| (key, word)));
            }
        }
        // Readers of the old shape find empty slots and come to the lock.
        self.shape = Shape {
            slots: u32::try_from(slots).expect("a shard has at most a few thousand slots"),
            generation,
        };
        self.shard
            .shape
            .store(self.shape.to_word(), Ordering::Release);
        self.arrangement.taken = kept.len();
        self.arrangement.hand = 0;
        for (key, word) in kept {
            self.place(key, stored(word, offset(key, generation)));
        }
    }

    fn place(&self, key: Fingerprint, stored: u64) {
        let mut at = self.shape.home(key.hi);
        while self.is_taken(at) {
            at = self.shape.after(at);
        }
        self.fill(at, key, stored);
    }

    fn fill(&self, at: usize, key: Fingerprint, stored: u64) {
        let slot = &self.slots()[at];
        slot[LO].store(key.lo, Ordering::Relaxed);
        slot[WORD].store(stored, Ordering::Release);
        slot[HI].store(key.hi, Ordering::Release);
    }

    fn clear(&self, at: usize) -> u64 {
        let slot = &self.slots()[at];
        let stored = slot[WORD].swap(FROZEN, Ordering::AcqRel);
        slot[HI].store(0, Ordering::Release);
        stored
    }

    fn slots(&self) -> &'s [Slot] {
        let region = self.shard.region.get().map_or(&[][..], |region| region);
        &region[..self.shape.slots as usize]
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            slots: 0,
            generation: 0,
        }
    }
}

impl Shape {
    /// The slot where the search for a key begins: the hash scaled to the number of slots, which
    /// need not be a power of two.
    #[inline]
    fn home(self, hi: u64) -> usize {
        scaled(hi >> 32, u64::from(self.slots))
    }

    fn after(self, at: usize) -> usize {
        if at + 1 == self.slots as usize {
            0
        } else {
            at + 1
        }
    }

    /// Steps from one slot forward to another.
    fn distance(self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.slots as usize - from
        }
    }

    #[inline]
    fn to_word(self) -> u64 {
        u64::from(self.slots) << 32 | u64::from(self.generation)
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each half is taken on purpose"
    )]
    fn of_word(word: u64) -> Self {
        Self {
            slots: (word >> 32) as u32,
            generation: word as u32,
        }
    }
}

/// Scales 32 random bits to `0..range`.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the result is below the range"
)]
pub(super) fn scaled(bits: u64, range: u64) -> usize {
    ((bits * range) >> 32) as usize
}

fn fingerprint(slot: &Slot) -> Fingerprint {
    Fingerprint {
        hi: slot[HI].load(Ordering::Relaxed),
        lo: slot[LO].load(Ordering::Relaxed),
    }
}

#[inline]
fn offset(key: Fingerprint, generation: u32) -> u64 {
    key.lo
        .wrapping_add(u64::from(generation).wrapping_mul(GENERATION_STEP))
}

/// One word in 2^64 would be taken for [`FROZEN`]; its bucket is kept one unit emptier.
#[inline]
fn stored(word: u64, offset: u64) -> u64 {
    match word.wrapping_add(offset) {
        FROZEN => 1,
        stored => stored,
    }
}
