//! What the first waiter of a queue waits for, and taking tokens from both buckets.

use std::time::Duration;

use crate::error::Refusal;
use crate::health::Admission;
use crate::scheduler::{Need, Scheduler, TokenSource};
use crate::settings::Oversize;

impl Scheduler {
    /// What a request to partition `index` that still lacks `n` tokens waits for. It must be the first in
    /// line: the partition's bucket is stretched for it.
    pub(crate) fn need(&mut self, index: u32, n: u64, now_us: u64) -> Need {
        let (admission, refusal) = self.admission(index, n, now_us);
        if let Some(refusal) = refusal {
            return Need::Refusal(refusal);
        }
        if let Admission::Wait { until_us } = admission {
            return Need::Time { due_us: until_us };
        }
        let source = self.source;
        let partition = self.partition_mut(index);
        // Tokens from the shared store are collected in slices, which leave together.
        let needed = match source {
            TokenSource::Local => n,
            TokenSource::Remote => n.min(partition.prefetched),
        };
        if let Some(due_us) = partition.hints.wait_until(needed, now_us) {
            return Need::Time { due_us };
        }
        match source {
            TokenSource::Remote if partition.prefetched > 0 || n == 0 => {
                Need::GlobalTokens { slice: needed }
            }
            TokenSource::Remote => Need::RemoteTokens,
            TokenSource::Local => {
                if !partition.bucket.stretch(n, now_us) {
                    let burst = partition.bucket.burst();
                    return Need::Refusal(Refusal::TooLarge { n, burst });
                }
                let wait_us = partition.bucket.wait_us(n, now_us);
                // Both buckets save up at the same time, unless others need the global one.
                self.global.stretch_up(n, now_us);
                match wait_us {
                    Some(us) => Need::Time {
                        due_us: now_us.saturating_add(us),
                    },
                    None => Need::GlobalTokens { slice: n },
                }
            }
        }
    }

    /// Forgets what was saved beyond the burst, where no request waits for it.
    pub(crate) fn relax(&mut self, index: u32, now_us: u64) {
        let partition = self.partition_mut(index);
        if partition.queue.is_empty() {
            partition.bucket.stretch(0, now_us);
        }
        if self.waiting == 0 {
            self.global.stretch(0, now_us);
        }
    }

    /// Why `n` tokens will not be granted, regardless of the queue.
    pub(crate) fn refusal(&mut self, index: u32, n: u64, now_us: u64) -> Option<Refusal> {
        self.admission(index, n, now_us).1
    }

    fn admission(&mut self, index: u32, n: u64, now_us: u64) -> (Admission, Option<Refusal>) {
        let Self {
            settings,
            global,
            partitions,
            ..
        } = self;
        let partition = partitions[index as usize]
            .as_mut()
            .expect("a partition in use is not removed");
        let (admission, change) = partition.health.admit(&settings.degradation, now_us);
        let burst = partition.bucket.burst().min(global.burst());
        let refusal = match admission {
            Admission::Refused { until_us } => Some(Refusal::CircuitOpen {
                retry_after: Duration::from_micros(until_us - now_us),
            }),
            _ if n > burst && settings.oversize == Oversize::Refuse => {
                Some(Refusal::TooLarge { n, burst })
            }
            _ => None,
        };
        self.apply(index, change, now_us);
        (admission, refusal)
    }

    /// How long until the global bucket has `n` tokens, or `None` if it has them. The request must be
    /// the next that is served: the bucket is stretched for it.
    pub(crate) fn global_wait_us(&mut self, n: u64, now_us: u64) -> Option<u64> {
        match self.source {
            TokenSource::Local => {
                let reserved = self.prefetch.reserved();
                self.global.stretch(n, now_us);
                let wait = self.global.wait_us(n.saturating_add(reserved), now_us);
                if wait.is_some() && reserved > 0 {
                    self.reclaim_all(now_us);
                    return self.global.wait_us(n, now_us);
                }
                wait
            }
            TokenSource::Remote => None,
        }
    }

    /// Takes `n` tokens from both buckets. The caller has checked that they have them.
    pub(crate) fn take(&mut self, index: u32, n: u64, now_us: u64) {
        let source = self.source;
        let partition = self.partition_mut(index);
        partition.hints.record_taken(n);
        match source {
            TokenSource::Remote => partition.prefetched -= n,
            TokenSource::Local => {
                let is_taken = partition.bucket.take(n, now_us) && self.global.take(n, now_us);
                debug_assert!(is_taken, "both buckets were checked before");
            }
        }
    }

    /// Counts a grant of `n` tokens, and returns the partition's epoch.
    pub(crate) fn record_grant(
        &mut self,
        index: u32,
        n: u64,
        since_us: Option<u64>,
        now_us: u64,
    ) -> u32 {
        let partition = self.partition_mut(index);
        partition.health.record_admitted(now_us);
        partition.counters.granted += n;
        let waited_us = since_us.map_or(0, |since_us| now_us.saturating_sub(since_us));
        partition.counters.record_wait(waited_us);
        partition.health.epoch()
    }

    pub(crate) fn give_back(&mut self, index: u32, n: u64, now_us: u64) {
        if n == 0 {
            return;
        }
        let source = self.source;
        let partition = self.partition_mut(index);
        match source {
            // For the next waiter. The fetching task returns what no waiter needs to the store.
            TokenSource::Remote => partition.prefetched += n,
            TokenSource::Local => {
                partition.bucket.credit(n, now_us);
                self.global.credit(n, now_us);
            }
        }
    }
}
