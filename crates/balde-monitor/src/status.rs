//! How the monitor itself is doing: what its health checks and its own metrics go by.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use crate::cycle::GetError;

/// How long the loop may go without a turn before it counts as stuck, whatever any clock says.
pub const STUCK_AFTER: Duration = Duration::from_secs(60);

/// How the monitor itself is doing.
#[derive(Debug, Default)]
pub struct Status {
    is_leader: watch::Sender<bool>,
    turned: Mutex<Option<Instant>>,
    participants: Mutex<BTreeMap<String, Standing>>,
}

/// How asking about one participant goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Answers since the start.
    pub answers: u64,
    /// Failures since the start, by their short names.
    pub failures: BTreeMap<&'static str, u64>,
    /// When the last good answer came.
    pub answered_us: Option<u64>,
    /// How long it took.
    pub took_us: Option<u64>,
    /// What was wrong last, if anything since the last answer.
    pub trouble: Option<String>,
    /// When it is asked about again at the latest.
    pub next_us: Option<u64>,
}

impl Status {
    /// Whether this monitor is the one that polls.
    pub fn is_leader(&self) -> bool {
        *self.is_leader.borrow()
    }

    /// Whether the loop has had a turn lately.
    pub fn is_turning(&self) -> bool {
        let turned = *self.turned.lock();
        turned.is_some_and(|turned| turned.elapsed() < STUCK_AFTER)
    }

    /// How asking about each participant goes.
    pub fn participants(&self) -> BTreeMap<String, Standing> {
        self.participants.lock().clone()
    }

    pub(crate) fn lead(&self, is_leader: bool) {
        self.is_leader.send_replace(is_leader);
    }

    /// Waits until this monitor leads, or until it does not.
    pub(crate) async fn until_leading(&self, is_leading: bool) {
        let mut told = self.is_leader.subscribe();
        // The sender is this very status.
        let _never_gone = told.wait_for(|now| *now == is_leading).await;
    }

    pub(crate) fn turned(&self) {
        *self.turned.lock() = Some(Instant::now());
    }

    pub(crate) fn answered(&self, participant: &str, now_us: u64, took_us: u64) {
        self.with(participant, |standing| {
            standing.answers += 1;
            standing.answered_us = Some(now_us);
            standing.took_us = Some(took_us);
            standing.trouble = None;
        });
    }

    pub(crate) fn failed(&self, participant: &str, error: &GetError) {
        self.trouble(participant, error.label(), error.to_string());
    }

    pub(crate) fn trouble(&self, participant: &str, label: &'static str, why: String) {
        self.with(participant, |standing| {
            *standing.failures.entry(label).or_default() += 1;
            standing.trouble = Some(why);
        });
    }

    pub(crate) fn next(&self, participant: &str, next_us: u64) {
        self.with(participant, |standing| standing.next_us = Some(next_us));
    }

    fn with(&self, participant: &str, change: impl FnOnce(&mut Standing)) {
        let mut participants = self.participants.lock();
        change(participants.entry(participant.to_owned()).or_default());
    }
}
