//! The memory of a shard: groups of five slots, each group in two cache lines.
//!
//! A slot is three words: the two halves of a fingerprint and the bucket. A group keeps the five
//! upper halves side by side, so that a search compares them all without a branch and nearly
//! always ends in its first group; probing slot by slot would be shorter code and mispredict a
//! branch in every other check. The sixteenth word counts the keys that belong to this group and
//! overflowed into a later one, so that a search knows whether to continue.

use super::sync::{AtomicU64, Ordering, empty_words};

/// Slots in a group.
pub(super) const GROUP_SLOTS: usize = 5;
const GROUP_WORDS: usize = 16;
const LO: usize = GROUP_SLOTS;
const WORD: usize = 2 * GROUP_SLOTS;
const OVERFLOWED: usize = 3 * GROUP_SLOTS;

/// The memory for a shard's groups. It is allocated zeroed, so pages that are not used yet cost
/// nothing.
pub(super) struct Region {
    words: Box<[AtomicU64]>,
    /// Words before the first one that is aligned to 128 bytes.
    skipped: usize,
}

impl Region {
    pub(super) fn new(groups: usize) -> Self {
        let words = empty_words((groups + 1) * GROUP_WORDS);
        let bytes_over = words.as_ptr().addr() % (GROUP_WORDS * 8);
        let skipped = (GROUP_WORDS - bytes_over / 8) % GROUP_WORDS;
        Self { words, skipped }
    }

    #[inline]
    pub(super) fn group(&self, index: usize) -> Option<Group<'_>> {
        let from = self.skipped + index * GROUP_WORDS;
        self.words.get(from..)?.first_chunk().map(Group)
    }
}

/// Five slots.
#[derive(Clone, Copy)]
pub(super) struct Group<'r>(&'r [AtomicU64; GROUP_WORDS]);

impl<'r> Group<'r> {
    /// The slots that hold this upper half, as bits. Zero finds the empty slots.
    #[inline]
    pub(super) fn matches(self, hi: u64) -> u32 {
        let mut found = 0;
        for slot in 0..GROUP_SLOTS {
            found |= u32::from(self.0[slot].load(Ordering::Acquire) == hi) << slot;
        }
        found
    }

    /// How many keys belong to this group and are in a later one.
    #[inline]
    pub(super) fn overflowed(self) -> &'r AtomicU64 {
        &self.0[OVERFLOWED]
    }

    #[inline]
    pub(super) fn slot(self, slot: usize) -> Slot<'r> {
        // The index is in range; the remainder lets the compiler drop the bounds checks.
        let slot = slot % GROUP_SLOTS;
        Slot {
            hi: &self.0[slot],
            lo: &self.0[LO + slot],
            word: &self.0[WORD + slot],
        }
    }
}

/// The three words of a slot. An upper half of zero marks it empty.
#[derive(Clone, Copy)]
pub(super) struct Slot<'r> {
    pub(super) hi: &'r AtomicU64,
    pub(super) lo: &'r AtomicU64,
    pub(super) word: &'r AtomicU64,
}
