//! What a line waits for, and taking it from both buckets.

use std::time::Duration;

use crate::error::Refused;
use crate::health::Admission;
use crate::scheduler::{Core, Need, Source, Verdict};
use crate::settings::Oversize;

impl Core {
    /// What the first in the line of `index`, who still needs `n`, waits for.
    pub(crate) fn need(&mut self, index: u32, n: u64, now_us: u64) -> Need {
        let Self {
            settings,
            source,
            global,
            parts,
            ..
        } = self;
        let part = parts[index as usize]
            .as_mut()
            .expect("a partition in use is not forgotten");
        let (admission, change) = part.health.admit(&settings.degradation, now_us);
        let burst = part.bucket.burst().min(global.burst());
        let need = match admission {
            Admission::Refused { until_us } => {
                let retry_after = Duration::from_micros(until_us - now_us);
                Need::Refusal(Refused::CircuitOpen { retry_after })
            }
            _ if n > burst && settings.oversize == Oversize::Refuse => {
                Need::Refusal(Refused::TooLarge { n, burst })
            }
            Admission::Wait { until_us } => Need::Time { due_us: until_us },
            Admission::Yes => {
                let slice = n.min(burst);
                match (part.brake.wait_until(slice, now_us), source) {
                    (Some(due_us), _) => Need::Time { due_us },
                    (None, Source::Here) => match part.bucket.wait_us(slice, now_us) {
                        Some(us) => Need::Time {
                            due_us: now_us.saturating_add(us),
                        },
                        None => Need::Global { slice },
                    },
                    (None, Source::Elsewhere) if part.purse > 0 || n == 0 => Need::Global {
                        slice: n.min(part.purse),
                    },
                    (None, Source::Elsewhere) => Need::Feeding,
                }
            }
        };
        self.apply(index, change, now_us);
        need
    }

    pub(crate) fn global_wait_us(&mut self, n: u64, now_us: u64) -> Option<u64> {
        match self.source {
            Source::Here => {
                let lent = self.ahead.lent();
                let wait = self.global.wait_us(n.saturating_add(lent), now_us);
                if wait.is_some() && lent > 0 {
                    self.recall_all(now_us);
                    return self.global.wait_us(n, now_us);
                }
                wait
            }
            Source::Elsewhere => None,
        }
    }

    /// From both buckets, which have been asked.
    pub(crate) fn take(&mut self, index: u32, n: u64, now_us: u64) {
        let source = self.source;
        let part = self.part_mut(index);
        part.brake.took(n);
        match source {
            Source::Elsewhere => part.purse -= n,
            Source::Here => {
                let is_there = part.bucket.take(n, now_us) && self.global.take(n, now_us);
                debug_assert!(is_there, "both buckets were asked before");
            }
        }
    }

    pub(crate) fn granted(
        &mut self,
        index: u32,
        n: u64,
        since_us: Option<u64>,
        now_us: u64,
    ) -> Verdict {
        let part = self.part_mut(index);
        part.health.admitted(now_us);
        part.tally.granted += n;
        part.tally
            .waited(since_us.map_or(0, |since_us| now_us.saturating_sub(since_us)));
        Verdict::Granted {
            epoch: part.health.epoch(),
        }
    }

    pub(crate) fn give_back(&mut self, index: u32, n: u64, now_us: u64) {
        if n == 0 {
            return;
        }
        let source = self.source;
        let part = self.part_mut(index);
        match source {
            // Whoever is next in line has it; what nobody wants goes back where it came from.
            Source::Elsewhere => part.purse += n,
            Source::Here => {
                part.bucket.credit(n, now_us);
                self.global.credit(n, now_us);
            }
        }
    }
}
