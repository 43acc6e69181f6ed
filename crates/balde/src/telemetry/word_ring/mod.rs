//! A bounded queue of records of 64-bit words: many threads append, one takes out.
//!
//! Appending never waits: it fails if another thread is appending, or if there is no room. It has one
//! atomic read-modify-write operation, at its start. The words and the end of the record are plain
//! stores, so the processor goes on while it fetches memory that the taking thread has read; an
//! operation that unlocks a mutex would wait for it. So would the next atomic operation of the thread,
//! whatever it is for; therefore an append prefetches memory for those that follow.
//!
//! `loom_tests` explores the interleavings: `cargo test -p balde-loom` runs them.

#[cfg(balde_loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(balde_loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(balde_loom))]
use prefetch_index::prefetch_index;

#[cfg(all(test, balde_loom))]
mod loom_tests;

/// Set in [`Appending::end`] while a thread appends.
const LOCKED: u64 = 1;

/// An append prefetches, for reading, the cache lines this many words after its end. Most records are shorter than a
/// line, which is eight words.
#[cfg(not(balde_loom))]
const PREFETCHED: [u64; 2] = [8, 16];

pub(super) struct WordRing {
    appending: Appending,
    taking: Taking,
    /// A power of two of them.
    words: Box<[AtomicU64]>,
}

/// The fields that appending threads write. Aligned, so that they share no cache line with [`Taking`].
#[repr(align(128))]
struct Appending {
    /// Where the last record ends, times two, plus [`LOCKED`]. Positions count words and do not wrap.
    end: AtomicU64,
    /// A copy of [`Taking::begin`], possibly out of date. An append reads the original only if the copy
    /// leaves no room.
    taken_until: AtomicU64,
}

/// What the taking thread writes.
#[repr(align(128))]
struct Taking {
    /// Where the first record begins that was not taken.
    begin: AtomicU64,
}

/// Why nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAppended {
    /// Another thread appends at this moment.
    Busy,
    Full,
}

impl WordRing {
    /// A ring with room for `words` words, a power of two.
    pub(super) fn new(words: usize) -> Self {
        assert!(words.is_power_of_two(), "{words}");
        // Zeroes could come from the system as pages that do not exist yet, and then appends would
        // wait for the pages.
        let touched = || AtomicU64::new(u64::MAX);
        Self {
            appending: Appending {
                end: AtomicU64::new(0),
                taken_until: AtomicU64::new(0),
            },
            taking: Taking {
                begin: AtomicU64::new(0),
            },
            words: std::iter::repeat_with(touched).take(words).collect(),
        }
    }

    /// Begins a record of exactly `length` words.
    #[inline]
    pub(super) fn append(&self, length: usize) -> Result<Append<'_>, NotAppended> {
        let end = self.appending.end.load(Ordering::Relaxed);
        let locked = end | LOCKED;
        if end == locked
            || self
                .appending
                .end
                .compare_exchange(end, locked, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return Err(NotAppended::Busy);
        }
        // Unlocks when it is dropped.
        let append = Append {
            ring: self,
            begin: end / 2,
            at: end / 2,
        };
        let end = append.begin + length as u64;
        let capacity = self.words.len() as u64;
        if end - self.appending.taken_until.load(Ordering::Relaxed) > capacity {
            let taken_until = self.taking.begin.load(Ordering::Acquire);
            self.appending
                .taken_until
                .store(taken_until, Ordering::Relaxed);
            if end - taken_until > capacity {
                return Err(NotAppended::Full);
            }
        }
        Ok(append)
    }

    /// Takes the records out that are complete now, one call of `read` for each. `read` must read
    /// all words of its record. Only one thread may call this at a time.
    pub(super) fn take(&self, mut read: impl FnMut(&mut Words<'_>)) {
        let end = self.appending.end.load(Ordering::Acquire) / 2;
        let mut words = Words {
            ring: self,
            at: self.taking.begin.load(Ordering::Relaxed),
        };
        while words.at < end {
            read(&mut words);
            self.taking.begin.store(words.at, Ordering::Release);
        }
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[self.index(at)]
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the mask keeps the low bits"
    )]
    fn index(&self, at: u64) -> usize {
        at as usize & (self.words.len() - 1)
    }
}

/// A record that is being appended. Dropping it without calling [`end`](Append::end) discards it.
pub(super) struct Append<'a> {
    ring: &'a WordRing,
    /// What others see as the end, until this record is complete.
    begin: u64,
    at: u64,
}

impl Append<'_> {
    #[inline]
    pub(super) fn word(&mut self, word: u64) {
        self.ring.word(self.at).store(word, Ordering::Relaxed);
        self.at += 1;
    }

    /// Writes bytes, padded to whole words.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
    }

    /// Completes the record.
    #[inline]
    pub(super) fn end(mut self) {
        self.begin = self.at;
    }
}

