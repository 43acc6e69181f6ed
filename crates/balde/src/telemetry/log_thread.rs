//! The thread that writes queued log lines, so that no decision waits for a writer.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::Stopwatch;

/// Lines are written this often. Writing many at once is cheaper, and a decision need not wake the
/// thread for each.
const INTERVAL: Duration = Duration::from_millis(10);

/// After this many intervals without a line the thread sleeps until it is woken, or for [`SLEEP_MAX`].
const IDLE_INTERVALS: u32 = 100;

/// The longest sleep. A line whose wake-up was missed is written at most this late.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A queue of lines.
pub(super) trait LogSource: Send + Sync {
    /// Writes what is in the queue, and returns the number of lines.
    fn drain(&self, urgency: Urgency) -> usize;

    /// Writes what other queues have put into this one while they were drained.
    fn finish(&self) {}
}

/// Why a queue is drained.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    Interval,
    /// Somebody waits until everything is written.
    Flush,
}

static LOG_THREAD: LogThread = LogThread {
    sources: Mutex::new(Vec::new()),
    // So that the first line wakes it, which starts it.
    is_asleep: AtomicBool::new(true),
    flushes: Mutex::new(Flushes {
        requested: 0,
        done: 0,
    }),
    flushed: Condvar::new(),
    thread: OnceLock::new(),
};

/// Lines of this process that found no room in the queue of their writer.
static DROPPED_LINES: AtomicU64 = AtomicU64::new(0);

/// How many lines found no room in the queue of their writer.
pub(super) fn dropped_lines() -> u64 {
    DROPPED_LINES.load(Ordering::Relaxed)
}

#[cfg(feature = "logs")]
pub(super) fn count_dropped_line() {
    DROPPED_LINES.fetch_add(1, Ordering::Relaxed);
}

struct LogThread {
    sources: Mutex<Vec<Arc<dyn LogSource>>>,
    is_asleep: AtomicBool,
    flushes: Mutex<Flushes>,
    flushed: Condvar,
    /// `None` if the system gave no thread. Then queues fill, and what they drop is counted.
    thread: OnceLock<Option<Thread>>,
}

struct Flushes {
    requested: u64,
    done: u64,
}

thread_local! {
    static IS_LOG_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is the log thread, which may wait for a writer.
#[cfg(feature = "logs")]
pub(super) fn is_current() -> bool {
    IS_LOG_THREAD.get()
}

/// Registers a queue. It is drained until nobody else holds it, and then once more. The first line
/// starts the thread.
pub(super) fn add(source: Arc<dyn LogSource>) {
    LOG_THREAD.sources.lock().push(source);
    wake_if_started();
}

/// A process that logs nothing stays without a second thread, which would make each of its system calls
/// a little slower.
fn wake_if_started() {
    if LOG_THREAD.thread.get().is_some() {
        wake_if_asleep();
    }
}

/// To be called after a line was queued. Costs one load while the thread is awake.
#[inline]
pub(super) fn wake_if_asleep() {
    if LOG_THREAD.is_asleep.load(Ordering::Relaxed) {
        LOG_THREAD.wake();
    }
}

/// Waits until all lines that are queued now are written. Returns whether that took no longer than
/// `within`.
pub(super) fn flush(within: Duration) -> bool {
    if LOG_THREAD.thread.get().is_none_or(Option::is_none) {
        return true;
    }
    let stopwatch = Stopwatch::start();
    let mut flushes = LOG_THREAD.flushes.lock();
    flushes.requested += 1;
    let own = flushes.requested;
    LOG_THREAD.wake();
    while flushes.done < own {
        let left = within.saturating_sub(stopwatch.elapsed());
        if left.is_zero() {
            return false;
        }
        LOG_THREAD.flushed.wait_for(&mut flushes, left);
    }
    true
}

impl LogThread {
    #[cold]
    fn wake(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
        let thread = self.thread.get_or_init(|| {
            let builder = thread::Builder::new().name("balde-log".to_owned());
            let started = builder.spawn(|| LOG_THREAD.run());
            started.ok().map(|handle| handle.thread().clone())
        });
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    fn run(&self) {
        IS_LOG_THREAD.set(true);
        let mut idle = 0_u32;
        loop {
            let lines = self.drain();
            idle = if lines == 0 {
                idle.saturating_add(1)
            } else {
                0
            };
            if idle < IDLE_INTERVALS {
                thread::park_timeout(INTERVAL);
                continue;
            }
            // Whoever queues a line after this has become visible wakes the thread. A line that was
            // queued before may itself become visible a moment after this, since nothing orders the
            // two; so the thread looks once more when that moment has passed, and does not sleep
            // without an end.
            self.is_asleep.store(true, Ordering::SeqCst);
            thread::park_timeout(INTERVAL);
            let lines = self.drain();
            if lines == 0 && self.is_asleep.load(Ordering::Relaxed) {
                thread::park_timeout(SLEEP_MAX);
            }
            let is_woken = !self.is_asleep.swap(false, Ordering::Relaxed);
            if is_woken || lines > 0 {
                idle = 0;
            }
        }
    }

    fn drain(&self) -> usize {
        let requested = self.flushes.lock().requested;
        let urgency = if self.flushes.lock().done < requested {
            Urgency::Flush
        } else {
            Urgency::Interval
        };
        // The list is not locked while lines are written, so that limiters can be built meanwhile.
        let mut sources = std::mem::take(&mut *self.sources.lock());
        let is_unused = |source: &Arc<dyn LogSource>| Arc::strong_count(source) == 1;
        let unused: Vec<bool> = sources.iter().map(is_unused).collect();
        // Pairs with the release of the last other owner: what it has queued is visible from here on.
        fence(Ordering::Acquire);
        let mut lines = 0;
        for (source, is_unused) in sources.iter().zip(&unused) {
            let urgency = if *is_unused { Urgency::Flush } else { urgency };
            lines += source.drain(urgency);
        }
        for source in &sources {
            source.finish();
        }
        let mut unused = unused.into_iter();
        sources.retain(|_| unused.next() == Some(false));
        self.sources.lock().append(&mut sources);
        if urgency == Urgency::Flush {
            self.flushes.lock().done = requested;
            self.flushed.notify_all();
        }
        lines
    }
}
