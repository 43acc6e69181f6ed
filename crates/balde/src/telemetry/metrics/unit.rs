//! The unit in which durations are exposed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Milliseconds, which the documented metric names use, or seconds. Clones share the setting, so that
/// all metrics of one page use the same unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    is_second: Arc<AtomicBool>,
}

impl Unit {
    /// Runs `work` with seconds as the unit. The caller must hold the lock of the registry.
    pub(super) fn in_seconds<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Reset<'a>(&'a Unit);
        impl Drop for Reset<'_> {
            fn drop(&mut self) {
                self.0.is_second.store(false, Ordering::Relaxed);
            }
        }
        let _reset = Reset(self);
        self.is_second.store(true, Ordering::Relaxed);
        work()
    }

    /// The name of a metric with its unit as suffix.
    pub(crate) fn name(&self, stem: &str) -> String {
        let unit = if self.is_second() { "seconds" } else { "ms" };
        format!("{stem}_{unit}")
    }

    pub(crate) fn number(&self, duration: Duration) -> f64 {
        let seconds = duration.as_secs_f64();
        if self.is_second() {
            seconds
        } else {
            seconds * 1e3
        }
    }

    fn is_second(&self) -> bool {
        self.is_second.load(Ordering::Relaxed)
    }
}