impl Drop for Append<'_> {
    #[inline]
    fn drop(&mut self) {
        let end = &self.ring.appending.end;
        end.store(self.begin * 2, Ordering::Release);
        #[cfg(not(balde_loom))]
        for ahead in PREFETCHED {
            prefetch_index(&self.ring.words, self.ring.index(self.begin + ahead));
        }
    }
}

/// The words of a record that is being taken.
pub(super) struct Words<'a> {
    ring: &'a WordRing,
    at: u64,
}

impl Words<'_> {
    pub(super) fn word(&mut self) -> u64 {
        let word = self.ring.word(self.at).load(Ordering::Relaxed);
        self.at += 1;
        word
    }

    /// Reads `length` bytes that were written by [`Append::bytes`].
    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(words_of(length) * 8);
        for _ in 0..words_of(length) {
            bytes.extend_from_slice(&self.word().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// How many words so many bytes take.
pub(super) const fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

#[cfg(all(test, not(balde_loom)))]
mod tests {
    use super::*;

    fn append(ring: &WordRing, bytes: &[u8]) -> Result<(), NotAppended> {
        let mut record = ring.append(1 + words_of(bytes.len()))?;
        record.word(bytes.len() as u64);
        record.bytes(bytes);
        record.end();
        Ok(())
    }

    fn take(ring: &WordRing) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        ring.take(|words| {
            let length = usize::try_from(words.word()).unwrap();
            taken.push(words.bytes(length));
        });
        taken
    }

    #[test]
    fn records_of_any_length_come_out_as_they_went_in() {
        let ring = WordRing::new(16);
        // Many times around the ring, so that records lie across its end.
        for round in 0..100 {
            let bytes = |length: usize| vec![u8::try_from(round).unwrap(); length];
            let records = [bytes(round % 24), bytes(8), bytes(0), bytes(17)];
            for record in &records {
                assert_eq!(append(&ring, record), Ok(()));
            }
            assert_eq!(take(&ring), records);
            assert!(take(&ring).is_empty());
        }
    }

    #[test]
    fn a_record_without_room_is_refused_and_a_smaller_one_is_not() {
        let ring = WordRing::new(8);
        assert_eq!(append(&ring, &[1; 40]), Ok(()));
        assert_eq!(append(&ring, &[2; 16]), Err(NotAppended::Full));
        assert_eq!(append(&ring, &[3; 8]), Ok(()));
        assert_eq!(append(&ring, &[]), Err(NotAppended::Full));
        assert_eq!(take(&ring), [vec![1; 40], vec![3; 8]]);
        assert_eq!(append(&ring, &[4; 56]), Ok(()), "there is room again");
        assert_eq!(append(&ring, &[5; 57]), Err(NotAppended::Full));
        assert_eq!(take(&ring), [vec![4; 56]]);
    }

    #[test]
    fn a_second_append_does_not_wait_for_the_first() {
        let ring = WordRing::new(8);
        let mut first = ring.append(2).unwrap();
        assert_eq!(append(&ring, &[1]), Err(NotAppended::Busy));
        first.word(8);
        assert!(take(&ring).is_empty(), "it is not complete");
        first.word(7);
        first.end();
        assert_eq!(take(&ring), [7_u64.to_le_bytes()]);
        let mut unfinished = ring.append(2).unwrap();
        unfinished.word(9);
        drop(unfinished);
        assert!(take(&ring).is_empty());
        assert_eq!(append(&ring, &[1]), Ok(()));
        assert_eq!(take(&ring), [[1]]);
    }

    #[test]
    fn threads_append_while_another_takes() {
        const EACH: u64 = 20_000;
        const THREADS: usize = 3;
        let ring = WordRing::new(64);
        let mut next = [0; THREADS];
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let ring = &ring;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let length = usize::try_from(number % 5).unwrap();
                        let mut record = loop {
                            match ring.append(2 + length) {
                                Ok(record) => break record,
                                Err(_) => std::thread::yield_now(),
                            }
                        };
                        record.word(thread as u64);
                        record.word(number);
                        (0..length).for_each(|_| record.word(number));
                        record.end();
                    }
                });
            }
            while next != [EACH; THREADS] {
                ring.take(|words| {
                    let of_thread = &mut next[usize::try_from(words.word()).unwrap()];
                    let number = words.word();
                    assert_eq!(number, *of_thread, "in the order of its thread");
                    assert!((0..number % 5).all(|_| words.word() == number));
                    *of_thread += 1;
                });
                std::thread::yield_now();
            }
        });
        assert_eq!(next, [EACH; THREADS]);
    }
}
