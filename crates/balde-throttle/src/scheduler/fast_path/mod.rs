//! What callers use without the lock: a slot of prefetched tokens for each partition, and a table of
//! names to find it. [`Prefetch`] is what the holder of the lock knows about them.
//!
//! A slot is one word, so a taker's compare-and-swap, the owner's refill and its reclaim exclude each
//! other. A word belongs to one generation of the slot: a taker whose partition has been removed does
//! not match the slot's next owner.
//!
//! An entry of the name table is several words. It changes only while its length is zero, and its owner
//! is never the same twice. So a reader that finds one owner before and after it has compared the name
//! and the length has compared those of that owner. `loom_tests` explores the interleavings:
//! `cargo test -p balde-loom` runs them.

use std::sync::Arc;

#[cfg(balde_loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(balde_loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(test, balde_loom))]
mod loom_tests;

/// How many slots can be filled at once. The first request that has to wait empties all of them.
const FILLED_SLOTS_MAX: usize = 64;

/// A slot is one word: the generation of its owner (24 bits), requests served (20), tokens left (20).
const TOKENS_BITS: u32 = 20;
const TOKENS_MAX: u64 = (1 << TOKENS_BITS) - 1;
const REQUEST: u64 = 1 << TOKENS_BITS;
const GENERATION_SHIFT: u32 = 2 * TOKENS_BITS;
const GENERATION_MASK: u64 = (1 << (64 - GENERATION_SHIFT)) - 1;

/// How many entries of the name table a name can be in. A name without a free one is served under the
/// lock.
#[cfg(not(balde_loom))]
const WINDOW: usize = 8;
/// In loom's models all names meet in one entry.
#[cfg(balde_loom)]
const WINDOW: usize = 1;

/// Names of up to four words can be looked up without the lock.
const NAME_WORDS: usize = 4;

/// A partition's index and the generation of its slot, as a handle keeps them. A slot that has been
/// given to another partition has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotOwner {
    pub(crate) index: u32,
    generation: u32,
}

/// The table of names and the slots: what callers use without the lock.
pub(crate) struct FastPath {
    names: Box<[NameEntry]>,
    slots: Box<[AtomicU64]>,
}

/// A name and the owner of its slot. It changes only while its length is zero, which means no name.
struct NameEntry {
    length: AtomicU64,
    words: [AtomicU64; NAME_WORDS],
    owner: AtomicU64,
}

/// A name as whole words, so that it can be compared without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedName {
    length: u64,
    words: [u64; NAME_WORDS],
}

impl PackedName {
    #[inline]
    fn new(name: &str) -> Option<Self> {
        let bytes = name.as_bytes();
        let (whole, tail) = bytes.as_chunks::<8>();
        if bytes.is_empty() || bytes.len() > 8 * NAME_WORDS {
            return None;
        }
        let mut words = [0; NAME_WORDS];
        for (word, bytes) in words.iter_mut().zip(whole) {
            *word = u64::from_le_bytes(*bytes);
        }
        if let Some(last) = words.get_mut(whole.len()) {
            let shift_in = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
            *last = tail.iter().rev().fold(0, shift_in);
        }
        let length = bytes.len() as u64;
        Some(Self { length, words })
    }

    /// A cheap hash. The program chooses the names, so an attacker cannot pick colliding ones.
    #[inline]
    fn hash(&self) -> u64 {
        let [one, two, three, four] = self.words;
        let mixed = one ^ two.rotate_left(13) ^ three.rotate_left(29) ^ four.rotate_left(43);
        let product = u128::from(mixed ^ self.length << 58) * 0x9E37_79B9_7F4A_7C15;
        // Both halves: the lower alone would not depend on the upper bits.
        let folded = (product >> 64) ^ (product & u128::from(u64::MAX));
        u64::try_from(folded).unwrap_or(0)
    }
}

impl NameEntry {
    fn empty() -> Self {
        Self {
            length: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            owner: AtomicU64::new(0),
        }
    }

    /// The words are read before the length: a word of the next name then comes with the length zero,
    /// or with the length and the owner of that name.
    #[inline]
    fn holds(&self, name: &PackedName) -> bool {
        self.words
            .iter()
            .zip(&name.words)
            .all(|(held, word)| held.load(Ordering::Acquire) == *word)
            && self.length.load(Ordering::Acquire) == name.length
    }
}

