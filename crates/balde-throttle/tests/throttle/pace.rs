//! Rate and burst are one value: every reader sees a burst of a tenth of the rate, after every change.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use balde::{Clock, ManualClock, Share};
use balde_throttle::{Circuit, Degradation, Outcome, Pace, Throttler};

fn is_a_tenth(pace: Pace) -> bool {
    pace.burst() == (pace.rate().tokens() / 10).max(1)
}

#[test]
fn two_thousand_becomes_1800_with_180_and_1620_with_162() {
    let throttler = Throttler::builder()
        .rate(10_000)
        .partition_rate(2_000)
        .degradation(Degradation::strict())
        .build()
        .unwrap();
    let store = throttler.partition("store").unwrap();
    let mut paces = vec![store.pace().to_string()];
    for _ in 0..3 {
        store.report(Outcome::Error);
        paces.push(store.pace().to_string());
    }
    assert_eq!(
        paces,
        [
            "2000/s burst 200",
            "1800/s burst 180",
            "1620/s burst 162",
            "1458/s burst 145",
        ]
    );
    assert_eq!(throttler.pace().to_string(), "10000/s burst 1000");
}

#[test]
fn by_default_an_error_at_5_s_gives_1800_with_180_and_the_next_at_10_s_1620_with_162() {
    let clock = ManualClock::at_us(0);
    let throttler = Throttler::builder()
        .rate(10_000)
        .partition_rate(2_000)
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    let store = throttler.partition("store").unwrap();
    let mut paces = Vec::new();
    for _ in 0..3 {
        paces.push(store.pace().to_string());
        clock.advance(Duration::from_secs(5));
        store.report(Outcome::Error);
    }
    assert_eq!(
        paces,
        ["2000/s burst 200", "1800/s burst 180", "1620/s burst 162"]
    );
}

/// A manual clock, and a throttler for a random walk of errors and recoveries.
fn walker(seed: u64, rate: u64) -> (fastrand::Rng, ManualClock, Throttler) {
    let clock = ManualClock::at_us(1_000_000);
    let throttler = Throttler::builder()
        .rate(1_000_000)
        .partition_rate(rate)
        .degradation(
            Degradation::strict()
                .recovery(Duration::from_millis(500))
                .reset(Duration::from_secs(1)),
        )
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    (fastrand::Rng::with_seed(seed), clock, throttler)
}

#[test]
fn a_random_walk_of_errors_and_successes_keeps_the_burst_a_tenth_and_mints_nothing() {
    for seed in 0..40 {
        println!("seed {seed}");
        let rate = [2_000, 1, 9, 997, 123_456][usize::try_from(seed % 5).unwrap()];
        let (mut random, clock, throttler) = walker(seed, rate);
        let store = throttler.partition("store").unwrap();
        let mut changes = 0;
        for step in 0..4_000 {
            let before = store.stats();
            clock.advance(Duration::from_micros(random.u64(..50_000)));
            let level_before = store.level();
            // Phases of errors and of successes, so that the walk goes both ways.
            let odds = if step / 200 % 2 == 0 { 8 } else { 200 };
            let outcome = if random.u8(..odds) == 0 {
                Outcome::Error
            } else {
                Outcome::Success
            };
            store.report(outcome);
            let after = store.stats();
            assert!(is_a_tenth(after.pace()), "{}", after.pace());
            changes += usize::from(before.pace() != after.pace());
            // The bucket keeps its deficit: a larger burst never adds tokens.
            let grew = after.pace().burst().saturating_sub(before.pace().burst());
            assert!(store.level() <= level_before + grew, "seed {seed}");
            if random.bool() {
                // Taking tokens changes the deficit that must be kept.
                let _maybe = store.try_acquire(random.u64(1..=after.pace().burst()));
            }
        }
        assert!(rate == 1 || changes > 20, "seed {seed}: {changes} changes");
    }
}

