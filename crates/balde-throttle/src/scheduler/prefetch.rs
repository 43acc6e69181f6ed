//! Tokens lent ahead, so that most requests to a throttler that nobody waits for cost one
//! compare-and-swap and no look at the clock.
//!
//! Whoever goes through the lock while nobody waits may leave a few tokens at the partition's door: a
//! sixteenth of the burst at most, and only what both buckets have. They stay in the buckets, where
//! nobody else may have them. Requests take them from the door without the lock; when somebody next
//! goes through it, what was taken is debited, as of then.
//!
//! So a token is debited when it is given or later, never earlier, and the buckets hold no more than
//! they would if each had been debited at its moment: nothing is granted beyond the limit. What it
//! costs is at most a sixteenth of a burst that a bucket shows too little, when it was full in
//! between. With a clock that is moved by hand nothing is lent, and everything is to the token.
//!
//! As soon as somebody has to wait, all that was lent is called back; so nobody is overtaken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::health::Circuit;
use crate::scheduler::{Core, Source};

/// The part of a burst that is lent.
const LENT_ONE_IN: u64 = 16;

/// How many partitions may have something at their doors at once: calling all of it back is work
/// for whoever is first to wait.
const LENT_PARTITIONS_MAX: usize = 64;

/// A door is a word: a number that tells who owned it when (24 bits), requests served (20), tokens
/// left (20).
const TOKENS_BITS: u32 = 20;
const TOKENS_MAX: u64 = (1 << TOKENS_BITS) - 1;
const REQUEST: u64 = 1 << TOKENS_BITS;
const OWNER_SHIFT: u32 = 2 * TOKENS_BITS;
const OWNER_MASK: u64 = (1 << (64 - OWNER_SHIFT)) - 1;

/// Slots in which a name is looked for. One that finds none free is served through the lock.
const WINDOW: usize = 8;

/// Names of up to four words are found without the lock.
const NAME_WORDS: usize = 4;

/// A partition and who owned its door when: what a handle keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) index: u32,
    number: u32,
}

/// What callers reach without the lock.
pub(crate) struct Ahead {
    names: Box<[Slot]>,
    doors: Box<[AtomicU64]>,
}

/// A name, and whose it is. It changes only while its length is zero, which stands for none.
#[derive(Default)]
struct Slot {
    length: AtomicU64,
    words: [AtomicU64; NAME_WORDS],
    owner: AtomicU64,
}

/// A name as whole words, so that it can be compared without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    length: u64,
    words: [u64; NAME_WORDS],
}

impl Name {
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

    /// Where in the table it belongs. Names are the program's own, so nobody picks them to meet.
    #[inline]
    fn place(&self) -> u64 {
        let [one, two, three, four] = self.words;
        let mixed = one ^ two.rotate_left(13) ^ three.rotate_left(29) ^ four.rotate_left(43);
        let product = u128::from(mixed ^ self.length << 58) * 0x9E37_79B9_7F4A_7C15;
        // Both halves: the lower alone would not depend on the upper bits.
        let folded = (product >> 64) ^ (product & u128::from(u64::MAX));
        u64::try_from(folded).unwrap_or(0)
    }
}

impl Slot {
    #[inline]
    fn holds(&self, name: &Name) -> bool {
        self.length.load(Ordering::Acquire) == name.length
            && self
                .words
                .iter()
                .zip(&name.words)
                .all(|(held, word)| held.load(Ordering::Acquire) == *word)
    }
}

