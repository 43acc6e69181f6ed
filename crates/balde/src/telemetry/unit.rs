//! The unit in which durations are exposed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The unit in which [`Metrics::encode`](super::Metrics::encode) writes durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricsUnit {
    /// Names end in `_ms`. The default.
    #[default]
    Milliseconds,
    /// Names end in `_seconds`, as `promtool check metrics` recommends.
    Seconds,
}

/// Milliseconds, which the documented metric names use, or seconds. Clones share the setting, so that
/// all metrics of one page use the same unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    is_second: Arc<AtomicBool>,
}

impl Unit {
    /// Starts with this unit.
    pub(super) fn new(unit: MetricsUnit) -> Self {
        let is_second = unit == MetricsUnit::Seconds;
        Self {
            is_second: Arc::new(AtomicBool::new(is_second)),
        }
    }

    /// Runs `work` with seconds as the unit. The caller must hold the lock of the registry.
    pub(super) fn in_seconds<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Reset<'a>(&'a Unit, bool);
        impl Drop for Reset<'_> {
            fn drop(&mut self) {
                self.0.is_second.store(self.1, Ordering::Relaxed);
            }
        }
        let _reset = Reset(self, self.is_second.swap(true, Ordering::Relaxed));
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
