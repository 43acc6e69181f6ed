//! The import itself: a few writers for each partition, all behind one throttler.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde::Clock;
use balde_throttle::{
    Degradation, Outcome, Progress, ProgressReport, Refusal, Report, RunError, Throttler,
};
use tokio::time::Instant;

use super::store::{PARTITIONS, Store, WriteError};
use super::uniformity::{SecondCounts, Uniformity};

pub(crate) const RECORDS_DEFAULT: u64 = 5_000_000;

/// Records in a batch: half the burst of a partition. At its floor a partition has a burst of ten, and
/// saves up for a batch.
const BATCH: u64 = 50;
const WRITERS: usize = 3;

/// A little below what the store allows, because the store counts what arrives and does not wait.
const RATE: u64 = 20_000;
const PARTITION_RATE: u64 = 1_000;

#[derive(Clone)]
pub(crate) struct Import(Arc<Inner>);

struct Inner {
    records: u64,
    start: Instant,
    store: Store,
    throttler: Throttler,
    names: Vec<String>,
    /// The next batch of each partition.
    cursors: Vec<AtomicU64>,
    progress: Progress,
    /// Records that left for the store, by second, until the first partition has no more.
    left: SecondCounts,
    failures: AtomicU64,
    pushbacks: AtomicU64,
    refusals: AtomicU64,
}

impl Import {
    pub(crate) fn new(records: u64) -> Self {
        let throttler = Throttler::builder()
            .name("bulk-import")
            .rate(RATE)
            .partition_rate(PARTITION_RATE)
            .degradation(
                Degradation::strict()
                    .recovery(Duration::from_secs(2))
                    .reset(Duration::from_secs(5)),
            )
            .clock(Clock::tokio())
            .build()
            .expect("these settings make sense");
        Self(Arc::new(Inner {
            records,
            start: Instant::now(),
            store: Store::new(),
            throttler,
            names: (0..PARTITIONS).map(|at| format!("p{at:02}")).collect(),
            cursors: (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect(),
            progress: Progress::new(records, 0),
            left: SecondCounts::default(),
            failures: AtomicU64::new(0),
            pushbacks: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        }))
    }

    pub(crate) async fn run(&self) -> Summary {
        let writers: Vec<_> = (0..PARTITIONS * WRITERS)
            .map(|writer| tokio::spawn(self.clone().write_all(writer % PARTITIONS)))
            .collect();
        for writer in writers {
            writer.await.expect("no writer panics");
        }
        let this = &self.0;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Summary {
            records: self.progress().done,
            took: this.start.elapsed(),
            failures: read(&this.failures),
            pushbacks: read(&this.pushbacks),
            refusals: read(&this.refusals),
            uniformity: this.left.uniformity(RATE),
        }
    }

    /// Takes batches of a partition until there are no more.
    async fn write_all(self, partition: usize) {
        while let Some(batch) = self.next_batch(partition) {
            while !self.write(partition, &batch).await {}
            let n = batch.len() as u64;
            self.0.progress.add_done(n);
        }
        self.0.left.end(self.0.start.elapsed());
    }

    /// The generator: record `i` belongs to partition `i mod 40`.
    fn next_batch(&self, partition: usize) -> Option<Vec<u64>> {
        let batch = self.0.cursors[partition].fetch_add(1, Ordering::Relaxed);
        let step = PARTITIONS as u64;
        let records: Vec<u64> = (batch * BATCH..(batch + 1) * BATCH)
            .map(|row| row * step + partition as u64)
            .take_while(|record| *record < self.0.records)
            .collect();
        (!records.is_empty()).then_some(records)
    }

    /// Returns true if the batch was written. Otherwise it must be retried.
    async fn write(&self, partition: usize, batch: &[u64]) -> bool {
        let this = &self.0;
        let n = batch.len() as u64;
        // The work begins when its tokens are granted.
        let work = async {
            this.left.count(this.start.elapsed(), n);
            this.store.write(partition, batch).await
        };
        let name = &this.names[partition];
        let outcome = this.throttler.run_with(name, n, work, report).await;
        match outcome {
            Ok(()) => return true,
            Err(RunError::Failed(WriteError::Down)) => {
                this.progress.add_error();
                this.failures.fetch_add(1, Ordering::Relaxed)
            }
            Err(RunError::Failed(WriteError::OverLimit { .. })) => {
                this.pushbacks.fetch_add(1, Ordering::Relaxed)
            }
            Err(RunError::Refused(Refusal::CircuitOpen { retry_after })) => {
                tokio::time::sleep(retry_after).await;
                this.refusals.fetch_add(1, Ordering::Relaxed)
            }
            Err(RunError::Refused(refusal)) => panic!("{refusal}"),
        };
        false
    }

    pub(crate) fn throttler(&self) -> &Throttler {
        &self.0.throttler
    }

    pub(crate) fn progress(&self) -> ProgressReport {
        self.0.progress.report(self.0.start.elapsed())
    }

    /// How many records of a partition were written, and their sum.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the test reads it"))]
    pub(crate) fn stored(&self, partition: usize) -> (u64, u64) {
        let stored = self.0.store.partition(partition);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&stored.records), read(&stored.sum))
    }
}

fn report(result: &Result<(), WriteError>) -> Report {
    match result {
        Ok(()) => Outcome::Success.into(),
        Err(WriteError::Down) => Outcome::Error.into(),
        Err(WriteError::OverLimit { retry_after }) => {
            Report::from(Outcome::Pushback).retry_after(*retry_after)
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) records: u64,
    pub(crate) took: Duration,
    pub(crate) failures: u64,
    pub(crate) pushbacks: u64,
    pub(crate) refusals: u64,
    pub(crate) uniformity: Option<Uniformity>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took_ms = u64::try_from(self.took.as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        writeln!(f, "records    {}", self.records)?;
        writeln!(f, "time       {:.1?}", self.took)?;
        writeln!(f, "mean rate  {}/s", self.records * 1_000 / took_ms)?;
        if let Some(uniformity) = &self.uniformity {
            writeln!(f, "uniformity {uniformity}")?;
        }
        writeln!(f, "failed     {} batches, retried", self.failures)?;
        writeln!(f, "over limit {} batches, retried", self.pushbacks)?;
        write!(f, "refused    {} times by an open circuit", self.refusals)
    }
}
