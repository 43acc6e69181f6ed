//! The atomics and locks of the memory store: the real ones, or loom's when its models run.

#[cfg(not(balde_loom))]
pub(super) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(balde_loom))]
pub(super) use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering, fence},
};

/// Takes the lock, and counts it where somebody else has it and it must be waited for.
#[cfg(not(balde_loom))]
pub(super) fn lock_counting<'m, T>(mutex: &'m Mutex<T>, waits: &AtomicU64) -> MutexGuard<'m, T> {
    mutex.try_lock().unwrap_or_else(|| {
        waits.fetch_add(1, Ordering::Relaxed);
        mutex.lock()
    })
}

/// No story asks how often anybody waited.
#[cfg(balde_loom)]
pub(super) fn lock_counting<'m, T>(mutex: &'m Mutex<T>, _waits: &AtomicU64) -> MutexGuard<'m, T> {
    mutex.lock()
}

#[cfg(balde_loom)]
pub(super) use self::model::{Mutex, MutexGuard, OnceLock};
#[cfg(balde_loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Words that are all zero. Zeroed pages come from the system untouched.
#[cfg(not(balde_loom))]
pub(super) fn empty_words(len: usize) -> Box<[AtomicU64]> {
    bytemuck::zeroed_slice_box(len)
}

#[cfg(balde_loom)]
pub(super) fn empty_words(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(balde_loom)]
mod model {
    pub(crate) use loom::sync::MutexGuard;

    /// The face of `parking_lot` on loom's mutex.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// A cell that the models fill before they start their threads: loom has no once-lock.
    pub(crate) use std::sync::OnceLock;
}
