//! The throttler in virtual time: tokio's clock is paused while any task can run.

mod accuracy;
mod bulk_job;
mod failures;
mod import_example;
#[cfg(all(feature = "prometheus", feature = "tower"))]
mod layer;
#[cfg(all(feature = "options", feature = "prometheus"))]
mod options;
mod pace;
mod queue;
mod reports;
mod retry;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use balde::Clock;
use balde_throttle::{Throttler, ThrottlerBuilder};
use tokio::time::Instant;

fn builder() -> ThrottlerBuilder {
    Throttler::builder().clock(Clock::tokio())
}

/// The grants of a saturated run: microseconds from the start, and tokens.
#[derive(Clone, Debug, Default)]
struct Grants(Vec<(u64, u64)>);

impl Grants {
    /// Keeps `tasks` busy acquiring `n` tokens of `partition` for `runs_for`.
    async fn saturate(
        throttler: &Throttler,
        partition: &'static str,
        tasks: usize,
        n: u64,
        runs_for: Duration,
    ) -> Self {
        let start = Instant::now();
        let is_over = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..tasks)
            .map(|_| {
                let (throttler, is_over) = (throttler.clone(), Arc::clone(&is_over));
                tokio::spawn(async move {
                    let mut grants = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        if throttler.acquire(partition, n).await.is_err() {
                            break;
                        }
                        let at_us = u64::try_from(start.elapsed().as_micros()).unwrap();
                        grants.push((at_us, n));
                    }
                    grants
                })
            })
            .collect();
        tokio::time::sleep(runs_for).await;
        is_over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.await.unwrap());
        }
        all.retain(|(at_us, _)| u128::from(*at_us) < runs_for.as_micros());
        all.sort_unstable();
        Self(all)
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|(_, n)| n).sum()
    }

    /// The most that was granted in any interval of `window_us`.
    fn most_in_any(&self, window_us: u64) -> u64 {
        let (mut most, mut sum, mut from) = (0, 0, 0);
        for (at_us, n) in &self.0 {
            sum += n;
            while self.0[from].0 + window_us < *at_us {
                sum -= self.0[from].1;
                from += 1;
            }
            most = most.max(sum);
        }
        most
    }

    fn between(&self, from: Duration, to: Duration) -> u64 {
        let (from, to) = (from.as_micros(), to.as_micros());
        let within = |at_us: u64| (from..to).contains(&u128::from(at_us));
        let grants = self.0.iter().filter(|(at_us, _)| within(*at_us));
        grants.map(|(_, n)| n).sum()
    }
}
