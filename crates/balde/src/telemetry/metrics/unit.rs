//! The unit of durations that are exposed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether durations are exposed in milliseconds, under the documented names, or in seconds. Clones
/// share the setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    is_second: Arc<AtomicBool>,
}

impl Unit {
    /// Exposes seconds while `work` runs. Only for the holder of the registry's lock.
    pub(super) fn in_seconds<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a Unit);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.is_second.store(false, Ordering::Relaxed);
            }
        }
        let _back = Back(self);
        self.is_second.store(true, Ordering::Relaxed);
        work()
    }

    /// The name of a metric, which ends in its unit.
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
