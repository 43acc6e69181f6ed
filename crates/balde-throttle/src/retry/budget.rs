//! How many retries a job may spend.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use balde::Share;

/// The budget is counted in thousandths of a retry, so that a share of one is a whole number.
const SCALE: u64 = 1_000;

/// A budget of retries that all requests of a job share. A retry takes one from it, and a success gives
/// a share of one back, up to the reserve with which it starts. So a server that fails now and then gets
/// its requests again, and a server that fails for long does not get every request over and over.
///
/// Clones share the budget.
#[derive(Clone, Debug)]
pub struct RetryBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    left: AtomicU64,
    reserve: u64,
    per_success: u64,
}

impl RetryBudget {
    /// A budget that starts with `reserve` retries, and gets the share `per_success` of a retry back for
    /// each success.
    pub fn new(reserve: u64, per_success: Share) -> Self {
        let reserve = reserve.saturating_mul(SCALE);
        Self(Arc::new(Inner {
            left: AtomicU64::new(reserve),
            reserve,
            per_success: per_success.of_tokens(SCALE),
        }))
    }

    /// Whole retries that are left.
    pub fn left(&self) -> u64 {
        self.0.left.load(Ordering::Relaxed) / SCALE
    }

    /// Takes one retry. Returns false if less than one is left.
    pub(super) fn spend(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        let spent = |left: u64| left.checked_sub(SCALE);
        self.0.left.fetch_update(relaxed, relaxed, spent).is_ok()
    }

    pub(super) fn earn(&self) {
        let Inner {
            left,
            reserve,
            per_success,
        } = &*self.0;
        // Most requests of a healthy job find the budget full, and need not write.
        if left.load(Ordering::Relaxed) < *reserve {
            let relaxed = Ordering::Relaxed;
            let earned = |left: u64| Some(left.saturating_add(*per_success).min(*reserve));
            let _always = left.fetch_update(relaxed, relaxed, earned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successes_give_back_their_share_and_never_more_than_the_reserve() {
        let budget = RetryBudget::new(2, Share::percent(20));
        assert!(budget.spend() && budget.spend());
        assert!(!budget.spend());
        for _ in 0..4 {
            budget.earn();
        }
        assert!(!budget.spend(), "four fifths of a retry");
        budget.earn();
        assert!(budget.spend());
        for _ in 0..100 {
            budget.earn();
        }
        assert_eq!(budget.left(), 2);
    }
}
