//! Logs one line for every denial; no decision waits for the log.
//!
//! A decision appends a record of the denial to a queue and goes on. The log thread takes the
//! records out, hashes the keys and emits the events. While nobody reads the log, the queue fills;
//! then further denials are counted instead, and the count is logged and exported.
//!
//! A queue has several stripes, so that threads do not compete for one end. A decision tries the
//! stripe of its thread, and then the others, and never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Dispatch;

use super::denial_record::{DenialKind, DenialRecord};
use super::key_hash::KeyHasher;
use super::log::{self, DecisionEvent};
use super::log_thread::{self, LogSource, Urgency};
use super::timestamp;
use super::trace_ids::TraceIds;
use super::word_ring::{NotAppended, WordRing};
use crate::clock::Stopwatch;
use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::failure::OnFailure;

const STRIPES: usize = 8;

/// The most that waits to be logged of one limiter is eight times this: 4 MiB, some 75,000 denials
/// with keys of 24 bytes.
const STRIPE_WORDS: usize = 1 << 16;

/// After taking this many records out of a full stripe, the log thread lets decisions append to it again.
const WRITTEN_BEFORE_MORE: usize = 1_024;

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
    /// audit. Lines are written by another thread; denials that find its queue full, or in use by
    /// other threads, are counted and not written.
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
    stripes: [WordRing; STRIPES],
    /// One bit for each stripe, set by a denial that found no room there, so that the next ones do
    /// not try. The log thread clears it.
    full: AtomicU8,
    dropped: AtomicU64,
    /// Only the log thread locks it.
    reports: Mutex<DropReports>,
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
            stripes: std::array::from_fn(|_| WordRing::new(STRIPE_WORDS)),
            full: AtomicU8::new(0),
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
        if !self.try_push(key, decision, took, decided_us) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        log_thread::wake_if_asleep();
    }

    #[inline]
    fn try_push(
        &self,
        key: &[u8],
        decision: &Decision,
        took: impl FnOnce() -> Duration,
        decided_us: impl FnOnce() -> u64,
    ) -> bool {
        let full = self.full.load(Ordering::Relaxed);
        if full == u8::MAX {
            return false;
        }
        // Complete before a stripe is locked: then only the copy is between the two.
        let ids = TraceIds::capture();
        let record = DenialRecord::new(key, decision, ids.as_ref(), took(), decided_us());
        let words = record.words();
        let own = super::stripe::of_thread();
        for turn in 0..STRIPES {
            let at = (own + turn) % STRIPES;
            if full & (1 << at) != 0 {
                continue;
            }
            match self.stripes[at].append(words) {
                Ok(append) => {
                    record.write(append);
                    return true;
                }
                Err(NotAppended::Busy) => {}
                Err(NotAppended::Full) => {
                    self.full.fetch_or(1 << at, Ordering::Relaxed);
                }
            }
        }
        false
    }

    /// Denials that were not logged.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn emit(&self, record: &DenialRecord<Vec<u8>, TraceIds>) {
        let key = record.key.as_slice();
        let timestamp = timestamp::at_us(record.decided_us);
        let ids = record.ids.as_ref();
        let event = DecisionEvent {
            policy: &self.policy,
            storage_mode: self.storage_mode,
            strategy: super::strategy_word(record.is_window),
            reason: record.kind.reason(),
            retry_after_ms: record.wait_us.map(|us| us.div_ceil(1_000)),
            remaining: record.remaining,
            took: record.took,
            key_hash: (!key.is_empty()).then(|| self.hasher.hash(key)),
            suppressed: None,
            timestamp: Some(&timestamp),
            trace_id: ids.and_then(TraceIds::trace_id),
            span_id: ids.and_then(TraceIds::span_id),
        };
        match record.kind {
            DenialKind::OverLimit | DenialKind::OverCapacity => log::denied(&event),
            DenialKind::BadKey(bad) => log::bad_key(&event, bad),
            #[cfg(feature = "redis")]
            DenialKind::Fallback(failure) => {
                log::fallback(&event, self.on_failure, false, failure);
            }
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

    /// Writes what each stripe holds now, and not what is queued meanwhile, so that a flood cannot
    /// keep the log thread here.
    fn drain_stripes(&self) -> usize {
        let mut lines = 0;
        for (at, stripe) in self.stripes.iter().enumerate() {
            let open = || {
                // A decision may have found the stripe full just before it was emptied.
                if self.full.load(Ordering::Relaxed) & (1 << at) != 0 {
                    self.full.fetch_and(!(1 << at), Ordering::Relaxed);
                }
            };
            stripe.take(|words| {
                self.emit(&DenialRecord::read(words));
                lines += 1;
                if lines % WRITTEN_BEFORE_MORE == 0 {
                    open();
                }
            });
            open();
        }
        lines
    }
}

impl LogSource for DenialQueue {
    fn drain(&self, urgency: Urgency) -> usize {
        log::in_dispatch(&self.dispatch, || {
            let lines = self.drain_stripes();
            self.report_dropped(urgency);
            lines
        })
    }
}
