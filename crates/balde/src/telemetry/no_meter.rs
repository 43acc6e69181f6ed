//! Without the feature `prometheus` nobody counts: there is no such meter.

use std::time::Duration;

use balde_core::Command;

use super::Mode;
use crate::clock::Stopwatch;
use crate::decision::Decision;

#[derive(Clone)]
pub(crate) enum Meter {}

impl Meter {
    pub(crate) fn begin(_mode: Mode) -> Option<Stopwatch> {
        None
    }

    pub(crate) fn decided(&self, _decision: &Decision) {
        match *self {}
    }

    pub(crate) fn operated(&self, _command: Command) {
        match *self {}
    }

    pub(crate) fn took(&self, _mode: Mode, _took: Duration) {
        match *self {}
    }

    #[cfg(feature = "redis")]
    pub(crate) fn script_took(&self, _took: Duration) {
        match *self {}
    }
}
