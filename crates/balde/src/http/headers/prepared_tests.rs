//! A prepared writer writes the same fields as [`HeaderOptions::write`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::HeaderMap;
use proptest::prelude::*;

use super::options::{HeaderOptions, ResetFormat};
use crate::{Clock, Decision, Limit, ManualClock, RateLimiter, check_all_blocking};

const NOW_S: u64 = 1_800_000_000;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW_S)
}

/// Fields that a response may already have.
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
            // Limiters refuse shorter windows.
            0 => Limit::window(tokens, period.max(Duration::from_secs(1))).ok(),
            1 => Limit::bucket_of(capacity, tokens, period).ok(),
            _ => Limit::bucket_of(capacity, tokens, period)
                .ok()
                .map(Limit::stepwise),
        }
    })
}

#[test]
fn several_limits_are_written_the_same_with_and_without_preparation() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let limiter = |name: &str, limit: &str| {
        let builder = RateLimiter::builder().name(name).limit(limit);
        builder.clock(Clock::manual(&clock)).build().unwrap()
    };
    let user = limiter("per-user", "10/s");
    let tenant = limiter("per-tenant", "3/min");
    let all = limiter("everyone", "1000/s");
    let limiters = [&user, &tenant, &all];
    let assert_same = |decisions: &[Decision]| {
        let limits = limiters.map(|one| (one.name(), one.limit()));
        let (mut prepared, mut direct) = (HeaderMap::new(), HeaderMap::new());
        let writer = HeaderOptions::default().writer(limits);
        writer.write(&mut prepared, &[0, 1, 2], decisions, now());
        let names = limiters.iter().map(|one| one.name());
        let named: Vec<_> = names.zip(decisions).collect();
        HeaderOptions::default().write(&mut direct, &named, now());
        assert_eq!(prepared, direct);
        // Any part of them: a limit may not apply to a request.
        for limits in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2]] {
            let (mut prepared, mut direct) = (HeaderMap::new(), HeaderMap::new());
            let some: Vec<Decision> = limits.iter().map(|limit| decisions[*limit]).collect();
            let some_named: Vec<_> = limits.iter().map(|limit| named[*limit]).collect();
            writer.write(&mut prepared, limits, &some, now());
            HeaderOptions::default().write(&mut direct, &some_named, now());
            assert_eq!(prepared, direct);
        }
    };
    // Three requests pass, the fourth is refused by one limit, the fifth by two.
    for n in [1, 1, 1, 1, 8] {
        let requests = [
            user.request_n("a", n),
            tenant.request("t"),
            all.request("*"),
        ];
        assert_same(check_all_blocking(&requests).parts());
    }
}

#[test]
fn a_limit_that_was_replaced_is_written_as_it_is_now() {
    let limiter = RateLimiter::new("5/s").unwrap();
    let writer = HeaderOptions::default().writer([("a", limiter.limit())]);
    limiter.set_limit("50/s").unwrap();
    let decision = limiter.blocking().check("alice");
    let mut headers = HeaderMap::new();
    writer.write(&mut headers, &[0], &[decision], now());
    assert_eq!(headers["x-ratelimit-limit"], "50");
    assert_eq!(headers["ratelimit-policy"], "\"a\";q=50;w=1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_prepared_writer_writes_the_same_fields(
        limit in any_limit(),
        other_limit in any_limit(),
        calls in prop::collection::vec((1..40_u64, 0..5_000_000_u64), 1..20),
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
        let mut response = HeaderMap::new();
        for (field, value) in own {
            response.append(OWN[field], value.into());
        }
        let last = calls.len() - 1;
        for (index, (n, pause_us)) in calls.into_iter().enumerate() {
            if index == last {
                limiter.set_limit(other_limit).unwrap();
            }
            clock.advance(Duration::from_micros(pause_us));
            let decision = limiter.blocking().check_n("alice", n);
            let (mut direct, mut prepared) = (response.clone(), response.clone());
            options.write(&mut direct, &[(name.as_str(), &decision)], now());
            writer.write(&mut prepared, &[0], &[decision], now());
            // Equal as maps: each name has the same values in the same order.
            prop_assert_eq!(&prepared, &direct);
        }
    }
}
