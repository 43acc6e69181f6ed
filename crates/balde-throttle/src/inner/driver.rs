//! The task that serves waiters when their time comes: one timer for all of them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio::runtime::Handle;

use crate::inner::{Inner, Locked, serve_due};
use crate::scheduler::serve::WakeList;

/// The longest that the driver sleeps. A manual clock does not notify, so it is read again after this.
const SLEEP_MAX: Duration = Duration::from_secs(1);

impl Inner {
    /// Starts the driver, unless it runs already.
    pub(super) fn drive(self: &Arc<Self>, locked: &mut Locked, handle: &Handle) {
        if locked.is_driven {
            return;
        }
        locked.is_driven = true;
        locked.driver_due_us = 0;
        let driver = Driver {
            inner: Arc::clone(self),
            is_done: false,
        };
        handle.spawn(driver.run());
    }

    /// Serves waiters, and returns how long until the next one is due. `None` when none waits.
    fn tick(self: &Arc<Self>) -> Option<Duration> {
        let mut locked = self.locked.lock();
        let now_us = self.clock.now_us();
        let mut wake_list = WakeList::default();
        serve_due(&mut locked, now_us, &mut wake_list);
        let due_us = locked.scheduler.next_due_us().unwrap_or(u64::MAX);
        let is_needed = locked.scheduler.waiting > 0;
        locked.is_driven = is_needed;
        locked.driver_due_us = due_us;
        self.finish(locked, &mut wake_list, false);
        is_needed.then(|| Duration::from_micros(due_us.saturating_sub(now_us)))
    }
}

struct Driver {
    inner: Arc<Inner>,
    is_done: bool,
}

impl Driver {
    async fn run(mut self) {
        while let Some(wait) = self.inner.tick() {
            let wakeup = self.inner.driver_wakeup.notified();
            let _either = tokio::time::timeout(wait.min(SLEEP_MAX), wakeup).await;
        }
        self.is_done = true;
    }
}

impl Drop for Driver {
    /// The driver's runtime may end while requests wait in other runtimes. They are woken, and the
    /// first that is polled starts a new driver. After a panic, which means a runtime without a timer,
    /// no waiter can be served, so the throttler is closed.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut locked = self.inner.locked.lock();
        locked.is_driven = false;
        if thread::panicking() {
            let now_us = self.inner.clock.now_us();
            locked.scheduler.close(now_us);
            let mut wake_list = WakeList::default();
            serve_due(&mut locked, now_us, &mut wake_list);
            MutexGuard::unlocked(&mut locked, || wake_list.wake_all());
        }
        let wakers = locked.scheduler.waiters.wakers();
        drop(locked);
        for waker in wakers {
            waker.wake();
        }
    }
}
