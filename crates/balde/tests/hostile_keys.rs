//! Keys as strangers send them, and more of them than anybody should.

use std::time::Duration;

use balde::{BadKey, Clock, Error, KEY_BYTES_MAX, ManualClock, RateLimiter, Reason};
use cpu_time::ThreadTime;

#[test]
fn keys_of_every_shape_are_refused_by_name_or_told_apart() {
    let limiter = RateLimiter::new("1/day").unwrap();
    let limiter = limiter.blocking();

    let empty = limiter.check("");
    assert!(!empty.is_allowed());
    assert_eq!(empty.reason(), Reason::BadKey(BadKey::Empty));
    assert_eq!((empty.remaining(), empty.retry_after()), (0, None));

    let huge = vec![b'k'; 1 << 20];
    let too_long = BadKey::TooLong { bytes: 1 << 20 };
    assert_eq!(limiter.check(&huge).reason(), Reason::BadKey(too_long));
    assert_eq!(limiter.charge(&huge, 1), Err(Error::BadKey(too_long)));

    let shapes: Vec<Vec<u8>> = vec![
        vec![b'k'; KEY_BYTES_MAX],
        vec![b'k'; KEY_BYTES_MAX - 1],
        vec![0],
        vec![0, 0],
        b"a\0b".to_vec(),
        b"a\0c".to_vec(),
        vec![0xFF, 0xFE, 0xC0],
        vec![0xFF, 0xFE, 0xC1],
        "ключ".as_bytes().to_vec(),
        b"key\r\nSET x 1".to_vec(),
        b"{tag}".to_vec(),
        b" ".to_vec(),
    ];
    for key in &shapes {
        assert!(
            limiter.check(key).is_allowed(),
            "{:?} is new",
            &key[..key.len().min(16)]
        );
    }
    for key in &shapes {
        assert_eq!(limiter.check(key).reason(), Reason::OverLimit);
    }
}

#[test]
fn a_bad_key_counts_nothing_anywhere() {
    let limiter = RateLimiter::new("5/day").unwrap();
    let joint = balde::check_all_blocking(&[limiter.request("alice"), limiter.request("")]);
    assert!(!joint.is_allowed());
    assert_eq!(joint.refused_index(), Some(1));
    assert_eq!(joint.reason(), Reason::BadKey(BadKey::Empty));
    assert_eq!(limiter.blocking().peek("alice").unwrap().level(), 5);
    assert_eq!(limiter.memory_stats().keys, 0);
}

#[test]
fn ten_million_strangers_do_not_push_out_those_who_owe() {
    const KEYS_MAX: u64 = 100_000;
    const STRANGERS: u64 = 10_000_000;
    const DEBTORS: u64 = 1_000;
    let clock = ManualClock::new();
    let limiter = RateLimiter::builder()
        .limit("1/min burst 100")
        .keys_max(usize::try_from(KEYS_MAX).unwrap())
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    let blocking = limiter.blocking();
    let debtor = |n: u64| format!("debtor-{n}");
    for n in 0..DEBTORS {
        assert!(blocking.check_n(debtor(n), 100).is_allowed());
    }

    let mut resident_at_first = None;
    let mut slowest = Duration::ZERO;
    let mut slow = 0;
    let mut clock_before = ThreadTime::now();
    for n in 0..STRANGERS {
        assert!(blocking.check(n.to_le_bytes()).is_allowed());
        let clock_after = ThreadTime::now();
        let took = clock_after.duration_since(clock_before);
        clock_before = clock_after;
        slowest = slowest.max(took);
        slow += u32::from(took > Duration::from_millis(1));
        if n % 100_000 == 0 {
            clock.advance(Duration::from_millis(1));
        }
        if n == 2 * KEYS_MAX {
            resident_at_first = resident_bytes();
        }
        assert!(limiter.memory_stats().keys <= KEYS_MAX);
    }

    for n in 0..DEBTORS {
        let decision = blocking.check(debtor(n));
        assert_eq!(
            decision.reason(),
            Reason::OverLimit,
            "debtor {n} was not forgotten"
        );
    }
    let stats = limiter.memory_stats();
    assert_eq!(stats.keys, KEYS_MAX);
    // Every bucket that came and is not there any more was counted.
    assert_eq!(
        stats.evicted_total + stats.swept_total,
        STRANGERS + DEBTORS - KEYS_MAX
    );
    if let (Some(first), Some(last)) = (resident_at_first, resident_bytes()) {
        let grown = last.saturating_sub(first);
        assert!(
            grown < 4 << 20,
            "memory grew by {grown} bytes during the flood"
        );
    }
    // A report, not a test: even the processor time of a thread has the system's interrupts in it.
    println!("slowest of {STRANGERS} checks: {slowest:?}, {slow} over 1 ms; {stats:?}");
}

fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4_096)
}
