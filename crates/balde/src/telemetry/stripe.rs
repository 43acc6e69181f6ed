//! A number for each thread, so that threads can count apart from each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of this thread: the first to ask gets 0, the next 1.
#[inline]
pub(super) fn of_thread() -> usize {
    let own = OWN.get();
    if own == usize::MAX { first() } else { own }
}

#[cold]
fn first() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Wraps long before it could be mistaken for "none yet".
    let own = NEXT.fetch_add(1, Ordering::Relaxed) % (1 << 16);
    OWN.set(own);
    own
}
