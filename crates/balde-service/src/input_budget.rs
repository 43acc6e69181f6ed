//! A limit on what all connections of a protocol have sent and not yet asked for: without it, thousands
//! of connections that each stay below their own limit could fill the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes of incomplete requests, of all connections of a protocol together.
const BYTES_MAX: usize = 64 << 20;

/// The bytes that are waiting. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputBudget(Arc<AtomicUsize>);

/// The part of one connection or request, which goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct InputShare {
    budget: InputBudget,
    bytes: usize,
}

impl InputBudget {
    /// A share without bytes.
    pub(crate) fn share(&self) -> InputShare {
        InputShare {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

impl InputShare {
    /// Changes the share. Returns false, and changes nothing, if all shares together would exceed the
    /// budget; a smaller share is always possible.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let total = &self.budget.0;
        if bytes <= self.bytes {
            total.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            let before = total.fetch_add(more, Ordering::Relaxed);
            if before + more > BYTES_MAX {
                total.fetch_sub(more, Ordering::Relaxed);
                return false;
            }
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for InputShare {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_budget_and_go_back() {
        let budget = InputBudget::default();
        let (mut one, mut two) = (budget.share(), budget.share());
        assert!(one.resize(BYTES_MAX - 10));
        assert!(two.resize(10));
        assert!(!two.resize(11));
        assert!(two.resize(5) && two.resize(10));
        drop(one);
        assert!(two.resize(BYTES_MAX));
        drop(two);
        assert!(budget.share().resize(BYTES_MAX));
    }
}
