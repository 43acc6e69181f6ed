//! The table against the core, under threads, floods and long silences.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use balde_core::{Command, Decision, Limit, State};
use proptest::prelude::*;

use super::{Assignment, MemoryStep, Table, TierId, run_all};

const TAKE: Command = Command::Take { n: 1 };

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// What a caller can see of a decision.
fn seen(decision: &Decision) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        decision.is_allowed(),
        decision.level_before(),
        decision.level(),
        decision.wait(),
        decision.full_after_us(),
    )
}

/// A bucket kept the slow way: the core's state, and a limit that may change.
struct Oracle {
    limit: Limit,
    state: Option<State>,
}

impl Oracle {
    fn run(&mut self, command: Command, now_us: u64) -> Decision {
        let decision = self.limit.apply(self.state, command, now_us);
        if decision.must_be_kept() || self.state.is_some() {
            self.state = decision.state();
        }
        decision
    }

    /// A bucket with a slot of its own begins to refill at once, if it starts empty.
    fn pin(&mut self, is_pinned: bool, now_us: u64) {
        if is_pinned && self.state.is_none() {
            self.state = self
                .limit
                .apply(None, Command::Take { n: 0 }, now_us)
                .state();
        }
    }

    fn set_limit(&mut self, new: Limit, now_us: u64) {
        self.state = self.limit.change_to(&new, self.state, now_us);
        self.limit = new;
    }
}

fn limits() -> impl Strategy<Value = Limit> {
    prop::sample::select(vec![
        "10/s",
        "7/s burst 3",
        "1000003/s burst 50",
        "600000000/s",
        "1/97day",
        "0.333333333/s burst 4",
        "1200/min burst 36000 stepwise",
        "2/min burst 100 stepwise debt 300",
        // A step of more units than 63 bits hold.
        "200000003/day burst 40000 stepwise",
        "3000000019/h burst 100 stepwise",
        "10/s burst 20 debt 0",
        "3/s burst 5 empty",
        "3/s burst 5 stepwise empty",
        "5/s window",
        "100/min window debt 40",
    ])
    .prop_map(limit)
}

fn commands() -> impl Strategy<Value = Command> {
    let n = || prop_oneof![0..4_u64, 0..200_u64, Just(36_000), Just(u64::MAX)];
    prop_oneof![
        Just(Command::Peek),
        n().prop_map(|n| Command::Take { n }),
        Just(TAKE),
        n().prop_map(|n| Command::TakeUpTo { n }),
        n().prop_map(|n| Command::Charge { n }),
        n().prop_map(|n| Command::Credit { n }),
        (-400..400_i64).prop_map(|level| Command::SetLevel { level }),
    ]
}

/// A step in the life of a table with tiers.
#[derive(Clone, Debug)]
enum TierStep {
    Any(Step),
    Move { key: u8, tier: usize },
    SetTierLimit { tier: usize, limit: Limit },
    RunAll { keys: Vec<(u8, u64)> },
}

fn tier_steps() -> impl Strategy<Value = Vec<TierStep>> {
    let tier = 0..3_usize;
    let keys = prop::collection::vec((0..6_u8, 0..4_u64), 1..4);
    let step = prop_oneof![
        10 => step().prop_map(TierStep::Any),
        4 => (0..6_u8, tier.clone()).prop_map(|(key, tier)| TierStep::Move { key, tier }),
        2 => keys.prop_map(|keys| TierStep::RunAll { keys }),
        1 => (tier, limits()).prop_map(|(tier, limit)| TierStep::SetTierLimit { tier, limit }),
    ];
    prop::collection::vec(step, 1..80)
}