impl FastPath {
    pub(crate) fn new(partitions_max: usize) -> Arc<Self> {
        let names = if cfg!(balde_loom) {
            WINDOW
        } else {
            (partitions_max * 2).next_power_of_two().max(WINDOW)
        };
        Arc::new(Self {
            names: (0..names).map(|_| NameEntry::empty()).collect(),
            slots: (0..partitions_max).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Takes `n` tokens from the slot of the partition of this name, if it has them.
    #[inline]
    pub(crate) fn take_by_name(&self, name: &str, n: u64) -> bool {
        let owner = PackedName::new(name).and_then(|name| self.look_up(&name));
        owner.is_some_and(|owner| self.take(owner, n))
    }

    /// Takes `n` tokens from the owner's slot, if it has them.
    #[inline]
    pub(crate) fn take(&self, owner: SlotOwner, n: u64) -> bool {
        let Some(slot) = self.slots.get(owner.index as usize) else {
            return false;
        };
        let mut word = slot.load(Ordering::Relaxed);
        loop {
            let is_owner = word >> GENERATION_SHIFT == u64::from(owner.generation);
            if !is_owner || n == 0 || word & TOKENS_MAX < n {
                return false;
            }
            let taken = word - n + REQUEST;
            match slot.compare_exchange_weak(word, taken, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Reads an entry between two reads of its owner, which is never the same twice.
    #[inline]
    fn look_up(&self, name: &PackedName) -> Option<SlotOwner> {
        for entry in self.window(name) {
            let owner = entry.owner.load(Ordering::Acquire);
            if entry.holds(name) && entry.owner.load(Ordering::Acquire) == owner {
                return Some(SlotOwner {
                    index: low(owner),
                    generation: low(owner >> 32),
                });
            }
        }
        None
    }

    #[inline]
    fn window(&self, name: &PackedName) -> impl Iterator<Item = &NameEntry> {
        let mask = self.names.len() - 1;
        let start = usize::try_from(name.hash() & mask as u64).unwrap_or(0);
        (0..WINDOW).map(move |at| &self.names[(start + at) & mask])
    }
}

/// What was taken from a slot since it was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenTokens {
    pub(crate) tokens: u64,
    pub(crate) requests: u64,
}

/// What the holder of the lock knows about the slots.
pub(crate) struct Prefetch {
    fast_path: Arc<FastPath>,
    is_enabled: bool,
    /// By partition: the generation of its slot, and the tokens that were put into it.
    generations: Vec<u32>,
    in_slot: Vec<u64>,
    /// The partitions whose slots are filled.
    filled: Vec<u32>,
    /// The tokens that were put into all slots.
    reserved: u64,
}

impl Prefetch {
    pub(crate) fn new(fast_path: &Arc<FastPath>, is_enabled: bool) -> Self {
        Self {
            fast_path: Arc::clone(fast_path),
            is_enabled,
            generations: Vec::new(),
            in_slot: Vec::new(),
            filled: Vec::new(),
            reserved: 0,
        }
    }

    /// Tokens reserved for all slots.
    pub(crate) const fn reserved(&self) -> u64 {
        self.reserved
    }

    pub(crate) fn owner(&self, index: u32) -> SlotOwner {
        SlotOwner {
            index,
            generation: self.generations[index as usize],
        }
    }

    /// Gives the slot `index` to the partition `name`.
    pub(crate) fn add(&mut self, index: u32, name: &str) {
        let at = index as usize;
        if at >= self.generations.len() {
            self.generations.resize(at + 1, 0);
            self.in_slot.resize(at + 1, 0);
        }
        let generation = self.next_generation(at);
        let Some(name) = PackedName::new(name) else {
            return;
        };
        let is_free = |entry: &&NameEntry| entry.length.load(Ordering::Relaxed) == 0;
        if let Some(entry) = self.fast_path.window(&name).find(is_free) {
            for (held, word) in entry.words.iter().zip(name.words) {
                held.store(word, Ordering::Release);
            }
            entry
                .owner
                .store(generation << 32 | u64::from(index), Ordering::Release);
            entry.length.store(name.length, Ordering::Release);
        }
    }

    /// Returns whether one more slot may be filled.
    pub(crate) fn has_room(&self) -> bool {
        self.is_enabled && self.filled.len() < FILLED_SLOTS_MAX
    }

    /// Puts tokens into the empty slot of a partition.
    pub(crate) fn fill(&mut self, index: u32, tokens: u64) {
        let at = index as usize;
        let tokens = tokens.min(TOKENS_MAX);
        let generation = u64::from(self.generations[at]);
        self.fast_path.slots[at].store(generation << GENERATION_SHIFT | tokens, Ordering::Release);
        self.in_slot[at] = tokens;
        self.reserved += tokens;
        self.filled.push(index);
    }

    /// Empties the slot of a partition. Returns what was taken from it, if it was filled.
    #[inline]
    pub(crate) fn empty(&mut self, index: u32) -> Option<TakenTokens> {
        let at = index as usize;
        if self.reserved == 0 || self.in_slot[at] == 0 {
            return None;
        }
        let reserved = std::mem::take(&mut self.in_slot[at]);
        let generation = u64::from(self.generations[at]);
        let word = self.fast_path.slots[at].swap(generation << GENERATION_SHIFT, Ordering::AcqRel);
        self.reserved -= reserved;
        self.filled.retain(|one| *one != index);
        Some(TakenTokens {
            tokens: reserved - (word & TOKENS_MAX),
            requests: (word >> TOKENS_BITS) & TOKENS_MAX,
        })
    }

    /// A partition whose slot is filled.
    pub(crate) fn last_filled(&self) -> Option<u32> {
        self.filled.last().copied()
    }

    /// Takes the slot from a partition that is removed. It is empty already.
    pub(crate) fn remove(&mut self, index: u32, name: &str) {
        // Handles of the old generation find nothing in the slot.
        self.next_generation(index as usize);
        let Some(name) = PackedName::new(name) else {
            return;
        };
        for entry in self.fast_path.window(&name) {
            if entry.holds(&name) {
                entry.length.store(0, Ordering::Release);
            }
        }
    }

    fn next_generation(&mut self, at: usize) -> u64 {
        self.generations[at] = self.generations[at].wrapping_add(1) & low(GENERATION_MASK);
        let generation = u64::from(self.generations[at]);
        self.fast_path.slots[at].store(generation << GENERATION_SHIFT, Ordering::Release);
        generation
    }
}

/// The lower 32 bits.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(all(test, not(balde_loom)))]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_a_slot_are_taken_by_name_and_by_handle_until_it_is_empty() {
        let fast_path = FastPath::new(1_024);
        let mut prefetch = Prefetch::new(&fast_path, true);
        let names: Vec<String> = (0..1_000).map(|at| format!("partition {at}")).collect();
        for (index, name) in (0..).zip(&names) {
            prefetch.add(index, name);
            prefetch.fill(index, 5);
        }
        let found = names.iter().filter(|name| fast_path.take_by_name(name, 3));
        // A name without a free entry in its window is served under the lock.
        assert!(found.count() > 980);
        assert!(!fast_path.take_by_name(&names[7], 3), "two are left");
        assert!(!fast_path.take_by_name("unknown", 1));
        assert!(fast_path.take(prefetch.owner(7), 2));
        assert!(!fast_path.take(prefetch.owner(7), 1));
        assert!(
            !fast_path.take(prefetch.owner(8), 0),
            "zero tokens are served under the lock"
        );
        let long = "x".repeat(8 * NAME_WORDS + 1);
        prefetch.add(1_000, &long);
        prefetch.fill(1_000, 5);
        assert!(!fast_path.take_by_name(&long, 1) && fast_path.take(prefetch.owner(1_000), 1));
    }

    #[test]
    fn a_previous_owner_of_a_slot_finds_nothing_there() {
        let fast_path = FastPath::new(4);
        let mut prefetch = Prefetch::new(&fast_path, true);
        prefetch.add(0, "old");
        let old = prefetch.owner(0);
        prefetch.remove(0, "old");
        prefetch.add(0, "new");
        prefetch.fill(0, 5);
        assert!(!fast_path.take(old, 1) && !fast_path.take_by_name("old", 1));
        assert!(fast_path.take(prefetch.owner(0), 1) && fast_path.take_by_name("new", 1));
    }
}
