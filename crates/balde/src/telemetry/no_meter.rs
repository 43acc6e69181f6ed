//! Without the feature `prometheus` there are no counters: this type has no values.

use std::time::Duration;

use balde_core::Command;

use super::StorageMode;
use crate::clock::Stopwatch;
use crate::decision::Decision;

#[derive(Clone)]
pub(crate) enum Meter {}

impl Meter {
    pub(crate) fn begin(_mode: StorageMode) -> Option<Stopwatch> {
        None
    }

    pub(crate) fn count_decision(&self, _decision: &Decision) {
        match *self {}
    }

    pub(crate) fn count_no_key(&self) {
        match *self {}
    }

    pub(crate) fn count_command(&self, _command: Command) {
        match *self {}
    }

    pub(crate) fn observe_latency(&self, _mode: StorageMode, _took: Duration) {
        match *self {}
    }

    #[cfg(feature = "redis")]
    pub(crate) fn observe_script(&self, _took: Duration) {
        match *self {}
    }
}