#[derive(Clone, Debug)]
enum Step {
    Run { key: u8, command: Command },
    Wait { us: u64 },
    SetLimit { limit: Limit },
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..80)
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![
        Just(1),
        0..100_000_u64,
        Just(1_000_000),
        Just(60_000_000),
        0..100_000_000_u64,
        // Weeks, years and centuries, beyond what a word can represent at the finer rates.
        0..1_000_000_000_000_u64,
        0..40_000_000_000_000_u64,
        0..3_000_000_000_000_000_u64,
    ];
    prop_oneof![
        12 => (0..6_u8, commands()).prop_map(|(key, command)| Step::Run { key, command }),
        4 => wait.prop_map(|us| Step::Wait { us }),
        1 => limits().prop_map(|limit| Step::SetLimit { limit }),
        1 => Just(Step::Sweep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn the_table_decides_as_the_core_does(
        limit in limits(),
        start_us in 0..2_000_000_000_000_000_u64,
        steps in steps(),
    ) {
        let table = Table::new(limit, 1_000, start_us);
        let mut oracles: Vec<_> = (0..6).map(|_| Oracle { limit, state: None }).collect();
        let mut now_us = start_us;
        for step in steps {
            match step {
                Step::Run { key, command } => {
                    let ours = table.run(&[key], command, now_us);
                    let right = oracles[usize::from(key)].run(command, now_us);
                    prop_assert_eq!(seen(&ours), seen(&right), "key {} {:?}", key, command);
                }
                Step::Wait { us } => now_us += us,
                Step::SetLimit { limit } => {
                    table.set_limit(limit, || now_us);
                    for oracle in &mut oracles {
                        oracle.set_limit(limit, now_us);
                    }
                    prop_assert_eq!(table.limit(), limit);
                }
                Step::Sweep => table.sweep(now_us),
            }
        }
    }

    #[test]
    fn keys_that_move_between_tiers_are_decided_as_the_core_does(
        tiers in prop::collection::vec(limits(), 3),
        is_given in any::<bool>(),
        start_us in 0..2_000_000_000_000_000_u64,
        steps in tier_steps(),
    ) {
        let mut tiers = tiers;
        let assignment = if is_given { Assignment::Given } else { Assignment::Stored };
        let table = Table::with_tiers(&tiers, assignment, 1_000, start_us);
        let mut oracles: Vec<_> = (0..6).map(|_| (0, Oracle { limit: tiers[0], state: None })).collect();
        let mut now_us = start_us;
        let given = |tier: usize| is_given.then(|| TierId::new(tier).unwrap());
        for step in steps {
            match step {
                TierStep::Any(Step::Run { key, command }) => {
                    let (tier, oracle) = &mut oracles[usize::from(key)];
                    let ours = table.run_in(&[key], given(*tier), command, now_us);
                    let right = oracle.run(command, now_us);
                    prop_assert_eq!(seen(&ours), seen(&right), "key {} {:?}", key, command);
                }
                TierStep::Any(Step::Wait { us }) => now_us += us,
                TierStep::Any(Step::Sweep) => table.sweep(now_us),
                TierStep::Any(Step::SetLimit { limit }) => {
                    tiers[0] = limit;
                    table.set_limit(limit, || now_us);
                    for (_, oracle) in oracles.iter_mut().filter(|(tier, _)| *tier == 0) {
                        oracle.set_limit(limit, now_us);
                    }
                }
                TierStep::SetTierLimit { tier, limit } => {
                    tiers[tier] = limit;
                    table.set_tier_limit(TierId::new(tier).unwrap(), limit, || now_us);
                    for (_, oracle) in oracles.iter_mut().filter(|(its, _)| *its == tier) {
                        oracle.set_limit(limit, now_us);
                        oracle.pin(tier != 0 && !is_given, now_us);
                    }
                    prop_assert_eq!(table.tier_limit(TierId::new(tier).unwrap()), limit);
                }
                TierStep::Move { key, tier } => {
                    let (its, oracle) = &mut oracles[usize::from(key)];
                    *its = tier;
                    if is_given {
                        // The table sees the move with the next command.
                        let nothing = Command::Take { n: 0 };
                        table.run_in(&[key], given(tier), nothing, now_us);
                        oracle.set_limit(tiers[tier], now_us);
                        oracle.run(nothing, now_us);
                    } else {
                        prop_assert!(table.set_tier(&[key], TierId::new(tier).unwrap(), now_us));
                        prop_assert_eq!(table.tier(&[key]).index(), tier);
                        oracle.set_limit(tiers[tier], now_us);
                        oracle.pin(tier != 0, now_us);
                    }
                }
                TierStep::RunAll { keys } => {
                    let names: Vec<[u8; 1]> = keys.iter().map(|(key, _)| [*key]).collect();
                    let steps: Vec<_> = keys.iter().zip(&names).map(|((key, n), name)| MemoryStep {
                        table: &table,
                        key: name,
                        tier: given(oracles[usize::from(*key)].0),
                        command: Command::Take { n: *n },
                        now_us,
                    }).collect();
                    let ours = run_all(&steps, |decision| decision).iter().all(Decision::is_allowed);
                    let before: Vec<_> = oracles.iter().map(|(_, oracle)| oracle.state).collect();
                    let takes = keys.iter().map(|(key, n)| {
                        oracles[usize::from(*key)].1.run(Command::Take { n: *n }, now_us).is_allowed()
                    });
                    // All of them run, also after a refusal.
                    let takes: Vec<_> = takes.collect();
                    let right = takes.iter().all(|is_allowed| *is_allowed);
                    prop_assert_eq!(ours, right);
                    if !right {
                        for ((_, oracle), state) in oracles.iter_mut().zip(before) {
                            oracle.state = state;
                        }
                        // A bucket that starts empty begins to refill.
                        for (key, _) in keys {
                            oracles[usize::from(key)].1.run(Command::Take { n: 0 }, now_us);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn several_buckets_give_together_or_not_at_all(
        first in limits(),
        second in limits(),
        asks in prop::collection::vec(
            (prop::collection::vec((prop::bool::ANY, 0..3_u8, 0..6_u64), 1..5), 0..700_000_u64),
            1..40,
        ),
    ) {
        let tables = [Table::new(first, 100, 0), Table::new(second, 100, 0)];
        let oracle = |limit| Oracle { limit, state: None };
        let mut oracles: Vec<Vec<Oracle>> =
            [first, second].map(|l| (0..3).map(|_| oracle(l)).collect()).into();
        let mut now_us = 0;
        for (ask, wait_us) in asks {
            now_us += wait_us;
            let keys: Vec<[u8; 1]> = ask.iter().map(|(_, key, _)| [*key]).collect();
            let steps: Vec<_> = ask.iter().zip(&keys).map(|((which, _, n), key)| MemoryStep {
                table: &tables[usize::from(*which)],
                key,
                tier: None,
                command: Command::Take { n: *n },
                now_us,
            }).collect();
            let ours = run_all(&steps, |decision| decision);

            let before: Vec<Vec<_>> = oracles.iter()
                .map(|table| table.iter().map(|oracle| oracle.state).collect())
                .collect();
            let right: Vec<_> = ask.iter().map(|(which, key, n)| {
                oracles[usize::from(*which)][usize::from(*key)].run(Command::Take { n: *n }, now_us)
            }).collect();
            let is_allowed = right.iter().all(Decision::is_allowed);
            prop_assert_eq!(ours.iter().all(Decision::is_allowed), is_allowed);
            for (our, right) in ours.iter().zip(&right) {
                prop_assert!(is_allowed || our.is_allowed() == right.is_allowed());
                if is_allowed || !right.is_allowed() {
                    prop_assert_eq!(seen(our), seen(right));
                }
            }
            if !is_allowed {
                for (oracles, states) in oracles.iter_mut().zip(before) {
                    for (oracle, state) in oracles.iter_mut().zip(states) {
                        // A bucket that starts empty begins to fill with its first refusal.
                        let begins = oracle.limit.start() == balde_core::Start::Empty
                            && state.is_none()
                            && oracle.state.is_some();
                        oracle.state = if begins {
                            oracle.limit.apply(None, TAKE, now_us).state()
                        } else {
                            state
                        };
                    }
                }
            }
            for (table, oracles) in tables.iter().zip(&mut oracles) {
                for (key, oracle) in (0_u8..).zip(oracles) {
                    let ours = table.run(&[key], Command::Peek, now_us);
                    prop_assert_eq!(seen(&ours), seen(&oracle.run(Command::Peek, now_us)));
                }
            }
        }
    }
}

#[test]
fn threads_on_one_key_take_exactly_what_is_there() {
    for text in ["1/97day burst 500", "100000/day window"] {
        let limit = limit(text);
        let table = Table::new(limit, 10, 0);
        let granted = AtomicU64::new(0);
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    for now_us in 0..50_000 {
                        let taken = table.run(b"key", TAKE, now_us).is_allowed();
                        granted.fetch_add(u64::from(taken), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(
            granted.into_inner(),
            limit.capacity().min(200_000),
            "{text}"
        );
    }
}

#[test]
fn threads_on_many_keys_that_come_and_go_take_exactly_what_is_there() {
    // The table grows, sweeps and closes gaps all the while. No time passes, so every key gives
    // exactly its capacity over all threads.
    let limit = limit("1/day burst 3");
    let table = Table::new(limit, 50_000, 0);
    let keys = 20_000_u32;
    let granted: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (table, granted) = (&table, &granted);
            scope.spawn(move || {
                for n in 0..keys * 5 {
                    let key = (n.wrapping_mul(7_919) + thread * 4_999) % keys;
                    if table.run(&key.to_le_bytes(), TAKE, 0).is_allowed() {
                        granted[key as usize].fetch_add(1, Ordering::Relaxed);
                    }
                    // Credited to full, so that the sweep has something to do.
                    if n % 3 == 0 {
                        let passing = (keys + n % 5_000).to_le_bytes();
                        table.run(&passing, TAKE, 0);
                        table.run(&passing, Command::Credit { n: 3 }, 0);
                    }
                }
            });
        }
    });
    for (key, granted) in granted.iter().enumerate() {
        assert_eq!(granted.load(Ordering::Relaxed), 3, "key {key}");
    }
    assert_eq!(table.stats().evicted_total, 0);
    assert!(table.stats().swept_total > 0);
}

#[test]
fn a_limit_that_changes_under_load_mints_nothing() {
    // Between limits that all hold 100 and never refill here, whatever is taken stays taken.
    let [a, b, c] = ["1/97day burst 100", "1/day burst 100", "1/7week burst 100"].map(limit);
    let table = Table::new(a, 1_000, 0);
    let granted = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for n in 0..30_000_u32 {
                    let key = (n % 50).to_le_bytes();
                    let taken = table.run(&key, TAKE, 0).is_allowed();
                    granted.fetch_add(u64::from(taken), Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            for round in 0..300 {
                table.set_limit([b, c, a][round % 3], || 0);
            }
        });
    });
    assert_eq!(granted.into_inner(), 50 * 100);
}

#[test]
fn two_decisions_over_the_same_buckets_do_not_wait_for_each_other() {
    let tables = [0, 1].map(|_| Table::new(limit("1/97day burst 500"), 5_000, 0));
    let granted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4_usize {
            let (tables, granted) = (&tables, &granted);
            scope.spawn(move || {
                for n in 0..20_000_usize {
                    let step = |which: usize, key: &'static [u8]| MemoryStep {
                        table: &tables[which],
                        key,
                        tier: None,
                        command: TAKE,
                        now_us: 0,
                    };
                    let mut steps = [step(0, b"a"), step(1, b"b"), step(0, b"c")];
                    steps.rotate_left((n + thread) % 3);
                    let is_allowed = run_all(&steps, |decision| decision)
                        .iter()
                        .all(Decision::is_allowed);
                    granted.fetch_add(u64::from(is_allowed), Ordering::Relaxed);
                    // Meanwhile somebody takes one alone.
                    if n == 10_000 && thread == 0 {
                        tables[1].run(b"b", TAKE, 0);
                    }
                }
            });
        }
    });
    let levels = [(0, b"a"), (1, b"b"), (0, b"c")]
        .map(|(which, key)| tables[which].run(key, Command::Peek, 0).level());
    let granted = granted.into_inner();
    assert!(granted == 500 || granted == 499, "{granted}");
    assert_eq!(levels[0], levels[2]);
    assert_eq!(levels[0], 500 - i64::try_from(granted).unwrap());
}

#[test]
fn a_table_holds_as_many_live_keys_as_it_was_made_for() {
    for keys_max in [1_u32, 2, 7, 100, 1_023, 5_000, 20_000] {
        let table = Table::new(limit("1/day burst 3"), keys_max as usize, 0);
        for key in 0..keys_max {
            table.run(&key.to_le_bytes(), TAKE, 0);
        }
        let stats = table.stats();
        assert_eq!(stats.keys, u64::from(keys_max));
        assert_eq!(stats.evicted_total, 0, "{keys_max}");
        for key in 0..keys_max {
            let level = table.run(&key.to_le_bytes(), Command::Peek, 0).level();
            assert_eq!(level, 2, "{key} of {keys_max}");
        }
    }
}

#[test]
fn the_bucket_nearest_to_full_goes_first() {
    let table = Table::new(limit("1/day burst 200"), 100, 0);
    for key in 0..100_u64 {
        table.run(&key.to_le_bytes(), Command::Take { n: key + 1 }, 0);
    }
    // Each new key is emptier than all before it, so the fullest of the old ones goes.
    for newcomer in 0..50_u64 {
        table.run(
            &(1_000 + newcomer).to_le_bytes(),
            Command::Take { n: 150 },
            0,
        );
        let gone = table.run(&newcomer.to_le_bytes(), Command::Peek, 0);
        assert_eq!(gone.level(), 200, "key {newcomer} went and is fresh");
        let next = table.run(&(newcomer + 1).to_le_bytes(), Command::Peek, 0);
        assert_eq!(next.level(), 200 - i64::try_from(newcomer).unwrap() - 2);
    }
    assert_eq!(table.stats().evicted_total, 50);
    assert_eq!(table.stats().keys, 100);
}

#[test]
fn full_buckets_are_forgotten_before_live_ones() {
    let table = Table::new(limit("1/s burst 2"), 1_000, 0);
    for key in 0..1_000_u32 {
        let n = if key < 500 { 1 } else { 2 };
        table.run(&key.to_le_bytes(), Command::Take { n }, 0);
    }
    // After a second the first half is full, the second half is not.
    for key in 0..500_u32 {
        table.run(&(5_000 + key).to_le_bytes(), TAKE, 1_000_000);
    }
    assert_eq!(table.stats().evicted_total, 0);
    for key in 500..1_000_u32 {
        let level = table
            .run(&key.to_le_bytes(), Command::Peek, 1_000_000)
            .level();
        assert_eq!(level, 1);
    }
}

#[test]
fn a_bucket_left_alone_for_ages_is_full_however_fine_the_rate() {
    // At this rate a word wraps around within hours.
    let fine = limit("1000000007/s burst 1000");
    let hour_us = 3_600_000_000;
    for idle_us in [
        1,
        hour_us,
        5 * hour_us,
        24 * hour_us,
        9_000 * hour_us,
        1 << 52,
    ] {
        for keys in [1, 3_000_u32] {
            let start_us = 1_700_000_000_000_000;
            let table = Table::new(fine, 10_000, start_us);
            for key in 0..keys {
                table.run(
                    &key.to_le_bytes(),
                    Command::Charge { n: 1_000_000 },
                    start_us,
                );
            }
            let now_us = start_us + idle_us;
            let expected = fine
                .apply(
                    fine.apply(None, Command::Charge { n: 1_000_000 }, start_us)
                        .state(),
                    Command::Peek,
                    now_us,
                )
                .level();
            for key in 0..keys {
                let level = table.run(&key.to_le_bytes(), Command::Peek, now_us).level();
                assert_eq!(level, expected, "after {idle_us} µs");
            }
        }
    }
}

#[test]
fn a_bucket_written_by_somebody_whose_clock_is_ahead_forgives_nothing() {
    for text in ["10/s burst 20 debt 0", "10/s burst 20 stepwise debt 0"] {
        let limit = limit(text);
        let table = Table::new(limit, 10, 0);
        let ahead_us = 5_000_000;
        assert!(
            table
                .run(b"k", Command::Take { n: 20 }, ahead_us)
                .is_allowed()
        );
        // Others, who are behind, ask, give back one each and ask again.
        let mut taken = 0;
        for now_us in [0, 1_000_000, 4_999_999] {
            taken += i64::from(table.run(b"k", TAKE, now_us).is_allowed());
            table.run(b"k", Command::Credit { n: 1 }, now_us);
            taken += i64::from(table.run(b"k", TAKE, now_us).is_allowed());
        }
        let level = table.run(b"k", Command::Peek, ahead_us).level();
        assert_eq!(level + taken, 3, "{text}");
        let later = table.run(b"k", Command::Peek, ahead_us + 1_000_000).level();
        assert_eq!(later, level + 10, "{text}");
    }
}

#[test]
fn a_limit_that_changes_while_time_passes_refills_nothing_twice() {
    // Each reading of the clock is a microsecond later, and one token comes with each.
    let clock = AtomicU64::new(1);
    let now_us = || clock.fetch_add(1, Ordering::Relaxed);
    let limits = ["1/us burst 1000 debt 0", "1/us burst 1001 debt 0"].map(limit);
    let table = Table::new(limits[0], 10_000, 0);
    for key in 0..5_000_u32 {
        table.run(&key.to_le_bytes(), Command::Take { n: 1_000 }, now_us());
    }
    let mut granted = 1_000;
    for round in 0..50 {
        table.set_limit(limits[1 - round % 2], now_us);
        let taken = table.run(
            &7_u32.to_le_bytes(),
            Command::TakeUpTo { n: u64::MAX },
            now_us(),
        );
        granted += taken.moved();
        // A larger capacity brings its one token, the smaller takes none back from an empty bucket.
        let most = clock.load(Ordering::Relaxed) + 1_000 + 51;
        assert!(granted <= most, "{granted} of {most}");
    }
}

#[test]
fn whoever_finds_the_lock_taken_is_counted() {
    let table = Table::new(limit("1/h"), 100, 0);
    let locked = table.lock_shard(0, 0);
    let waits = || table.stats().lock_waits_total;
    assert_eq!(waits(), 0, "a free lock is no wait");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| table.run(b"new", TAKE, 0));
        // It cannot have the lock before it is let go here, and it counts before it waits.
        while waits() == 0 && !waiting.is_finished() {
            thread::yield_now();
        }
        drop(locked);
    });
    assert_eq!(waits(), 1);
}