impl Ahead {
    pub(crate) fn new(partitions_max: usize) -> Arc<Self> {
        let names = (partitions_max * 2).next_power_of_two().max(WINDOW);
        Arc::new(Self {
            names: (0..names).map(|_| Slot::default()).collect(),
            doors: (0..partitions_max).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Takes `n` tokens from the door of the partition of this name, if they are there.
    #[inline]
    pub(crate) fn take_by_name(&self, name: &str, n: u64) -> bool {
        let owner = Name::new(name).and_then(|name| self.look_up(&name));
        owner.is_some_and(|owner| self.take(owner, n))
    }

    /// Takes `n` tokens from the owner's door, if they are there.
    #[inline]
    pub(crate) fn take(&self, owner: Owner, n: u64) -> bool {
        let Some(door) = self.doors.get(owner.index as usize) else {
            return false;
        };
        let mut word = door.load(Ordering::Relaxed);
        loop {
            let is_owner = word >> OWNER_SHIFT == u64::from(owner.number);
            if !is_owner || n == 0 || word & TOKENS_MAX < n {
                return false;
            }
            let taken = word - n + REQUEST;
            match door.compare_exchange_weak(word, taken, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// The slot is read between two looks at its length; it changes only while that is zero.
    #[inline]
    fn look_up(&self, name: &Name) -> Option<Owner> {
        for slot in self.window(name) {
            if !slot.holds(name) {
                continue;
            }
            let owner = slot.owner.load(Ordering::Acquire);
            if slot.length.load(Ordering::Acquire) == name.length {
                return Some(Owner {
                    index: low(owner),
                    number: low(owner >> 32),
                });
            }
        }
        None
    }

    #[inline]
    fn window(&self, name: &Name) -> impl Iterator<Item = &Slot> {
        let mask = self.names.len() - 1;
        let start = usize::try_from(name.place() & mask as u64).unwrap_or(0);
        (0..WINDOW).map(move |at| &self.names[(start + at) & mask])
    }
}

/// What the one who holds the lock knows about the doors.
pub(crate) struct Counters {
    ahead: Arc<Ahead>,
    is_on: bool,
    /// Who owns each door now, and what lies there.
    numbers: Vec<u32>,
    at_door: Vec<u64>,
    lent_to: Vec<u32>,
    lent: u64,
}

impl Counters {
    pub(crate) fn new(ahead: &Arc<Ahead>, is_on: bool) -> Self {
        Self {
            ahead: Arc::clone(ahead),
            is_on,
            numbers: Vec::new(),
            at_door: Vec::new(),
            lent_to: Vec::new(),
            lent: 0,
        }
    }

    /// Tokens at all doors.
    pub(crate) const fn lent(&self) -> u64 {
        self.lent
    }

    pub(crate) fn owner(&self, index: u32) -> Owner {
        Owner {
            index,
            number: self.numbers[index as usize],
        }
    }

    /// A partition has this name from now on.
    pub(crate) fn named(&mut self, index: u32, name: &str) {
        let at = index as usize;
        if at >= self.numbers.len() {
            self.numbers.resize(at + 1, 0);
            self.at_door.resize(at + 1, 0);
        }
        self.numbers[at] = self.numbers[at].wrapping_add(1) & low(OWNER_MASK);
        let number = u64::from(self.numbers[at]);
        self.ahead.doors[at].store(number << OWNER_SHIFT, Ordering::Release);
        let Some(name) = Name::new(name) else { return };
        let is_free = |slot: &&Slot| slot.length.load(Ordering::Relaxed) == 0;
        if let Some(slot) = self.ahead.window(&name).find(is_free) {
            for (held, word) in slot.words.iter().zip(name.words) {
                held.store(word, Ordering::Release);
            }
            slot.owner
                .store(number << 32 | u64::from(index), Ordering::Release);
            slot.length.store(name.length, Ordering::Release);
        }
    }

    /// The partition is forgotten. Nothing lies at its door any more.
    pub(crate) fn unnamed(&mut self, index: u32, name: &str) {
        let at = index as usize;
        // An owner that nobody has: whoever still knows the old one finds nothing.
        self.numbers[at] = self.numbers[at].wrapping_add(1) & low(OWNER_MASK);
        let number = u64::from(self.numbers[at]);
        self.ahead.doors[at].store(number << OWNER_SHIFT, Ordering::Release);
        let Some(name) = Name::new(name) else { return };
        for slot in self.ahead.window(&name) {
            if slot.holds(&name) {
                slot.length.store(0, Ordering::Release);
            }
        }
    }
}

impl Core {
    /// Leaves a few tokens at a partition's door, if nobody waits and all is well.
    #[inline]
    pub(crate) fn lend(&mut self, index: u32, now_us: u64) {
        if !self.ahead.is_on
            || self.source != Source::Here
            || self.waiters.len() > 0
            || self.ahead.lent_to.len() >= LENT_PARTITIONS_MAX
        {
            return;
        }
        let part = self.part(index);
        if part.health.circuit() != Circuit::Closed || !part.brake.is_off() {
            return;
        }
        let most = part.bucket.burst().min(self.global.burst()) / LENT_ONE_IN;
        let free = self.global.level(now_us).saturating_sub(self.ahead.lent);
        let tokens = most
            .min(part.bucket.level(now_us))
            .min(free)
            .min(TOKENS_MAX);
        if tokens == 0 {
            return;
        }
        let number = u64::from(self.ahead.numbers[index as usize]);
        self.ahead.ahead.doors[index as usize]
            .store(number << OWNER_SHIFT | tokens, Ordering::Release);
        self.ahead.at_door[index as usize] = tokens;
        self.ahead.lent += tokens;
        self.ahead.lent_to.push(index);
    }

    /// Takes back what lies at a partition's door and debits what was taken from there.
    #[inline]
    pub(crate) fn recall(&mut self, index: u32, now_us: u64) {
        if self.ahead.lent == 0 || self.ahead.at_door[index as usize] == 0 {
            return;
        }
        let at = index as usize;
        let lent = std::mem::take(&mut self.ahead.at_door[at]);
        let number = u64::from(self.ahead.numbers[at]);
        let word = self.ahead.ahead.doors[at].swap(number << OWNER_SHIFT, Ordering::AcqRel);
        self.ahead.lent -= lent;
        self.ahead.lent_to.retain(|one| *one != index);
        let taken = lent - (word & TOKENS_MAX);
        let requests = (word >> TOKENS_BITS) & TOKENS_MAX;
        if taken == 0 {
            return;
        }
        self.global.charge(taken, now_us);
        let part = self.part_mut(index);
        part.bucket.charge(taken, now_us);
        part.tally.granted += taken;
        part.tally.passed_at_once(requests);
    }

    pub(crate) fn recall_all(&mut self, now_us: u64) {
        while let Some(index) = self.ahead.lent_to.last().copied() {
            self.recall(index, now_us);
        }
    }
}

/// The lower half.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(counters: &Counters, index: u32, tokens: u64) {
        let number = u64::from(counters.numbers[index as usize]);
        counters.ahead.doors[index as usize]
            .store(number << OWNER_SHIFT | tokens, Ordering::Release);
    }

    #[test]
    fn what_lies_at_a_door_is_had_by_name_and_by_handle_until_it_is_gone() {
        let ahead = Ahead::new(1_024);
        let mut counters = Counters::new(&ahead, true);
        let names: Vec<String> = (0..1_000).map(|at| format!("partition {at}")).collect();
        for (index, name) in (0..).zip(&names) {
            counters.named(index, name);
            lent(&counters, index, 5);
        }
        let found = names.iter().filter(|name| ahead.take_by_name(name, 3));
        // A name that finds no slot in its window is served through the lock.
        assert!(found.count() > 980);
        assert!(!ahead.take_by_name(&names[7], 3), "two are left");
        assert!(!ahead.take_by_name("nobody", 1));
        assert!(ahead.take(counters.owner(7), 2));
        assert!(!ahead.take(counters.owner(7), 1));
        assert!(!ahead.take(counters.owner(8), 0), "nothing is for the lock");
        let long = "x".repeat(8 * NAME_WORDS + 1);
        counters.named(1_000, &long);
        lent(&counters, 1_000, 5);
        assert!(!ahead.take_by_name(&long, 1) && ahead.take(counters.owner(1_000), 1));
    }

    #[test]
    fn whoever_owned_a_door_earlier_finds_nothing_there() {
        let ahead = Ahead::new(4);
        let mut counters = Counters::new(&ahead, true);
        counters.named(0, "old");
        let old = counters.owner(0);
        counters.unnamed(0, "old");
        counters.named(0, "new");
        lent(&counters, 0, 5);
        assert!(!ahead.take(old, 1) && !ahead.take_by_name("old", 1));
        assert!(ahead.take(counters.owner(0), 1) && ahead.take_by_name("new", 1));
    }
}
