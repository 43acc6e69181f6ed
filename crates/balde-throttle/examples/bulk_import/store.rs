//! The store that the import writes to: forty partitions, a limit for each and one for all, and outages.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde::{Clock, RateLimiter};
use tokio::time::Instant;

pub(crate) const PARTITIONS: usize = 40;

/// How long it takes to write one batch.
const LATENCY: Duration = Duration::from_millis(8);

/// Which partitions fail when, in seconds from the start.
const OUTAGES: [(usize, Range<u64>); 4] = [(3, 20..80), (17, 60..120), (29, 5..9), (30, 5..9)];

pub(crate) struct Store {
    start: Instant,
    all: RateLimiter,
    each: RateLimiter,
    partitions: Vec<Stored>,
}

/// What was written to a partition: enough to check that every record was, once.
#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) records: AtomicU64,
    pub(crate) sum: AtomicU64,
}

/// Why the store did not write a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteError {
    OverLimit { retry_after: Duration },
    Down,
}

impl Store {
    pub(crate) fn new() -> Self {
        let limiter = |limit: &str| {
            let builder = RateLimiter::builder().limit(limit).clock(Clock::tokio());
            builder.build().expect("a limit")
        };
        Self {
            start: Instant::now(),
            all: limiter("22000/s burst 4000"),
            each: limiter("1100/s burst 200"),
            partitions: (0..PARTITIONS).map(|_| Stored::default()).collect(),
        }
    }

    pub(crate) fn partition(&self, partition: usize) -> &Stored {
        &self.partitions[partition]
    }

    /// Writes a batch, or none of it.
    pub(crate) async fn write(&self, partition: usize, records: &[u64]) -> Result<(), WriteError> {
        tokio::time::sleep(LATENCY).await;
        let now_s = self.start.elapsed().as_secs();
        let is_down =
            |(down, when): &(usize, Range<u64>)| *down == partition && when.contains(&now_s);
        if OUTAGES.iter().any(is_down) {
            return Err(WriteError::Down);
        }
        let key = partition.to_string();
        let n = records.len() as u64;
        let requests = [self.each.request_n(&key, n), self.all.request_n("all", n)];
        let taken = balde::check_all_blocking(&requests);
        if !taken.is_allowed() {
            let retry_after = taken.retry_after().unwrap_or(Duration::from_secs(1));
            return Err(WriteError::OverLimit { retry_after });
        }
        let stored = &self.partitions[partition];
        stored.records.fetch_add(n, Ordering::Relaxed);
        stored
            .sum
            .fetch_add(records.iter().sum(), Ordering::Relaxed);
        Ok(())
    }
}
