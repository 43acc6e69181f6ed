//! When participants were reconciled, and which payment orders DICT's levels may include already.
//!
//! An order gives tokens back, and a reconciliation corrects the same buckets by a difference. If DICT's
//! level includes the tokens of an order, they must not count a second time. So an order leaves the
//! buckets that DICT lists alone while they are corrected, and afterwards if its lookup ended before
//! DICT answered.
//!
//! There is one lock per participant. A reconciliation holds it only while it updates its state, so an
//! order waits neither for DICT nor for the corrections in Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, RwLock, RwLockReadGuard};

/// The reconciliations of all participants that were ever configured.
#[derive(Debug, Default)]
pub(super) struct Reconciled(Mutex<HashMap<String, Arc<Reconciliations>>>);

/// The reconciliations of one participant.
#[derive(Debug, Default)]
pub(super) struct Reconciliations {
    /// Locked from the beginning of a reconciliation to its end.
    running: tokio::sync::Mutex<()>,
    /// When DICT last answered. Locked for reading while an order gives tokens back.
    answered_us: RwLock<Option<u64>>,
    is_correcting: AtomicBool,
    /// Whether another gateway has corrected the buckets after this one.
    is_corrected_by_another: AtomicBool,
    /// When the next regular reconciliation is due.
    next_us: AtomicU64,
    /// The status with which DICT refused the participant, and has never accepted it; 0 for none.
    refused_status: AtomicU16,
    is_accepted: AtomicBool,
}

/// Orders give no tokens to the participant's listed buckets while this exists.
#[derive(Debug)]
pub(super) struct Correction<'p>(&'p Reconciliations);

/// No correction begins, and no answer of DICT is noted, while this exists.
#[derive(Debug)]
pub(super) struct Unchanged<'p> {
    answered_us: RwLockReadGuard<'p, Option<u64>>,
    is_correcting: bool,
}

impl Reconciled {
    pub(super) fn of(&self, participant: &str) -> Arc<Reconciliations> {
        let mut participants = self.0.lock();
        if let Some(found) = participants.get(participant) {
            return Arc::clone(found);
        }
        let new = Arc::<Reconciliations>::default();
        participants.insert(participant.to_owned(), Arc::clone(&new));
        new
    }
}

impl Reconciliations {
    /// Waits until no other reconciliation of the participant runs: two at a time could both correct the
    /// same difference.
    pub(super) async fn lock(&self) -> MutexGuard<'_, ()> {
        self.running.lock().await
    }

    /// Begins to correct buckets, after the orders that are giving tokens back. Must be called before
    /// reading the levels that the correction is computed from.
    pub(super) async fn correct(&self) -> Correction<'_> {
        let _no_order = self.answered_us.write().await;
        self.is_correcting.store(true, Ordering::SeqCst);
        Correction(self)
    }

    pub(super) async fn while_unchanged(&self) -> Unchanged<'_> {
        let answered_us = self.answered_us.read().await;
        Unchanged {
            answered_us,
            is_correcting: self.is_correcting.load(Ordering::SeqCst),
        }
    }

    pub(super) fn set_next(&self, next_us: u64) {
        self.next_us.store(next_us, Ordering::Relaxed);
    }

    pub(super) fn next_us(&self) -> u64 {
        self.next_us.load(Ordering::Relaxed)
    }

    pub(super) fn set_corrected_by_another(&self, is_so: bool) {
        self.is_corrected_by_another.store(is_so, Ordering::Relaxed);
    }

    pub(super) fn is_corrected_by_another(&self) -> bool {
        self.is_corrected_by_another.load(Ordering::Relaxed)
    }

    /// Notes that DICT has listed the participant's buckets.
    pub(super) fn set_accepted(&self) {
        self.is_accepted.store(true, Ordering::Relaxed);
    }

    /// Notes the status of a reconciliation other than 200. Only 403 and 404 say that DICT does not
    /// know the participant.
    pub(super) fn set_refused(&self, status: u16) {
        if matches!(status, 403 | 404) {
            self.refused_status.store(status, Ordering::Relaxed);
        }
    }

    /// The status with which DICT refused a participant that it has never accepted; `None` if it has
    /// accepted the participant, or was not asked yet.
    pub(super) fn refused_status(&self) -> Option<u16> {
        let status = self.refused_status.load(Ordering::Relaxed);
        let is_unknown = status != 0 && !self.is_accepted.load(Ordering::Relaxed);
        is_unknown.then_some(status)
    }
}

impl Correction<'_> {
    /// Notes when DICT reported its levels. Must be called before they are applied.
    pub(super) async fn answered(&self, now_us: u64) {
        *self.0.answered_us.write().await = Some(now_us);
    }
}

impl Drop for Correction<'_> {
    fn drop(&mut self) {
        self.0.is_correcting.store(false, Ordering::SeqCst);
    }
}

impl Unchanged<'_> {
    /// Whether DICT's levels may include the tokens of an order, or are about to be applied. The order's
    /// lookup ended at this time.
    pub(super) fn may_include_order(&self, lookup_us: u64) -> bool {
        self.is_correcting || self.answered_us.is_some_and(|at_us| at_us >= lookup_us)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The result of a future that need not wait.
    fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    fn may_include(participant: &Reconciliations, lookup_us: u64) -> bool {
        let unchanged = at_once(participant.while_unchanged());
        let unchanged = unchanged.expect("an order does not wait for a reconciliation");
        unchanged.may_include_order(lookup_us)
    }

    #[tokio::test]
    async fn orders_do_not_wait_for_a_correction_and_are_left_to_it() {
        let reconciled = Reconciled::default();
        let (one, other) = (reconciled.of("1"), reconciled.of("2"));
        assert!(!may_include(&one, 5));
        let running = one.lock().await;
        let correction = one.correct().await;
        assert!(may_include(&one, 5));
        correction.answered(10).await;
        // Not even an order whose lookup ended later: the correction has begun.
        assert!(may_include(&one, 11));
        assert!(!may_include(&other, 5));
        drop(correction);
        assert!(may_include(&one, 10));
        assert!(!may_include(&one, 11));
        assert!(at_once(one.lock()).is_none(), "one at a time");
        assert!(at_once(other.lock()).is_some());
        drop(running);
    }

    #[tokio::test]
    async fn a_correction_waits_for_orders_of_its_participant_only() {
        let reconciled = Reconciled::default();
        let (one, other) = (reconciled.of("1"), reconciled.of("2"));
        let order = one.while_unchanged().await;
        assert!(at_once(other.correct()).is_some());
        assert!(at_once(one.correct()).is_none());
        drop(order);
        let correction = one.correct().await;
        let order = one.while_unchanged().await;
        assert!(at_once(correction.answered(10)).is_none());
        drop(order);
        correction.answered(10).await;
    }

    #[tokio::test]
    async fn a_reconciliation_without_an_answer_leaves_nothing_behind() {
        let reconciled = Reconciled::default();
        let one = reconciled.of("1");
        drop(one.correct().await);
        assert!(!may_include(&one, 0));
    }
}