#[test]
fn after_set_rate_the_burst_is_a_tenth_of_the_new_rate_at_both_levels() {
    let clock = ManualClock::at_us(1_000_000);
    let throttler = Throttler::builder()
        .rate(2_000)
        .partition_rate(1_000)
        .degradation(Degradation::strict())
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    let store = throttler.partition("store").unwrap();
    for (rate, expected) in [
        (500, "500/s burst 50"),
        (9, "9/s burst 1"),
        (20_000, "20000/s burst 2000"),
    ] {
        throttler.set_rate(rate).unwrap();
        assert_eq!(throttler.pace().to_string(), expected);
        // A partition's burst is a tenth of its own rate, whatever the global one is.
        assert!(is_a_tenth(store.pace()), "{}", store.pace());
        store.report(Outcome::Error);
        assert!(is_a_tenth(store.pace()), "{}", store.pace());
        assert_eq!(throttler.pace().to_string(), expected);
    }
    assert_eq!(store.pace().to_string(), "729/s burst 72");

    // The burst is what can be taken at once, and not only what is displayed: 72 of the partition, and of
    // the global rate no more than the bucket had when it was small.
    clock.advance(Duration::from_secs(60));
    assert!(store.try_acquire(72).is_ok());
    assert!(store.try_acquire(1).is_err());
    throttler.set_rate(100).unwrap();
    assert_eq!(throttler.pace().to_string(), "100/s burst 10");
    clock.advance(Duration::from_secs(60));
    assert!(store.try_acquire(10).is_ok());
    assert!(store.try_acquire(1).is_err());
}

#[test]
fn the_burst_is_a_tenth_when_a_circuit_opens_half_opens_and_closes() {
    let clock = ManualClock::at_us(1_000_000);
    let throttler = Throttler::builder()
        .rate(100_000)
        .partition_rate(2_000)
        .degradation(
            Degradation::strict()
                .recovery(Duration::from_secs(1))
                .reset(Duration::from_secs(5)),
        )
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    let store = throttler.partition("store").unwrap();
    let mut seen = Vec::new();
    let mut note = |circuit: Circuit| {
        if seen.last() != Some(&circuit) {
            seen.push(circuit);
        }
    };
    for _ in 0..1_000 {
        let stats = store.stats();
        assert!(is_a_tenth(stats.pace()), "{stats:?}");
        note(stats.circuit());
        if stats.circuit() == Circuit::Open {
            break;
        }
        store.report(Outcome::Error);
    }
    assert_eq!(store.pace().to_string(), "200/s burst 20", "at the floor");
    assert!(store.try_acquire(1).is_err());
    for _ in 0..10_000 {
        clock.advance(Duration::from_millis(50));
        if store.try_acquire(1).is_ok() {
            store.report(Outcome::Success);
        }
        let stats = store.stats();
        assert!(is_a_tenth(stats.pace()), "{stats:?}");
        note(stats.circuit());
        if !stats.is_degraded() {
            break;
        }
    }
    assert_eq!(
        seen,
        [
            Circuit::Closed,
            Circuit::Open,
            Circuit::HalfOpen,
            Circuit::Closed
        ]
    );
    assert_eq!(store.pace().to_string(), "2000/s burst 200");
}

#[test]
fn a_reader_during_concurrent_reports_finds_a_tenth() {
    let clock = ManualClock::at_us(1_000_000);
    let throttler = Throttler::builder()
        .rate(1_000_000)
        .partition_rate(2_000)
        .degradation(
            Degradation::strict()
                .recovery(Duration::from_millis(1))
                .reset(Duration::from_millis(1))
                .step(Share::percent(7)),
        )
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let walkers: Vec<_> = (0..3)
        .map(|seed| {
            let store = throttler.partition("store").unwrap();
            let (clock, is_over) = (clock.clone(), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !is_over.load(Ordering::Relaxed) {
                    // Time advances with their work, so that the walk goes both ways however busy
                    // the machine is.
                    clock.advance(Duration::from_micros(random.u64(..40)));
                    match random.u16(..400) {
                        0 => store.report(Outcome::Error),
                        1..50 => drop(store.try_acquire(random.u64(1..50))),
                        _ => store.report(Outcome::Success),
                    }
                }
            })
        })
        .collect();
    let store = throttler.partition("store").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut looks, mut seen) = (0, HashSet::new());
    while looks < 20_000 || seen.len() < 10 {
        let pace = store.stats().pace();
        assert!(is_a_tenth(pace), "{pace}");
        seen.insert(pace.rate().tokens());
        looks += 1;
        // The lock is not fair: yield, so that the reporting threads get it too.
        std::thread::sleep(Duration::from_micros(u64::from(looks % 20 == 0)));
        assert!(
            Instant::now() < deadline,
            "the rate did not change: {seen:?}"
        );
    }
    is_over.store(true, Ordering::Relaxed);
    for walker in walkers {
        walker.join().unwrap();
    }
    println!("{} different rates seen in {looks} looks", seen.len());
    assert!(is_a_tenth(store.pace()));
}
