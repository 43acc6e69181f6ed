//! The permit for one request, until its outcome is reported.

use std::fmt;
use std::sync::Arc;
use std::thread;

use crate::inner::{Grant, Inner};
use crate::outcome::{Outcome, Report};

/// The right to make one request, to be ended by [`report`](Permit::report) with its outcome.
///
/// A permit that is dropped reports [`Outcome::Unknown`], or [`Outcome::Error`] if the thread is
/// panicking.
#[must_use = "a permit that is dropped reports an unknown outcome"]
pub struct Permit {
    inner: Arc<Inner>,
    grant: Grant,
    n: u64,
    is_reported: bool,
}

impl Permit {
    pub(crate) fn new(inner: &Arc<Inner>, grant: Grant, n: u64) -> Self {
        Self {
            inner: Arc::clone(inner),
            grant,
            n,
            is_reported: false,
        }
    }

    /// Reports how the request ended.
    pub fn report(mut self, report: impl Into<Report>) {
        self.end(&report.into());
    }

    fn end(&mut self, report: &Report) {
        self.is_reported = true;
        let Grant { index, epoch } = self.grant;
        self.inner.report(index, Some((epoch, self.n)), report);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_reported {
            let outcome = if thread::panicking() {
                Outcome::Error
            } else {
                Outcome::Unknown
            };
            self.end(&outcome.into());
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("tokens", &self.n)
            .finish_non_exhaustive()
    }
}
