//! How far a job is: records, rate, errors, time left.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// The rate is the mean over this many reports.
const REPORTS: usize = 10;

/// The characters of the bar.
const WIDTH: u64 = 30;

/// The counters of a job. Tasks count what they did; a display reads a [`ProgressReport`] now and then.
#[derive(Debug)]
pub struct Progress {
    total: u64,
    already_done: u64,
    done: AtomicU64,
    errors: AtomicU64,
    /// Earlier reports: time since the start, and records that were done.
    reports: Mutex<VecDeque<(Duration, u64)>>,
}

/// A job's progress at one moment. As text it is a line with a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgressReport {
    /// The records of the job.
    pub total: u64,
    /// The records that are done, those of an earlier run included.
    pub done: u64,
    /// Attempts that failed in this run.
    pub errors: u64,
    /// Records a second, as the mean over the last reports.
    pub rate: u64,
    /// How long the rest takes at this rate; `None` while nothing is done.
    pub left: Option<Duration>,
}

impl Progress {
    /// A job of `total` records of which `already_done` were done by an earlier run.
    pub fn new(total: u64, already_done: u64) -> Self {
        Self {
            total,
            already_done,
            done: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            reports: Mutex::new(VecDeque::from([(Duration::ZERO, 0)])),
        }
    }

    /// Counts records that are done.
    pub fn add_done(&self, records: u64) {
        self.done.fetch_add(records, Ordering::Relaxed);
    }

    /// Counts an attempt that failed.
    pub fn add_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The progress at `elapsed` since the start of this run. Each call is one point of the mean rate.
    pub fn report(&self, elapsed: Duration) -> ProgressReport {
        let done = self.done.load(Ordering::Relaxed);
        let mut reports = self.reports.lock();
        reports.push_back((elapsed, done));
        if reports.len() > REPORTS {
            reports.pop_front();
        }
        let (then, before) = reports[0];
        let elapsed_ms = elapsed.saturating_sub(then).as_millis().max(1);
        let rate = u128::from(done.saturating_sub(before)) * 1_000 / elapsed_ms;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let done = self.already_done.saturating_add(done);
        let left = self.total.saturating_sub(done);
        ProgressReport {
            total: self.total,
            done,
            errors: self.errors.load(Ordering::Relaxed),
            rate,
            left: left.checked_div(rate).map(Duration::from_secs),
        }
    }
}

impl fmt::Display for ProgressReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = u128::from(self.total.max(1));
        let done = u128::from(self.done.min(self.total));
        let filled = u64::try_from(u128::from(WIDTH) * done / total).unwrap_or(WIDTH);
        for at in 0..WIDTH {
            f.write_str(if at < filled { "█" } else { "·" })?;
        }
        let percent = done * 100 / total;
        write!(f, " {percent:3} %  {}/s  ", self.rate)?;
        match self.left {
            Some(left) => write!(f, "{}:{:02} left", left.as_secs() / 60, left.as_secs() % 60)?,
            None => f.write_str("time left unknown")?,
        }
        if self.errors > 0 {
            write!(f, "  {} errors", self.errors)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_mean_of_the_last_reports_and_the_rest_follows_from_it() {
        let progress = Progress::new(1_000, 400);
        assert_eq!(progress.report(Duration::from_secs(1)).left, None);
        progress.add_done(100);
        progress.add_error();
        let report = progress.report(Duration::from_secs(5));
        assert_eq!((report.done, report.errors, report.rate), (500, 1, 20));
        assert_eq!(report.left, Some(Duration::from_secs(25)));
        let text = report.to_string();
        assert!(text.ends_with(" 50 %  20/s  0:25 left  1 errors"), "{text}");
        assert_eq!(text.matches('█').count(), 15);
        // Reports that are long past do not count any more.
        for second in 6..=20 {
            progress.add_done(10);
            progress.report(Duration::from_secs(second));
        }
        let report = progress.report(Duration::from_secs(20));
        assert_eq!(report.rate, 10);
    }

    #[test]
    fn a_finished_or_empty_job_is_shown_without_a_panic() {
        for (total, done) in [(0, 0), (10, 10), (10, 11), (u64::MAX, u64::MAX)] {
            let report = Progress::new(total, done).report(Duration::ZERO);
            assert!(report.to_string().contains('%'), "{report}");
        }
    }
}
