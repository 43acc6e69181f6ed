//! The interleavings of small scenarios with at most two preemptions, by loom. What is shown: each
//! record that was appended is taken out exactly once, complete and in the order in which it was
//! appended, and no word is overwritten before it has been taken.
//!
//! A load in loom returns no value that is stored later. So an overwritten word alone would not show
//! that an append came too early, and [`Scenario::taken`] is checked instead.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::{NotAppended, WordRing};

const CAPACITY: usize = 4;

/// A ring, and what has been taken out of it.
struct Scenario {
    ring: WordRing,
    /// For each position, whether its word has been taken. Only orderings of the ring make a store
    /// here visible to other threads.
    taken: [AtomicBool; 3 * CAPACITY],
}

/// A record is its number, as often as this.
const LENGTH: usize = 2;

impl Scenario {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ring: WordRing::new(CAPACITY),
            taken: std::array::from_fn(|_| AtomicBool::new(false)),
        })
    }

    fn append(&self, number: u64) -> Result<(), NotAppended> {
        self.append_words(number, LENGTH)
    }

    /// Begins a record, and completes it if `words` are all of its words.
    fn append_words(&self, number: u64, words: usize) -> Result<(), NotAppended> {
        let mut append = self.ring.append(LENGTH)?;
        for _ in 0..words {
            let before = usize::try_from(append.at).unwrap().checked_sub(CAPACITY);
            let is_free = |before: usize| self.taken[before].load(Ordering::Relaxed);
            assert!(before.is_none_or(is_free), "{before:?} is still needed");
            append.word(number);
        }
        if words == LENGTH {
            append.end();
        }
        Ok(())
    }

    /// The numbers of the records that are complete.
    fn take(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        self.ring.take(|words| {
            let record = [(); LENGTH].map(|()| {
                let at = usize::try_from(words.at).unwrap();
                let word = words.word();
                self.taken[at].store(true, Ordering::Relaxed);
                word
            });
            assert_eq!(record, [record[0]; LENGTH], "torn");
            numbers.push(record[0]);
        });
        numbers
    }

    /// Runs two threads that append, and one that takes records out twice; then takes out what is left.
    /// Returns what the appending threads return, and the numbers of all records that were taken.
    ///
    /// The taking thread is the last one. loom first runs the threads one after the other, and then
    /// swaps accesses that depend on each other, of which it only knows the last one to each atomic: a
    /// load of `end` would be hidden by the load with which every append begins.
    fn run<T: 'static>(self: &Arc<Self>, appends: [fn(&Self) -> T; 2]) -> ([T; 2], Vec<u64>) {
        let appending = appends.map(|append| {
            let scenario = Arc::clone(self);
            thread::spawn(move || append(&scenario))
        });
        let scenario = Arc::clone(self);
        let taking = thread::spawn(move || [scenario.take(), scenario.take()].concat());
        let results = appending.map(|thread| thread.join().unwrap());
        let mut numbers = taking.join().unwrap();
        numbers.extend(self.take());
        (results, numbers)
    }
}

fn explore(scenario: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(scenario);
}

/// The numbers of the records that were appended, smallest first.
fn appended<const N: usize>(results: [(u64, Result<(), NotAppended>); N]) -> Vec<u64> {
    let appended = results.iter().filter(|(_, result)| result.is_ok());
    appended.map(|(number, _)| *number).collect()
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

#[test]
fn each_record_is_taken_once_and_whole() {
    explore(|| {
        let scenario = Scenario::new();
        let ([first, second], numbers) =
            scenario.run([|scenario| scenario.append(1), |scenario| scenario.append(2)]);
        assert_eq!(sorted(numbers), appended([(1, first), (2, second)]));
        // There is room for both, and of two that meet, one gets in.
        let refused = [first, second].map(Result::err);
        assert!(refused.contains(&None), "{refused:?}");
        assert!(!refused.contains(&Some(NotAppended::Full)), "{refused:?}");
    });
}

#[test]
fn a_record_that_is_dropped_unfinished_leaves_no_trace() {
    explore(|| {
        let scenario = Scenario::new();
        let ([first, second], numbers) = scenario.run([
            |scenario| {
                let _dropped = scenario.append_words(8, 1);
                scenario.append(1)
            },
            |scenario| {
                let result = scenario.append(2);
                let _dropped = scenario.append_words(9, 1);
                result
            },
        ]);
        assert_eq!(sorted(numbers), appended([(1, first), (2, second)]));
    });
}

#[test]
fn a_full_ring_overwrites_nothing_that_was_not_taken() {
    // The appending side's copy of `begin` is out of date as soon as something is taken, and the first
    // append that finds room renews it for the other thread.
    explore(|| {
        let scenario = Scenario::new();
        assert_eq!([scenario.append(1), scenario.append(2)], [Ok(()); 2]);
        assert_eq!(scenario.append(3), Err(NotAppended::Full));
        let ([first, second], numbers) =
            scenario.run([|scenario| scenario.append(4), |scenario| scenario.append(5)]);
        assert_eq!(numbers[..2], [1, 2]);
        let rest = numbers[2..].to_vec();
        assert_eq!(sorted(rest), appended([(4, first), (5, second)]));
        // Whatever happened to the two, all records are taken now, so there is room again.
        assert_eq!([scenario.append(6), scenario.append(7)], [Ok(()); 2]);
        assert_eq!(scenario.take(), [6, 7]);
    });
}

#[test]
fn records_of_one_thread_come_out_in_its_order() {
    explore(|| {
        let scenario = Scenario::new();
        let ([ours, theirs], numbers) = scenario.run([
            |scenario| vec![scenario.append(1), scenario.append(2)],
            |scenario| vec![scenario.append(3)],
        ]);
        let (of_first, of_second) = numbers.into_iter().partition::<Vec<_>, _>(|n| *n < 3);
        assert_eq!(of_first, appended([(1, ours[0]), (2, ours[1])]));
        assert_eq!(of_second, appended([(3, theirs[0])]));
    });
}
