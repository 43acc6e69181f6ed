//! The interleavings of small scenarios with few preemptions, by loom: `cargo test -p balde-loom` runs them.
//!
//! The table is made small, so that two threads meet where it is rearranged. What is shown: no
//! grant is lost or made twice, whatever a reader does between two of a lock-holder's steps.

use balde_core::{Command, Decision, Limit};
use loom::sync::Arc;
use loom::thread;

use super::{Assignment, MemoryStep, Table, TierId, run_all};

const TAKE: Command = Command::Take { n: 1 };

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn explore(story: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 100_000;
    model.check(story);
}

fn takes(table: &Table, key: &[u8]) -> i64 {
    i64::from(table.run(key, TAKE, 0).is_allowed())
}

fn level(table: &Table, key: &[u8]) -> i64 {
    table.run(key, Command::Peek, 0).level()
}

#[test]
fn the_last_token_goes_to_one() {
    explore(|| {
        let table = Arc::new(Table::new(limit("1/day burst 2"), 4, 0));
        takes(&table, b"a");
        let other = Arc::clone(&table);
        let theirs = thread::spawn(move || takes(&other, b"a"));
        let ours = takes(&table, b"a");
        assert_eq!(ours + theirs.join().unwrap(), 1);
        assert_eq!(level(&table, b"a"), 0);
    });
}

#[test]
fn two_first_requests_make_one_bucket() {
    explore(|| {
        let table = Arc::new(Table::new(limit("1/day burst 3"), 4, 0));
        let other = Arc::clone(&table);
        let theirs = thread::spawn(move || takes(&other, b"a"));
        let ours = takes(&table, b"a");
        assert_eq!(ours + theirs.join().unwrap(), 2);
        assert_eq!(level(&table, b"a"), 1);
        assert_eq!(table.stats().keys, 1);
    });
}

#[test]
fn a_bucket_that_moves_loses_no_take() {
    // The seventh key makes the shard grow from eight slots, which moves everybody.
    explore(|| {
        let table = Arc::new(Table::new(limit("1/day burst 3"), 16, 0));
        for key in 0..6_u8 {
            takes(&table, &[key]);
        }
        let other = Arc::clone(&table);
        let theirs = thread::spawn(move || takes(&other, &[3]));
        takes(&table, &[6]);
        assert_eq!(theirs.join().unwrap(), 1);
        assert_eq!(level(&table, &[3]), 1);
    });
}

#[test]
fn a_full_bucket_that_is_swept_while_somebody_takes_from_it_loses_no_take() {
    explore(|| {
        let table = Arc::new(Table::new(limit("1/day burst 3"), 16, 0));
        for key in 0..3_u8 {
            takes(&table, &[key]);
            table.run(&[key], Command::Credit { n: 1 }, 0);
        }
        let other = Arc::clone(&table);
        let theirs = thread::spawn(move || takes(&other, &[1]));
        takes(&table, &[9]);
        assert_eq!(theirs.join().unwrap(), 1);
        assert_eq!(level(&table, &[1]), 2);
        assert_eq!(level(&table, &[9]), 2);
    });
}

#[test]
fn a_slot_that_changes_hands_is_not_charged_for_its_old_key() {
    // Room for one key: the new one evicts the old one and takes its slot.
    explore(|| {
        let table = Arc::new(Table::new(limit("1/day burst 3"), 1, 0));
        takes(&table, b"old");
        let other = Arc::clone(&table);
        let theirs = thread::spawn(move || takes(&other, b"old"));
        takes(&table, b"new");
        theirs.join().unwrap();
        // The thread that came last has the slot; the other starts afresh.
        let levels = (level(&table, b"old"), level(&table, b"new"));
        assert!(levels == (3, 2) || levels == (2, 3), "{levels:?}");
    });
}

#[test]
fn a_limit_that_changes_while_somebody_takes_mints_nothing() {
    explore(|| {
        let table = Arc::new(Table::new(limit("1/day burst 3"), 4, 0));
        takes(&table, b"a");
        let other = Arc::clone(&table);
        let change = thread::spawn(move || {
            other.set_limit(limit("1/7day burst 3"), || 0);
            other.set_limit(limit("1/11day burst 2"), || 0);
        });
        assert_eq!(takes(&table, b"a"), 1);
        change.join().unwrap();
        // Two are gone, whichever limit they were taken under.
        assert_eq!(level(&table, b"a"), 0);
    });
}

#[test]
fn several_buckets_give_together_while_somebody_takes_from_one() {
    explore(|| {
        let table = Arc::new(Table::new(limit("1/day burst 2"), 4, 0));
        takes(&table, b"a");
        takes(&table, b"b");
        let other = Arc::clone(&table);
        let theirs = thread::spawn(move || takes(&other, b"b"));
        let step = |key| MemoryStep {
            table: &table,
            key,
            tier: None,
            command: TAKE,
            now_us: 0,
        };
        let both = run_all(&[step(b"a"), step(b"b")], |decision| decision);
        let both = i64::from(both.iter().all(Decision::is_allowed));
        assert_eq!(theirs.join().unwrap() + both, 1);
        assert_eq!(level(&table, b"a"), 1 - both);
        assert_eq!(level(&table, b"b"), 0);
    });
}

#[test]
fn a_key_that_moves_to_another_tier_while_somebody_takes_loses_no_take() {
    explore(|| {
        let limits = [limit("1/day burst 3"), limit("1/7day burst 3")];
        let table = Table::with_tiers(&limits, Assignment::Stored, 4, 0);
        let table = Arc::new(table);
        takes(&table, b"a");
        let other = Arc::clone(&table);
        let there_and_back = thread::spawn(move || {
            other.set_tier(b"a", TierId::new(1).unwrap(), 0);
            other.set_tier(b"a", TierId::NONE, 0);
        });
        assert_eq!(takes(&table, b"a"), 1);
        there_and_back.join().unwrap();
        // Two are gone, whichever limit they were taken under.
        assert_eq!(level(&table, b"a"), 1);
    });
}

#[test]
fn a_key_that_is_forgotten_while_somebody_takes_is_new_or_charged_once() {
    explore(|| {
        let table = Arc::new(Table::new(limit("1/day burst 3"), 4, 0));
        takes(&table, b"a");
        let other = Arc::clone(&table);
        let forgetting = thread::spawn(move || other.forget(b"a"));
        assert_eq!(takes(&table, b"a"), 1);
        forgetting.join().unwrap();
        let levels = level(&table, b"a");
        assert!(levels == 3 || levels == 2, "{levels}");
        assert_eq!(table.stats().keys, u64::from(levels == 2));
    });
}
