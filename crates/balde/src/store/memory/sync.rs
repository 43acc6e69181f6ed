//! The atomics and locks of the memory store: the real ones, or loom's when its models run.

#[cfg(not(balde_loom))]
pub(super) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(balde_loom))]
pub(super) use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering, fence},
};

/// Locks the mutex, and counts if it has to wait.
#[cfg(not(balde_loom))]
pub(super) fn lock_counting<'m, T>(mutex: &'m Mutex<T>, waits: &AtomicU64) -> MutexGuard<'m, T> {
    mutex.try_lock().unwrap_or_else(|| {
        waits.fetch_add(1, Ordering::Relaxed);
        mutex.lock()
    })
}

/// No loom test needs the count.
#[cfg(balde_loom)]
pub(super) fn lock_counting<'m, T>(mutex: &'m Mutex<T>, _waits: &AtomicU64) -> MutexGuard<'m, T> {
    mutex.lock()
}

#[cfg(balde_loom)]
pub(super) use self::model::{Mutex, MutexGuard, OnceLock};
#[cfg(balde_loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Words that are all zero. Zeroed pages come from the system without being written.
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

    /// loom's mutex with the interface of `parking_lot`.
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

    /// The models fill these cells before they start threads: loom has no once-lock.
    pub(crate) use std::sync::OnceLock;
}
