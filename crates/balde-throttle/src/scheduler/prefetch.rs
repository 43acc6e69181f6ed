//! Tokens prefetched per partition, so that most requests take no lock and read no clock: they cost one
//! compare-and-swap.
//!
//! A request that is granted under the lock while no other waits fills the partition's fast-path slot
//! with a few tokens: at most a sixteenth of the burst, and only tokens that both buckets have. They
//! stay in the buckets, reserved. Later requests take them from the slot without the lock. The next
//! request that takes the lock debits what was taken, as of that moment.
//!
//! So a token is debited when it is granted or later, never earlier, and the buckets never hold more
//! than if each token had been debited when it was granted: nothing is granted beyond the limit. The
//! price is that a bucket that was full in between may show up to a sixteenth of a burst too little.
//! With a virtual clock nothing is prefetched, so tests are exact to the token.
//!
//! As soon as a request has to wait, all slots are emptied, so no waiter is overtaken.

use crate::health::Circuit;
use crate::scheduler::fast_path::TakenTokens;
use crate::scheduler::{Scheduler, TokenSource};

/// The divisor of the burst that gives the most tokens in a slot.
const PREFETCH_ONE_IN: u64 = 16;

impl Scheduler {
    /// Puts a few tokens into a partition's slot, if no request waits and the partition is healthy.
    #[inline]
    pub(crate) fn fill_slot(&mut self, index: u32, now_us: u64) {
        if !self.prefetch.has_room() || self.source != TokenSource::Local || self.waiters.len() > 0
        {
            return;
        }
        let partition = self.partition(index);
        if partition.health.circuit() != Circuit::Closed || !partition.hints.is_empty() {
            return;
        }
        let most = partition.bucket.burst().min(self.global.burst()) / PREFETCH_ONE_IN;
        let global = self.global.level(now_us);
        let tokens = most
            .min(partition.bucket.level(now_us))
            .min(global.saturating_sub(self.prefetch.reserved()));
        if tokens == 0 {
            return;
        }
        self.prefetch.fill(index, tokens);
    }

    /// Empties a partition's slot, and debits the tokens that were taken from it.
    #[inline]
    pub(crate) fn reclaim(&mut self, index: u32, now_us: u64) {
        let Some(TakenTokens { tokens, requests }) = self.prefetch.empty(index) else {
            return;
        };
        if tokens == 0 {
            return;
        }
        self.global.charge(tokens, now_us);
        let partition = self.partition_mut(index);
        partition.bucket.charge(tokens, now_us);
        partition.counters.granted += tokens;
        partition.counters.record_immediate(requests);
    }

    pub(crate) fn reclaim_all(&mut self, now_us: u64) {
        while let Some(index) = self.prefetch.last_filled() {
            self.reclaim(index, now_us);
        }
    }
}
