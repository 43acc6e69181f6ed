//! The keys that are asked for most, for the page of operators.
//!
//! A fixed number of keys is counted. A key that has no place takes the place of the one with the smallest
//! rank, and inherits its rank, so that a key which is asked for often is found soon ("space saving"). What is
//! shown is what was counted since the key got its place: at least that many requests.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use parking_lot::Mutex;

/// How many keys are counted at a time.
const COUNTED_MAX: usize = 64;

/// How long keys are counted before their counts start anew, in microseconds.
const WINDOW_US: u64 = 60_000_000;

/// What was asked for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopKey {
    pub(crate) limit: String,
    pub(crate) key: Vec<u8>,
    pub(crate) asked: u64,
    pub(crate) refused: u64,
}

/// The counts of the current minute, and of the one before.
#[derive(Debug, Default)]
pub(super) struct TopKeys {
    hasher: RandomState,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    begun_us: u64,
    current: Vec<Counted>,
    last: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    hash: u64,
    rank: u64,
    top: TopKey,
}

impl TopKeys {
    /// Counts a decision. If another thread counts at this moment, this decision is left out: no decision
    /// waits for it.
    pub(super) fn count(&self, limit: &str, key: &[u8], is_refused: bool, now_us: u64) {
        let Some(mut windows) = self.windows.try_lock() else {
            return;
        };
        windows.turn(now_us);
        let hash = self.hasher.hash_one((limit, key));
        let counted = windows.place(hash, limit, key);
        counted.rank += 1;
        counted.top.asked += 1;
        counted.top.refused += u64::from(is_refused);
    }

    /// The keys of the last one to two minutes, those that were asked for most first.
    pub(super) fn list(&self, most: usize, now_us: u64) -> Vec<TopKey> {
        let mut windows = self.windows.lock();
        windows.turn(now_us);
        let mut all: Vec<TopKey> = Vec::new();
        for counted in windows.current.iter().chain(&windows.last) {
            let top = &counted.top;
            let known = all
                .iter_mut()
                .find(|known| known.key == top.key && known.limit == top.limit);
            match known {
                Some(known) => {
                    known.asked += top.asked;
                    known.refused += top.refused;
                }
                None => all.push(top.clone()),
            }
        }
        drop(windows);
        all.sort_by_key(|top| std::cmp::Reverse(top.asked));
        all.truncate(most);
        all
    }
}

impl Windows {
    fn turn(&mut self, now_us: u64) {
        let age_us = now_us.saturating_sub(self.begun_us);
        if age_us < WINDOW_US {
            return;
        }
        self.last = std::mem::take(&mut self.current);
        if age_us >= 2 * WINDOW_US {
            self.last.clear();
        }
        self.begun_us = now_us;
    }

    fn place(&mut self, hash: u64, limit: &str, key: &[u8]) -> &mut Counted {
        let is_same = |counted: &Counted| {
            counted.hash == hash && *counted.top.key == *key && counted.top.limit == limit
        };
        let all = &mut self.current;
        let index = all.iter().position(is_same).unwrap_or_else(|| {
            let mut new = Counted {
                hash,
                rank: 0,
                top: TopKey {
                    limit: limit.to_owned(),
                    key: key.to_vec(),
                    asked: 0,
                    refused: 0,
                },
            };
            let smallest = (0..all.len()).min_by_key(|index| all[*index].rank);
            if let Some(index) = smallest.filter(|_| all.len() >= COUNTED_MAX) {
                new.rank = all[index].rank;
                all[index] = new;
                return index;
            }
            all.push(new);
            all.len() - 1
        });
        &mut all[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_key_is_found_among_many_and_forgotten_after_two_minutes() {
        let top = TopKeys::default();
        for number in 0..10_000_u64 {
            top.count("users", &number.to_be_bytes(), false, 1);
            if number % 10 == 0 {
                top.count("users", b"busy", number % 20 == 0, 1);
            }
        }
        let listed = top.list(3, WINDOW_US);
        assert_eq!((listed.len(), listed[0].key.as_slice()), (3, &b"busy"[..]));
        assert!(
            (900..=1_000).contains(&listed[0].asked)
                && listed[0].refused * 2 >= listed[0].asked - 2,
            "{listed:?}"
        );
        top.count("users", b"later", false, WINDOW_US + 2);
        top.count("other", b"later", false, WINDOW_US + 2);
        assert_eq!(
            top.list(COUNTED_MAX * 2, WINDOW_US + 3).len(),
            COUNTED_MAX + 2
        );
        assert_eq!(top.list(10, 3 * WINDOW_US + 3), []);
    }
}
