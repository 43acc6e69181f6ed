//! Logs one line for every denial; no decision waits for the log.
//!
//! A decision appends the denial to a queue and goes on. The log thread takes the denials out, hashes the
//! keys and emits the events. While nobody reads the log, the queue fills; then further denials are
//! counted instead, and the count is logged and exported.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Dispatch;

use super::key_hash::KeyHasher;
use super::log::{self, DecisionEvent};
use super::log_thread::{self, LogSource, Urgency};
use super::timestamp;
use super::trace_ids::TraceIds;
use crate::clock::Stopwatch;
use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::failure::OnFailure;

/// The most denials of one limiter that wait to be logged: about 4 MiB.
const QUEUED_MAX: usize = 16_384;

/// While denials are dropped, their number is logged this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Which denials a limiter logs. See
/// [`RateLimiterBuilder::denials`](crate::RateLimiterBuilder::denials).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denials {
    /// One line at once, then one per second with the number of denials in between. The default.
    #[default]
    Summary,
    /// One line for each denial, whether by the limit, by the failure policy or for a bad key: for
    /// audit. Lines are written by another thread; denials that find its queue full are counted and not
    /// written.
    Every,
}

/// The denials of one limiter that wait to be logged.
pub(crate) struct DenialQueue {
    policy: String,
    storage_mode: &'static str,
    hasher: KeyHasher,
    #[cfg(feature = "redis")]
    on_failure: Option<OnFailure>,
    /// The subscriber of the thread that built the limiter, for programs without a global one.
    dispatch: Dispatch,
    queued: Mutex<VecDeque<Denial>>,
    dropped: AtomicU64,
    /// Only the log thread locks it.
    reports: Mutex<DropReports>,
}

/// A denial that waits to be logged.
struct Denial {
    decision: Decision,
    /// Empty if the key is bad: such a key may be of any length, and is not hashed.
    key: Box<[u8]>,
    took: Duration,
    decided_us: u64,
    ids: Option<TraceIds>,
}

struct DropReports {
    /// What was logged about dropped denials.
    reported: u64,
    reported_at: Option<Stopwatch>,
}

impl DenialQueue {
    pub(super) fn new(policy: &str, storage_mode: &'static str, hasher: KeyHasher) -> Self {
        Self {
            policy: policy.to_owned(),
            storage_mode,
            hasher,
            #[cfg(feature = "redis")]
            on_failure: None,
            dispatch: tracing::dispatcher::get_default(Dispatch::clone),
            queued: Mutex::default(),
            dropped: AtomicU64::new(0),
            reports: Mutex::new(DropReports {
                reported: 0,
                reported_at: None,
            }),
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn with_on_failure(self, on_failure: Option<OnFailure>) -> Self {
        Self { on_failure, ..self }
    }

    /// Registers the queue with the log thread.
    pub(super) fn start(self) -> Arc<Self> {
        let queue = Arc::new(self);
        log_thread::add(Arc::clone(&queue) as Arc<dyn LogSource>);
        queue
    }

    /// Queues a denial, or counts it as dropped. Never waits.
    pub(super) fn push(
        &self,
        key: &[u8],
        decision: &Decision,
        took: impl FnOnce() -> Duration,
        decided_us: impl FnOnce() -> u64,
    ) {
        let denial = Denial {
            decision: *decision,
            key: match decision.bad_key() {
                Some(_) => Box::default(),
                None => key.into(),
            },
            took: took(),
            decided_us: decided_us(),
            ids: TraceIds::capture(),
        };
        let mut queued = self.queued.lock();
        if queued.len() < QUEUED_MAX {
            queued.push_back(denial);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        drop(queued);
        log_thread::wake_if_asleep();
    }

    /// Denials that were not logged.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn emit(&self, denial: &Denial) {
        let Denial { decision, key, .. } = denial;
        let timestamp = timestamp::at_us(denial.decided_us);
        let ids = denial.ids.as_ref();
        let event = DecisionEvent {
            policy: &self.policy,
            storage_mode: self.storage_mode,
            strategy: super::strategy(decision.limit()),
            reason: super::reason(decision),
            retry_after_ms: super::retry_after_ms(decision),
            remaining: decision.remaining(),
            took: denial.took,
            key_hash: (!key.is_empty()).then(|| self.hasher.hash(key)),
            suppressed: None,
            timestamp: Some(&timestamp),
            trace_id: ids.and_then(TraceIds::trace_id),
            span_id: ids.and_then(TraceIds::span_id),
        };
        #[cfg(feature = "redis")]
        if let Some(failure) = decision.failure() {
            log::fallback(&event, self.on_failure, false, failure);
            return;
        }
        match decision.bad_key() {
            Some(bad) => log::bad_key(&event, bad),
            None => log::denied(&event),
        }
    }

    /// Logs how many denials were dropped, once a second or when everything is written out.
    fn report_dropped(&self, urgency: Urgency) {
        let mut reports = self.reports.lock();
        let dropped = self.dropped();
        let is_due = urgency == Urgency::Flush
            || reports
                .reported_at
                .is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if dropped == reports.reported || !is_due {
            return;
        }
        let since = dropped - reports.reported;
        reports.reported = dropped;
        reports.reported_at = Some(Stopwatch::start());
        log::denials_dropped(&self.policy, self.storage_mode, since);
    }
}

impl LogSource for DenialQueue {
    fn drain(&self, urgency: Urgency) -> usize {
        log::in_dispatch(&self.dispatch, || {
            // What is queued meanwhile waits, so that a flood cannot keep the log thread here.
            let queued = std::mem::take(&mut *self.queued.lock());
            for denial in &queued {
                self.emit(denial);
            }
            self.report_dropped(urgency);
            queued.len()
        })
    }
}
