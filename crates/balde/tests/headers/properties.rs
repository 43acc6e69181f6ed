//! For any limit and any requests the header fields report the decision, and waiting as they say
//! suffices.

use std::time::Duration;

use balde::http::headers::read;
use balde::{Clock, Limit, ManualClock, RateLimiter};
use proptest::prelude::*;

use super::{NOW_S, fields, now, number, strictly};

/// The largest integer that a structured field can hold.
const INTEGER_MAX: u64 = 999_999_999_999_999;

fn any_limit() -> impl Strategy<Value = Limit> {
    let numbers = (1..=1_000_u64, 1..=10_000_000_u64, 1..=2_000_u64);
    (numbers, 0..3_u8).prop_filter_map("must be exact", |((tokens, period_us, capacity), kind)| {
        let period = Duration::from_micros(period_us * 13);
        match kind {
            // Limiters refuse shorter windows.
            0 => Limit::window(tokens, period.max(Duration::from_secs(1))).ok(),
            1 => Limit::bucket_of(capacity, tokens, period).ok(),
            _ => Limit::bucket_of(capacity, tokens, period)
                .ok()
                .map(Limit::stepwise),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn fields_parse_strictly_and_report_the_decision(
        limit in any_limit(),
        calls in prop::collection::vec((1..40_u64, 0..5_000_000_u64), 1..40),
        name in "\\PC{0,20}",
    ) {
        let clock = ManualClock::at_us(NOW_S * 1_000_000);
        let limiter = RateLimiter::builder()
            .limit(limit)
            .clock(Clock::manual(&clock))
            .build()
            .unwrap();
        let limiter = limiter.blocking();
        for (n, pause_us) in calls {
            clock.advance(Duration::from_micros(pause_us));
            let decision = limiter.check_n("alice", n);
            let headers = fields(&[(&name, &decision)]);
            let up = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);

            let (policy, rate_limit) = (
                &strictly(&headers, "ratelimit-policy")[0],
                &strictly(&headers, "ratelimit")[0],
            );
            prop_assert_eq!(&policy.0, &rate_limit.0);
            let is = |at: &(String, i64), key: &str, value: u64| {
                at.0 == key && u64::try_from(at.1) == Ok(value)
            };
            prop_assert!(is(&policy.1[0], "q", limit.capacity()));
            prop_assert!(is(&policy.1[1], "w", up(Duration::from_micros(limit.fill_us()))));
            prop_assert!(is(&rate_limit.1[0], "r", decision.remaining()));
            let t = decision.retry_after().unwrap_or(decision.full_after());
            prop_assert!(is(&rate_limit.1[1], "t", up(t)));
            prop_assert_eq!(number(&headers, "x-ratelimit-limit"), limit.capacity());
            prop_assert_eq!(number(&headers, "x-ratelimit-remaining"), decision.remaining());

            let status = read(&headers, now());
            prop_assert_eq!(status.limits.len(), 2);
            prop_assert_eq!(status.limits[0].remaining, Some(decision.remaining()));
            prop_assert_eq!(status.retry_after.is_some(), decision.retry_after().is_some());

            let reset = number(&headers, "x-ratelimit-reset");
            if let Some(wait) = status.retry_after {
                // The wait suffices, and a second less would not.
                prop_assert!(wait >= Duration::from_secs(1));
                prop_assert_eq!(reset, wait.as_secs());
                let exact = decision.retry_after().unwrap();
                prop_assert!(exact <= wait && wait < exact + Duration::from_secs(1));
                clock.advance(wait);
                prop_assert!(limiter.check_n("alice", n).is_allowed());
            } else if decision.is_allowed() {
                // After the reset the same request passes again; with a reset of zero it passes now.
                clock.advance(Duration::from_secs(reset));
                prop_assert!(limiter.check_n("alice", n).is_allowed());
            }
        }
    }

    #[test]
    fn no_number_is_too_large_for_a_field(bits in 40..53_u32, less in 0..1_000_u64) {
        let capacity = (1_u64 << bits) - less;
        let limit = Limit::bucket_of(capacity, 1, Duration::from_micros(1));
        prop_assume!(limit.is_ok());
        let limiter = RateLimiter::new(limit.unwrap()).unwrap();
        let headers = fields(&[("big", &limiter.blocking().check("alice"))]);
        let policy = strictly(&headers, "ratelimit-policy");
        prop_assert_eq!(policy[0].1[0].1.cast_unsigned(), capacity.min(INTEGER_MAX));
        strictly(&headers, "ratelimit");
    }
}
