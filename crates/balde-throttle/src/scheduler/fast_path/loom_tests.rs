//! Every interleaving of small stories, by loom. What is shown: no prefetched token is granted twice or
//! lost, and nobody gets tokens of another partition.

use std::sync::Arc;

use loom::thread;

use super::{FastPath, Prefetch, TakenTokens};

fn explore(story: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(story);
}

/// A partition whose slot has tokens.
fn filled(tokens: u64) -> (Arc<FastPath>, Prefetch) {
    let fast_path = FastPath::new(2);
    let mut prefetch = Prefetch::new(&fast_path, true);
    prefetch.add(0, "aa");
    prefetch.fill(0, tokens);
    (fast_path, prefetch)
}

#[test]
fn two_takers_and_the_owner_share_the_tokens_of_a_slot() {
    explore(|| {
        let (fast_path, mut prefetch) = filled(3);
        let owner = prefetch.owner(0);
        let takers = [2, 2].map(|n| {
            let fast_path = Arc::clone(&fast_path);
            thread::spawn(move || if fast_path.take(owner, n) { n } else { 0 })
        });
        let seen = prefetch.empty(0).unwrap();
        let taken: u64 = takers.map(|taker| taker.join().unwrap()).iter().sum();
        // What a taker got is counted, and none got anything after the slot was emptied.
        let requests = u64::from(taken > 0);
        assert_eq!(
            seen,
            TakenTokens {
                tokens: taken,
                requests
            }
        );
        assert!(taken <= 2, "three tokens serve one of them");
        assert!(!fast_path.take(owner, 1));
    });
}

#[test]
fn a_slot_that_is_refilled_counts_from_the_beginning() {
    explore(|| {
        let (fast_path, mut prefetch) = filled(1);
        let owner = prefetch.owner(0);
        let other = Arc::clone(&fast_path);
        let taker = thread::spawn(move || u64::from(other.take(owner, 1)));
        let first = prefetch.empty(0).unwrap().tokens;
        prefetch.fill(0, 1);
        let second = prefetch.empty(0).unwrap().tokens;
        assert_eq!(first + second, taker.join().unwrap());
    });
}

#[test]
fn a_handle_of_a_removed_partition_takes_nothing_from_the_next() {
    explore(|| {
        let (fast_path, mut prefetch) = filled(1);
        let old = prefetch.owner(0);
        let other = Arc::clone(&fast_path);
        let taker = thread::spawn(move || u64::from(other.take(old, 1)));
        let before = prefetch.empty(0).unwrap().tokens;
        prefetch.remove(0, "aa");
        prefetch.add(0, "bb");
        prefetch.fill(0, 1);
        assert_eq!(before, taker.join().unwrap());
        assert_eq!(prefetch.empty(0).unwrap().tokens, 0);
    });
}

#[test]
fn a_name_never_leads_to_the_partition_that_took_its_entry() {
    // Both names have the same length and the same entry of the table.
    explore(|| {
        let (fast_path, mut prefetch) = filled(1);
        let other = Arc::clone(&fast_path);
        let taker = thread::spawn(move || u64::from(other.take_by_name("aa", 1)));
        let before = prefetch.empty(0).unwrap().tokens;
        prefetch.remove(0, "aa");
        prefetch.add(1, "bb");
        prefetch.fill(1, 1);
        assert_eq!(before, taker.join().unwrap());
        assert_eq!(prefetch.empty(1).unwrap().tokens, 0);
        assert!(!fast_path.take_by_name("aa", 1));
    });
}

#[test]
fn a_name_that_comes_back_leads_to_its_new_partition_or_nowhere() {
    explore(|| {
        let (fast_path, mut prefetch) = filled(1);
        let other = Arc::clone(&fast_path);
        let taker = thread::spawn(move || u64::from(other.take_by_name("aa", 1)));
        let mut taken = prefetch.empty(0).unwrap().tokens;
        prefetch.remove(0, "aa");
        prefetch.add(1, "bb");
        prefetch.fill(1, 1);
        let of_another = prefetch.empty(1).unwrap().tokens;
        prefetch.remove(1, "bb");
        prefetch.add(0, "aa");
        prefetch.fill(0, 1);
        taken += prefetch.empty(0).unwrap().tokens;
        assert_eq!(of_another, 0);
        assert_eq!(taken, taker.join().unwrap());
    });
}
