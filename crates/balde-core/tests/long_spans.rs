//! Awkward rates grant exactly what they promise: a taker who always takes what there is gets
//! capacity + ⌊rate × T⌋ tokens in all, after microseconds as after years. Never one more or less.

use balde_core::{Command, Limit, State};
use num_bigint::BigInt;

const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;
const YEAR_US: u64 = 365 * DAY_US;

/// The limit as written; tokens and microseconds as a reader of it would compute them; and a step
/// short enough for the bucket, with a fraction of a token left over, not to overflow.
const RATES: [(&str, u64, u64, u64); 7] = [
    ("1000003/s burst 1000004", 1_000_003, SECOND_US, SECOND_US),
    ("7/s burst 10", 7, SECOND_US, SECOND_US),
    ("1/97days burst 5", 1, 97 * DAY_US, 4 * 97 * DAY_US),
    (
        "600000000/s burst 600000000",
        600_000_000,
        SECOND_US,
        SECOND_US,
    ),
    ("3/7s burst 4", 3, 7 * SECOND_US, 5 * SECOND_US),
    (
        "0.333333333/s burst 3",
        333_333_333,
        1_000_000_000 * SECOND_US,
        5 * SECOND_US,
    ),
    ("4294967291/us burst 8589934582", 4_294_967_291, 1, 1),
];

/// Takes all available tokens, again and again, and counts them.
struct Taker {
    limit: Limit,
    state: Option<State>,
    total: BigInt,
}

impl Taker {
    fn new(text: &str) -> Self {
        Self {
            limit: text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}")),
            state: None,
            total: BigInt::ZERO,
        }
    }

    fn take_all(&mut self, now_us: u64) -> u64 {
        let decision = self
            .limit
            .apply(self.state, Command::TakeUpTo { n: u64::MAX }, now_us);
        self.state = decision.state();
        self.total += decision.moved();
        decision.moved()
    }
}

/// Steps of awkward sizes, always the same ones.
fn awkward_steps(step_max_us: u64) -> impl Iterator<Item = u64> {
    let mut seed: u64 = 0x9E37_79B9_7F4A_7C15;
    std::iter::repeat_with(move || {
        // Numerical Recipes' generator: what matters is only that the sizes share no factor.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        match seed >> 60 {
            0 => 1,
            1 => step_max_us,
            2..=5 => ((seed >> 20) % step_max_us.isqrt().max(1)) + 1,
            _ => ((seed >> 20) % step_max_us) + 1,
        }
    })
}

fn promised(capacity: u64, tokens: u64, period_us: u64, elapsed_us: u64) -> BigInt {
    capacity + BigInt::from(elapsed_us) * tokens / period_us
}

#[test]
fn a_greedy_taker_gets_exactly_what_the_rate_promises() {
    for (text, tokens, period_us, step_max_us) in RATES {
        let start_us = 1_760_000_123_456_789;
        let mut taker = Taker::new(text);
        taker.take_all(start_us);
        let mut now_us = start_us;
        for step_us in awkward_steps(step_max_us).take(50_000) {
            now_us += step_us;
            taker.take_all(now_us);
            let due = promised(taker.limit.capacity(), tokens, period_us, now_us - start_us);
            assert_eq!(taker.total, due, "{text} after {} µs", now_us - start_us);
        }
    }
}

#[test]
fn one_token_at_a_time_comes_exactly_when_it_is_due() {
    for (text, tokens, period_us, _) in RATES {
        let mut taker = Taker::new(text);
        taker.take_all(0);
        for nth in 1..=20_000_u64 {
            // The nth token is due at the first microsecond t with ⌊t × tokens / period⌋ ≥ n.
            let due_us = (u128::from(nth) * u128::from(period_us)).div_ceil(tokens.into());
            let due_us = u64::try_from(due_us).unwrap();
            let capacity = taker.limit.capacity();
            let before = promised(capacity, tokens, period_us, due_us - 1);
            assert!(before < capacity + BigInt::from(nth));

            let early = taker
                .limit
                .apply(taker.state, Command::Take { n: 1 }, due_us - 1);
            assert_eq!(
                early.is_allowed(),
                taker.total < before,
                "{text}: token {nth}"
            );
            taker.take_all(due_us);
            let due = promised(capacity, tokens, period_us, due_us);
            assert_eq!(taker.total, due, "{text}: token {nth}");
            assert!(due >= capacity + BigInt::from(nth));
        }
    }
}

#[test]
fn a_single_step_of_years_brings_the_floor_of_rate_times_time_or_fills_the_bucket() {
    for (text, tokens, period_us, _) in RATES {
        for elapsed_us in [
            1,
            YEAR_US,
            YEAR_US + 1,
            7 * YEAR_US - 1,
            142 * YEAR_US,
            1 << 62,
        ] {
            let mut taker = Taker::new(text);
            taker.take_all(12_345);
            let brought = taker.take_all(12_345 + elapsed_us);
            let capacity = BigInt::from(taker.limit.capacity());
            let due = promised(0, tokens, period_us, elapsed_us).min(capacity);
            assert_eq!(BigInt::from(brought), due, "{text} after {elapsed_us} µs");
        }
    }
}

/// Stepwise, the sum is capacity + tokens × the boundaries passed.
#[test]
fn a_stepwise_bucket_grants_a_whole_refill_for_every_boundary() {
    for (text, tokens, period_us, _) in RATES {
        let mut taker = Taker::new(text);
        taker.limit = taker.limit.stepwise();
        if taker.limit.capacity() < tokens {
            continue;
        }
        let start_us = 3 * period_us + period_us / 3;
        taker.take_all(start_us);
        let mut now_us = start_us;
        for step_us in awkward_steps(period_us).take(20_000) {
            now_us += step_us;
            taker.take_all(now_us);
            let boundaries = now_us / period_us - start_us / period_us;
            let due = taker.limit.capacity() + BigInt::from(boundaries) * tokens;
            assert_eq!(taker.total, due, "{text} after {} µs", now_us - start_us);
        }
    }
}
