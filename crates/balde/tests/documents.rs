//! The examples of the source documents, told to a limiter with a clock moved by hand.

use std::time::Duration;

use balde::{Blocking, Clock, ManualClock, RateLimiter};

fn limiter(limit: &str) -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    let built = RateLimiter::builder()
        .limit(limit)
        .clock(Clock::manual(&clock))
        .build();
    (built.unwrap(), clock)
}

fn level(limiter: Blocking<'_>, key: &str) -> i64 {
    limiter.peek(key).unwrap().level()
}

const MICROSECOND: Duration = Duration::from_micros(1);

#[test]
fn a_hundred_tokens_at_ten_a_second() {
    let (limiter, clock) = limiter("10/s burst 100");
    let limiter = limiter.blocking();
    for request in 1..=100 {
        let decision = limiter.check("user");
        assert!(decision.is_allowed(), "request {request}");
        assert_eq!(decision.remaining(), 100 - request);
    }
    let refused = limiter.check("user");
    assert!(!refused.is_allowed());
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
    clock.advance(Duration::from_secs(5));
    assert_eq!(level(limiter, "user"), 50);
    assert!(limiter.check("user").is_allowed());
}

#[test]
fn what_does_not_fit_the_bucket_is_discarded() {
    let (limiter, clock) = limiter("1200/min burst 36000 stepwise");
    let limiter = limiter.blocking();
    limiter.set_level("psp", 34_000).unwrap();
    let minute = Duration::from_secs(60);
    clock.advance(minute.checked_sub(MICROSECOND).unwrap());
    assert_eq!(level(limiter, "psp"), 34_000);
    clock.advance(MICROSECOND);
    assert_eq!(level(limiter, "psp"), 35_200);
    // 36,400 would be 400 too many.
    clock.advance(minute);
    assert_eq!(level(limiter, "psp"), 36_000);
    clock.advance(minute);
    assert_eq!(level(limiter, "psp"), 36_000);
}

#[test]
fn a_burst_that_empties_the_bucket_recovers_in_exactly_thirty_minutes() {
    for limit in ["1200/min burst 36000", "1200/min burst 36000 stepwise"] {
        let (limiter, clock) = limiter(limit);
        let limiter = limiter.blocking();
        let burst = limiter.check_n("psp", 36_000);
        assert!(burst.is_allowed());
        assert_eq!(burst.full_after(), Duration::from_secs(30 * 60));
        clock.advance(burst.full_after().checked_sub(MICROSECOND).unwrap());
        assert!(level(limiter, "psp") < 36_000, "{limit}");
        clock.advance(MICROSECOND);
        assert_eq!(level(limiter, "psp"), 36_000, "{limit}");
    }
}

#[test]
fn a_debt_of_fifteen_is_paid_off_after_exactly_eight_minutes() {
    for limit in ["2/min burst 100", "2/min burst 100 stepwise"] {
        let (limiter, clock) = limiter(limit);
        let limiter = limiter.blocking();
        limiter.set_level("payer", 5).unwrap();
        let charged = limiter.charge("payer", 20).unwrap();
        assert_eq!(charged.level(), -15, "{limit}");
        assert_eq!(charged.remaining(), 0);
        let refused = limiter.check("payer");
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(480)));
        clock.advance(Duration::from_micros(480_000_000 - 1));
        assert!(!limiter.check("payer").is_allowed(), "{limit}");
        clock.advance(MICROSECOND);
        assert!(limiter.check("payer").is_allowed(), "{limit}");
    }
}

#[test]
fn a_window_counts_from_a_keys_first_request() {
    let (limiter, clock) = limiter("3/min window");
    let limiter = limiter.blocking();
    clock.advance(Duration::from_secs(59));
    for _ in 0..3 {
        assert!(limiter.check("late").is_allowed());
    }
    clock.advance(Duration::from_secs(59));
    let refused = limiter.check("late");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.check("late").remaining(), 2);
}

#[test]
fn awkward_rates_grant_exactly_what_they_promise() {
    // Tokens in a year of greedy taking: capacity plus the floor of rate × time.
    let year = Duration::from_secs(365 * 86_400);
    for (limit, capacity, per_period, period_us) in [
        ("1000003/s burst 10", 10, 1_000_003, 1_000_000_u128),
        ("7/s", 7, 7, 1_000_000),
        ("1/97 days", 1, 1, 97 * 86_400_000_000),
        ("600000000/s burst 7", 7, 600_000_000, 1_000_000),
        (
            "0.333333333/s burst 2",
            2,
            333_333_333,
            1_000_000_000_000_000,
        ),
    ] {
        let (limiter, clock) = limiter(limit);
        let limiter = limiter.blocking();
        limiter.charge("greedy", capacity).unwrap();
        // An hour in odd steps, settled by charging what has come in, so nothing is discarded.
        let mut granted = u128::from(capacity);
        let mut elapsed_us = 0;
        let mut step_us = 1;
        while elapsed_us < 3_600_000_000 {
            clock.advance(Duration::from_micros(step_us));
            elapsed_us += u128::from(step_us);
            step_us = step_us * 3 % 10_007 + 1;
            loop {
                let taken = limiter.take_up_to("greedy", u64::MAX).moved();
                granted += u128::from(taken);
                if taken == 0 {
                    break;
                }
            }
            let promised = u128::from(capacity) + per_period * elapsed_us / period_us;
            // A bucket that overflowed between two steps has discarded; never the reverse.
            assert!(granted <= promised, "{limit} after {elapsed_us} µs");
        }
        // Where the capacity is never overrun, it is exact.
        if per_period * 10_007 / period_us < u128::from(capacity) {
            let promised = u128::from(capacity) + per_period * elapsed_us / period_us;
            assert_eq!(granted, promised, "{limit}");
        }
        clock.advance(year);
        assert_eq!(limiter.take_up_to("greedy", u64::MAX).moved(), capacity);
    }
}
