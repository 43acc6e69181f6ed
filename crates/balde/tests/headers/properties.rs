//! Any limit, any requests: what is written means the decision, and its advice is good.

use std::time::Duration;

use balde::http::headers::{HeaderOptions, INTEGER_MAX, ResetFormat, read};
use balde::{Clock, Limit, ManualClock, RateLimiter};
use http::HeaderMap;
use proptest::prelude::*;

use super::{NOW_S, fields, now, number, strictly};

/// Fields that an answer may have already.
const OWN: [&str; 12] = [
    "content-type",
    "content-length",
    "set-cookie",
    "x-ratelimit-limit",
    "x-ratelimit-reset",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "x-a",
    "x-b",
    "x-c",
    "x-d",
];

fn any_limit() -> impl Strategy<Value = Limit> {
    let numbers = (1..=1_000_u64, 1..=10_000_000_u64, 1..=2_000_u64);
    (numbers, 0..3_u8).prop_filter_map("must be exact", |((tokens, period_us, capacity), kind)| {
        let period = Duration::from_micros(period_us * 13);
        match kind {
            0 => Limit::window(tokens, period).ok(),
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
    fn what_is_made_ready_beforehand_writes_the_same(
        limit in any_limit(),
        other_limit in any_limit(),
        asks in prop::collection::vec((1..40_u64, 0..5_000_000_u64), 1..20),
        own in prop::collection::vec((0..OWN.len(), 0..9_u16), 0..20),
        name in "\\PC{0,20}",
        has in (any::<bool>(), any::<bool>()),
        is_unix in any::<bool>(),
    ) {
        let clock = ManualClock::at_us(NOW_S * 1_000_000);
        let limiter = RateLimiter::builder().limit(limit).clock(Clock::manual(&clock));
        let limiter = limiter.build().unwrap();
        let mut options = HeaderOptions::default();
        if is_unix {
            options = options.reset(ResetFormat::UnixTime);
        }
        if !has.0 {
            options = options.without_x_fields();
        }
        if !has.1 {
            options = options.without_ietf_fields();
        }
        let writer = options.writer([(name.as_str(), limit)]);
        let mut answer = HeaderMap::new();
        for (field, value) in own {
            answer.append(OWN[field], value.into());
        }
        let last = asks.len() - 1;
        for (index, (n, pause_us)) in asks.into_iter().enumerate() {
            if index == last {
                limiter.set_limit(other_limit).unwrap();
            }
            clock.advance(Duration::from_micros(pause_us));
            let decision = limiter.blocking().check_n("alice", n);
            let (mut at_once, mut ready) = (answer.clone(), answer.clone());
            options.write(&mut at_once, &[(name.as_str(), &decision)], now());
            writer.write(&mut ready, &[decision], now());
            // Equal as maps: each name has the same values in the same order.
            prop_assert_eq!(&ready, &at_once);
        }
    }

    #[test]
    fn fields_parse_strictly_and_mean_the_decision(
        limit in any_limit(),
        asks in prop::collection::vec((1..40_u64, 0..5_000_000_u64), 1..40),
        name in "\\PC{0,20}",
    ) {
        let clock = ManualClock::at_us(NOW_S * 1_000_000);
        let limiter = RateLimiter::builder()
            .limit(limit)
            .clock(Clock::manual(&clock))
            .build()
            .unwrap();
        let limiter = limiter.blocking();
        for (n, pause_us) in asks {
            clock.advance(Duration::from_micros(pause_us));
            let decision = limiter.check_n("alice", n);
            let headers = fields(&[(&name, &decision)]);
            let up = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);

            let (policy, standing) = (
                &strictly(&headers, "ratelimit-policy")[0],
                &strictly(&headers, "ratelimit")[0],
            );
            prop_assert_eq!(&policy.0, &standing.0);
            let is = |at: &(String, i64), key: &str, value: u64| {
                at.0 == key && u64::try_from(at.1) == Ok(value)
            };
            prop_assert!(is(&policy.1[0], "q", limit.capacity()));
            prop_assert!(is(&policy.1[1], "w", up(Duration::from_micros(limit.fill_us()))));
            prop_assert!(is(&standing.1[0], "r", decision.remaining()));
            let t = decision.retry_after().unwrap_or(decision.full_after());
            prop_assert!(is(&standing.1[1], "t", up(t)));
            prop_assert_eq!(number(&headers, "x-ratelimit-limit"), limit.capacity());
            prop_assert_eq!(number(&headers, "x-ratelimit-remaining"), decision.remaining());

            let reported = read(&headers, now());
            prop_assert_eq!(reported.limits.len(), 2);
            prop_assert_eq!(reported.limits[0].remaining, Some(decision.remaining()));
            prop_assert_eq!(reported.retry_after.is_some(), decision.retry_after().is_some());

            let reset = number(&headers, "x-ratelimit-reset");
            if let Some(wait) = reported.retry_after {
                // The advice is enough, and a second less would not be.
                prop_assert!(wait >= Duration::from_secs(1));
                prop_assert_eq!(reset, wait.as_secs());
                let exact = decision.retry_after().unwrap();
                prop_assert!(exact <= wait && wait < exact + Duration::from_secs(1));
                clock.advance(wait);
                prop_assert!(limiter.check_n("alice", n).is_allowed());
            } else if decision.is_allowed() {
                // After the reset the same passes again, where it fits at all; a bucket whose reset
                // is zero lets it pass now.
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
