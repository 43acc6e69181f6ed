//! What gateways over one Redis share beside the buckets: who reconciled a participant last.
//!
//! A reconciliation corrects buckets by a difference to the levels that it read before it asked DICT.
//! Two at a time would both correct the same difference, so there is one lock for each participant. A
//! payment order that gives tokens back meanwhile would count twice; so an order looks whether
//! somebody reconciles, before it gives tokens back and afterwards.

use std::time::Duration;

use balde::{BuildError, Clock, RedisStore, Registers, StoreFailure};

use super::redis_lock::{HELD_MAX, NotLocked, RedisLock, RedisLockGuard};

/// The name of the locks and of the records in Redis. No policy has such a name by chance, so no bucket is
/// taken for a lock.
const NAME: &str = "gateway.reconciliation";

/// How long it is remembered who reconciled a participant: longer than any interval.
const REMEMBERED: Duration = Duration::from_secs(2 * 24 * 3_600);

/// By how much the clocks of gateways may differ.
const CLOCKS_DIFFER_US: u64 = 5_000_000;

/// The locks and records of this gateway.
#[derive(Debug)]
pub(super) struct Shared {
    lock: RedisLock,
    records: Registers,
    /// Which gateway this is.
    id: u64,
}

/// Who reconciled a participant last, and when DICT answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Last {
    record: Vec<u8>,
}

impl Shared {
    pub(super) fn new(store: &RedisStore, clock: &Clock) -> Result<Self, BuildError> {
        Ok(Self {
            lock: RedisLock::new(NAME, store, clock)?,
            records: store.registers(NAME, NAME),
            id: fastrand::u64(..),
        })
    }

    /// Waits until no other gateway reconciles a participant.
    pub(super) async fn lock(&self, participant: &str) -> Result<RedisLockGuard, NotLocked> {
        self.lock.lock(participant, HELD_MAX).await
    }

    /// Records that this gateway has the answer of DICT. Must be called under the lock, and before the
    /// answer is applied.
    pub(super) async fn note_answer(
        &self,
        participant: &str,
        answered_us: u64,
    ) -> Result<(), StoreFailure> {
        let before = self.last(participant).await?;
        let record = [self.id.to_le_bytes(), answered_us.to_le_bytes()].concat();
        let records = &self.records;
        let setting = records.compare_and_set(participant, &before.record, &record, REMEMBERED);
        setting.await.map(drop)
    }

    pub(super) async fn last(&self, participant: &str) -> Result<Last, StoreFailure> {
        let read = self.records.read(&[participant]).await?;
        let record = read.values.into_iter().next().unwrap_or_default();
        Ok(Last { record })
    }

    /// Whether this gateway was the last to correct the buckets of a participant, or nobody ever did.
    pub(super) fn is_own(&self, last: &Last) -> bool {
        last.gateway().is_none_or(|gateway| gateway == self.id)
    }

    /// Who reconciled last; `None` if somebody is reconciling, or Redis does not say.
    pub(super) async fn last_if_idle(&self, participant: &str) -> Option<Last> {
        let last = self.last(participant).await.ok()?;
        let is_idle = self.lock.is_free(participant).await;
        is_idle.then_some(last)
    }
}

impl Last {
    /// Whether DICT's levels may include the tokens of an order whose lookup ended at this time.
    pub(super) fn may_include_order(&self, lookup_us: u64) -> bool {
        let answered_us = self.record.last_chunk().copied().map(u64::from_le_bytes);
        answered_us.is_some_and(|at_us| at_us.saturating_add(CLOCKS_DIFFER_US) >= lookup_us)
    }

    fn gateway(&self) -> Option<u64> {
        self.record.first_chunk().copied().map(u64::from_le_bytes)
    }
}
