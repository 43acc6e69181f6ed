//! A request that was let through, until its end is known.

use std::fmt;
use std::sync::Arc;
use std::thread;

use crate::inner::{Given, Shared};
use crate::signal::{Outcome, Report};

/// The right to make one request, and the duty to say how it ended: exactly once.
///
/// A permit that is dropped counts as [`Outcome::Unknown`], or as [`Outcome::Error`] while the thread
/// panics.
#[must_use = "a permit that is dropped reports that nobody knows how its request ended"]
pub struct Permit {
    shared: Arc<Shared>,
    given: Given,
    n: u64,
    is_reported: bool,
}

impl Permit {
    pub(crate) fn new(shared: &Arc<Shared>, given: Given, n: u64) -> Self {
        Self {
            shared: Arc::clone(shared),
            given,
            n,
            is_reported: false,
        }
    }

    /// How it ended.
    pub fn report(mut self, report: impl Into<Report>) {
        self.end(&report.into());
    }

    fn end(&mut self, report: &Report) {
        self.is_reported = true;
        let Given { index, epoch } = self.given;
        self.shared.report(index, Some((epoch, self.n)), report);
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
