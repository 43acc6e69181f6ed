//! What the first waiter of a queue waits for, and taking tokens from both buckets.

use std::time::Duration;

use crate::error::Refusal;
use crate::health::Admission;
use crate::scheduler::{Need, Scheduler, TokenSource};
use crate::settings::Oversize;

impl Scheduler {
    /// What a request to partition `index` that still lacks `n` tokens waits for.
    pub(crate) fn need(&mut self, index: u32, n: u64, now_us: u64) -> Need {
        let Self {
            settings,
            source,
            global,
            partitions,
            ..
        } = self;
        let partition = partitions[index as usize]
            .as_mut()
            .expect("a partition in use is not removed");
        let (admission, change) = partition.health.admit(&settings.degradation, now_us);
        let burst = partition.bucket.burst().min(global.burst());
        let need = match admission {
            Admission::Refused { until_us } => {
                let retry_after = Duration::from_micros(until_us - now_us);
                Need::Refusal(Refusal::CircuitOpen { retry_after })
            }
            _ if n > burst && settings.oversize == Oversize::Refuse => {
                Need::Refusal(Refusal::TooLarge { n, burst })
            }
            Admission::Wait { until_us } => Need::Time { due_us: until_us },
            Admission::Yes => {
                let slice = n.min(burst);
                match (partition.hints.wait_until(slice, now_us), source) {
                    (Some(due_us), _) => Need::Time { due_us },
                    (None, TokenSource::Local) => match partition.bucket.wait_us(slice, now_us) {
                        Some(us) => Need::Time {
                            due_us: now_us.saturating_add(us),
                        },
                        None => Need::GlobalTokens { slice },
                    },
                    (None, TokenSource::Remote) if partition.prefetched > 0 || n == 0 => {
                        Need::GlobalTokens {
                            slice: n.min(partition.prefetched),
                        }
                    }
                    (None, TokenSource::Remote) => Need::RemoteTokens,
                }
            }
        };
        self.apply(index, change, now_us);
        need
    }

    pub(crate) fn global_wait_us(&mut self, n: u64, now_us: u64) -> Option<u64> {
        match self.source {
            TokenSource::Local => {
                let reserved = self.prefetch.reserved();
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
