//! The monitor's own status, read by its health checks, its status page and its metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use crate::coverage::Coverage;
use crate::cycle::FetchError;

/// The longest time between two iterations of the scheduling loop before it counts as stalled,
/// measured by a monotonic clock.
const LOOP_STALL_MAX: Duration = Duration::from_secs(60);

/// The status of a running monitor.
#[derive(Debug, Default)]
pub struct Status {
    is_leader: watch::Sender<bool>,
    last_iteration: Mutex<Option<Instant>>,
    participants: Mutex<BTreeMap<String, PollStatus>>,
    revision: AtomicU64,
    /// How often each participant was polled and judged, or could not be.
    revisions: Mutex<BTreeMap<String, u64>>,
    certificates: Mutex<BTreeMap<String, u64>>,
    coverage: Mutex<BTreeMap<String, Vec<Coverage>>>,
}

/// The polling status of one participant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PollStatus {
    /// Successful polls since the start.
    pub successes: u64,
    /// Failures since the start, by their labels.
    pub failures: BTreeMap<&'static str, u64>,
    /// The time of the last successful poll.
    pub last_success_us: Option<u64>,
    /// The duration of the last successful poll.
    pub last_duration_us: Option<u64>,
    /// The last error, if there was one since the last successful poll.
    pub last_error: Option<String>,
    /// The label of that error, as in `failures`.
    pub last_error_label: Option<&'static str>,
    /// The time of the next poll, which may be brought forward.
    pub next_poll_us: Option<u64>,
}

impl Status {
    /// Returns true if this monitor is the leader, which polls and delivers.
    pub fn is_leader(&self) -> bool {
        *self.is_leader.borrow()
    }

    /// Returns true if the scheduling loop has iterated within the last minute.
    pub fn is_loop_running(&self) -> bool {
        let last = *self.last_iteration.lock();
        last.is_some_and(|last| last.elapsed() < LOOP_STALL_MAX)
    }

    /// The polling status of each participant.
    pub fn participants(&self) -> BTreeMap<String, PollStatus> {
        self.participants.lock().clone()
    }

    /// A number that changes whenever something may have changed that the page shows.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// A number that changes whenever a participant was polled and judged, or could not be.
    pub(crate) fn revision_of(&self, participant: &str) -> u64 {
        let revisions = self.revisions.lock();
        revisions.get(participant).copied().unwrap_or(0)
    }

    fn record_change_of(&self, participant: &str) {
        let mut revisions = self.revisions.lock();
        *revisions.entry(participant.to_owned()).or_default() += 1;
    }

    pub(crate) fn record_change(&self) {
        self.revision.fetch_add(1, Ordering::Relaxed);
    }

    /// When the client certificate of each participant expires, for those that have one.
    pub fn certificates(&self) -> BTreeMap<String, u64> {
        self.certificates.lock().clone()
    }

    /// What can be missed of each participant's buckets between two samples.
    pub fn coverage(&self) -> BTreeMap<String, Vec<Coverage>> {
        self.coverage.lock().clone()
    }

    /// Replaces the coverage of a participant. Logs the buckets that can be emptied and recover
    /// unseen, whenever those are others than before.
    pub(crate) fn set_coverage(&self, participant: &str, coverage: &[Coverage]) {
        let gaps = |coverage: &[Coverage]| -> Vec<String> {
            let incomplete = coverage.iter().filter(|one| !one.is_complete());
            incomplete.map(|one| one.policy.clone()).collect()
        };
        let now = gaps(coverage);
        let before = self
            .coverage
            .lock()
            .insert(participant.to_owned(), coverage.to_vec());
        if before.is_none_or(|before| gaps(&before) != now) && !now.is_empty() {
            tracing::info!(
                event_type = "coverage",
                participant,
                policies = now.join(" "),
                "these buckets can be emptied and recover between two reads; raise read_share \
                 to read them more often"
            );
        }
    }

    pub(crate) fn set_certificate_expiry(&self, participant: &str, expires_us: u64) {
        let mut certificates = self.certificates.lock();
        certificates.insert(participant.to_owned(), expires_us);
    }

    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.is_leader.send_replace(is_leader);
        self.record_change();
    }

    /// Waits until this monitor is the leader, or until it is not.
    pub(crate) async fn wait_for_leadership(&self, is_leader: bool) {
        let mut changes = self.is_leader.subscribe();
        // The sender is a field of `self`, so the channel cannot be closed here.
        let _never_closed = changes.wait_for(|now| *now == is_leader).await;
    }

    pub(crate) fn record_loop_iteration(&self) {
        *self.last_iteration.lock() = Some(Instant::now());
    }

    pub(crate) fn record_success(&self, participant: &str, now_us: u64, duration_us: u64) {
        self.with(participant, |status| {
            status.successes += 1;
            status.last_success_us = Some(now_us);
            status.last_duration_us = Some(duration_us);
            status.last_error = None;
            status.last_error_label = None;
        });
    }

    pub(crate) fn record_failure(&self, participant: &str, error: &FetchError) {
        self.record_error(participant, error.label(), error.to_string());
    }

    pub(crate) fn record_error(&self, participant: &str, label: &'static str, error: String) {
        self.with(participant, |status| {
            *status.failures.entry(label).or_default() += 1;
            status.last_error = Some(error);
            status.last_error_label = Some(label);
        });
        self.record_change_of(participant);
    }

    /// Sets when a participant is polled next, which is known when the last poll has been judged.
    pub(crate) fn set_next_poll(&self, participant: &str, next_poll_us: u64) {
        self.with(participant, |status| {
            status.next_poll_us = Some(next_poll_us);
        });
        self.record_change_of(participant);
    }

    fn with(&self, participant: &str, change: impl FnOnce(&mut PollStatus)) {
        {
            let mut participants = self.participants.lock();
            change(participants.entry(participant.to_owned()).or_default());
        }
        self.record_change();
    }
}