#[test]
fn keys_with_a_tier_are_neither_swept_nor_evicted() {
    let limits = [limit("10/s"), limit("20/s")];
    let table = Table::with_tiers(&limits, Assignment::Stored, 100, 0);
    let gold = TierId::new(1).unwrap();
    let names: Vec<_> = (0..100_u64).map(u64::to_le_bytes).collect();
    for name in &names[..60] {
        assert!(table.set_tier(name, gold, 0));
    }
    for stranger in 1_000..3_000_u64 {
        table.run(&stranger.to_le_bytes(), TAKE, 0);
    }
    table.sweep(1_000_000_000);
    assert_eq!(table.stats().keys, 60);
    for name in &names[..60] {
        assert_eq!(table.tier(name), gold);
        assert_eq!(table.run(name, TAKE, 1_000_000_000).level(), 19);
    }
    // There is room for a hundred, and no more.
    for name in &names[60..] {
        assert!(table.set_tier(name, gold, 0));
    }
    assert!(!table.set_tier(b"one more", gold, 0));
    assert!(table.run(b"one more", TAKE, 0).is_allowed());
    assert_eq!(table.stats().keys, 100);
    // A key that leaves its tier makes room.
    assert!(table.set_tier(&names[0], TierId::NONE, 1_000_000_000));
    assert!(table.set_tier(b"one more", gold, 1_000_000_000));
    table.forget(b"one more");
    assert_eq!(table.tier(b"one more"), TierId::NONE);
    assert_eq!(table.stats().keys, 99);
}
