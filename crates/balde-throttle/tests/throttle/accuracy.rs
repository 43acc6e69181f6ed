//! How exactly the rate is kept under saturation.

use std::time::Duration;

use super::{Grants, builder};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_saturated_minute_is_exact_to_a_thousandth_and_even_from_second_to_second() {
    for (rate, n) in [
        (2_000, 1),
        (2_000, 7),
        (1_000, 1),
        (12_345, 50),
        (20_000, 50),
        (997, 1),
    ] {
        // The partition is the limit in one run and the global bucket in the other.
        for (global, partition) in [(rate * 10, rate), (rate, rate * 10)] {
            let throttler = builder()
                .rate(global)
                .partition_rate(partition)
                .build()
                .unwrap();
            let minute = 60 * SECOND;
            let grants = Grants::saturate(&throttler, "store", 40, n, minute).await;
            let burst = rate / 10;

            let total = grants.total();
            let expected = rate * 60;
            assert!(
                total.abs_diff(expected) * 1_000 <= expected,
                "{rate}/s, {n} each: {total} of {expected}"
            );
            assert!(total <= expected + burst);
            let most = grants.most_in_any(1_000_000);
            assert!(
                most <= rate + burst.max(n),
                "{rate}/s: {most} in one second"
            );

            // The first second begins with an empty bucket like all others.
            let seconds: Vec<u64> = (0..60)
                .map(|second| grants.between(second * SECOND, (second + 1) * SECOND))
                .collect();
            let mean = total / 60;
            let squares: u64 = seconds.iter().map(|s| s.abs_diff(mean).pow(2)).sum();
            // Standard deviation at most 0.3 % of the rate, without a root: its square.
            let bound = (rate * 3) * (rate * 3);
            assert!(
                squares / 60 * 1_000_000 <= bound,
                "{rate}/s, {n} each: {seconds:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_second_brings_no_more_than_the_rate() {
    let throttler = builder().rate(2_000).partition_rate(2_000).build().unwrap();
    assert!(
        throttler.try_acquire("store", 1).is_err(),
        "it starts empty"
    );
    let grants = Grants::saturate(&throttler, "store", 10, 1, SECOND).await;
    assert!(grants.total() <= 2_000, "{}", grants.total());
    assert!(grants.total() >= 1_990, "{}", grants.total());
}

#[tokio::test(start_paused = true)]
async fn partitions_share_a_scarce_global_rate_evenly_whatever_they_ask_for_at_a_time() {
    let throttler = builder().rate(1_000).partition_rate(1_000).build().unwrap();
    // One partition has many waiters that came first, another takes many tokens at a time.
    let crowd = Grants::saturate(&throttler, "crowd", 500, 1, 30 * SECOND);
    let large = Grants::saturate(&throttler, "large", 2, 90, 30 * SECOND);
    let small = Grants::saturate(&throttler, "small", 2, 1, 30 * SECOND);
    let (crowd, large, small) = tokio::join!(crowd, large, small);
    for grants in [&crowd, &large, &small] {
        let total = grants.total();
        assert!((9_500..=10_500).contains(&total), "{total} of 10,000");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_larger_than_a_partitions_burst_keep_the_global_rate_and_burst() {
    // 600/s in all with a burst of 60, three partitions of 300/s with a burst of 30, batches of 50.
    let throttler = builder().rate(600).partition_rate(300).build().unwrap();
    let minute = 60 * SECOND;
    let a = Grants::saturate(&throttler, "a", 10, 50, minute);
    let b = Grants::saturate(&throttler, "b", 10, 50, minute);
    let c = Grants::saturate(&throttler, "c", 10, 50, minute);
    let (a, b, c) = tokio::join!(a, b, c);
    for partition in [&a, &b, &c] {
        let most = partition.most_in_any(1_000_000);
        assert!(most <= 300 + 50, "{most} of a partition in one second");
    }
    let mut all = Grants([a.0, b.0, c.0].concat());
    all.0.sort_unstable();
    let most = all.most_in_any(1_000_000);
    assert!(most <= 660, "{most} in one second");
    assert!(all.total() >= 600 * 60 - 60, "{}", all.total());
}
