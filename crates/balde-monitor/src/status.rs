//! How the monitor itself is doing: what its health checks and its own metrics go by.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use crate::cycle::FetchError;

/// How long the loop may go without a turn before it counts as stuck, whatever any clock says.
pub const LOOP_STALL_MAX: Duration = Duration::from_secs(60);

/// How the monitor itself is doing.
#[derive(Debug, Default)]
pub struct Status {
    is_leader: watch::Sender<bool>,
    last_iteration: Mutex<Option<Instant>>,
    participants: Mutex<BTreeMap<String, PollStatus>>,
}

/// How asking about one participant goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PollStatus {
    /// Answers since the start.
    pub successes: u64,
    /// Failures since the start, by their short names.
    pub failures: BTreeMap<&'static str, u64>,
    /// When the last good answer came.
    pub last_success_us: Option<u64>,
    /// How long it took.
    pub last_duration_us: Option<u64>,
    /// What was wrong last, if anything since the last answer.
    pub last_error: Option<String>,
    /// When it is asked about again at the latest.
    pub next_poll_us: Option<u64>,
}

impl Status {
    /// Whether this monitor is the one that polls.
    pub fn is_leader(&self) -> bool {
        *self.is_leader.borrow()
    }

    /// Whether the loop has had a turn lately.
    pub fn is_loop_running(&self) -> bool {
        let last = *self.last_iteration.lock();
        last.is_some_and(|last| last.elapsed() < LOOP_STALL_MAX)
    }

    /// How asking about each participant goes.
    pub fn participants(&self) -> BTreeMap<String, PollStatus> {
        self.participants.lock().clone()
    }

    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.is_leader.send_replace(is_leader);
    }

    /// Waits until this monitor leads, or until it does not.
    pub(crate) async fn wait_for_leadership(&self, is_leading: bool) {
        let mut told = self.is_leader.subscribe();
        // The sender is this very status.
        let _never_gone = told.wait_for(|now| *now == is_leading).await;
    }

    pub(crate) fn record_loop_iteration(&self) {
        *self.last_iteration.lock() = Some(Instant::now());
    }

    pub(crate) fn record_success(&self, participant: &str, now_us: u64, took_us: u64) {
        self.with(participant, |status| {
            status.successes += 1;
            status.last_success_us = Some(now_us);
            status.last_duration_us = Some(took_us);
            status.last_error = None;
        });
    }

    pub(crate) fn record_failure(&self, participant: &str, error: &FetchError) {
        self.record_error(participant, error.label(), error.to_string());
    }

    pub(crate) fn record_error(&self, participant: &str, label: &'static str, why: String) {
        self.with(participant, |status| {
            *status.failures.entry(label).or_default() += 1;
            status.last_error = Some(why);
        });
    }

    pub(crate) fn set_next_poll(&self, participant: &str, next_us: u64) {
        self.with(participant, |status| status.next_poll_us = Some(next_us));
    }

    fn with(&self, participant: &str, change: impl FnOnce(&mut PollStatus)) {
        let mut participants = self.participants.lock();
        change(participants.entry(participant.to_owned()).or_default());
    }
}
