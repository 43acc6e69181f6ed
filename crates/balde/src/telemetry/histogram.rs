//! A lock-free histogram of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use super::unit::Unit;

/// Upper bounds in nanoseconds, from checks in memory to checks that wait for Redis.
const BOUNDS_NS: [u32; 18] = [
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    10_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
];

/// Longer durations are counted as this one, so that the sum does not overflow for centuries.
const LONGEST: Duration = Duration::from_secs(60);

/// Counts durations by upper bound.
#[derive(Default)]
pub(crate) struct Histogram {
    /// The last one counts durations above all bounds.
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, took: Duration) {
        let ns = u64::try_from(took.min(LONGEST).as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|bound| u64::from(*bound) < ns);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(super) fn encode(&self, mut encoder: MetricEncoder<'_>, unit: &Unit) -> std::fmt::Result {
        let number = |ns: u64| unit.number(Duration::from_nanos(ns));
        let bounds = BOUNDS_NS.iter().map(|ns| number(u64::from(*ns)));
        let counts = self.buckets.iter().map(|n| n.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
        // The count is the sum of the buckets: a separate counter could disagree with them.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = number(self.sum_ns.load(Ordering::Relaxed));
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for ns in [0, 50, 51, 100_000_000, 100_000_001, u64::MAX] {
            histogram.observe(Duration::from_nanos(ns));
        }
        let counts = histogram.buckets.each_ref();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts[0], 2);
        assert_eq!(counts[1], 1);
        assert_eq!(counts[17], 1);
        assert_eq!(counts[18], 2);
    }
}
