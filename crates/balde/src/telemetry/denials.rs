//! One line for every denial, without a decision that waits for its line.
//!
//! A decision appends a record of the denial to a queue and goes on. The log thread takes the
//! records out, hashes the keys and emits the events. While nobody reads the log, the queue fills;
//! then further denials are counted instead, and the count is logged and exported.
//!
//! A queue has several stripes, each behind a lock that is held for a copy of some hundred bytes. A
//! decision never waits for one: it tries the stripe of its thread, and then the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// The most denials of one limiter that wait to be logged.
const DENIALS_MAX: usize = 65_536;

/// The most bytes that their keys may have.
const KEY_BYTES_MAX: usize = 64 * DENIALS_MAX;

const STRIPES: usize = 8;

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
    /// One line for each denial, for audit. Lines are written by another thread; denials that it
    /// cannot keep up with are counted and not written.
    Every,
}

/// The denials of one limiter that wait to be logged.
pub(crate) struct DenialQueue {
    policy: String,
    storage_mode: &'static str,
    hasher: KeyHasher,
    stripes: [Stripe; STRIPES],
    /// Set when all stripes were found full, so that the next denials need not look at each.
    is_full: AtomicBool,
    dropped: AtomicU64,
    reader: Mutex<Reader>,
}

#[repr(align(128))]
#[derive(Default)]
struct Stripe(Mutex<Batch>);

/// Records in order, and their keys one after the other.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    keys: Vec<u8>,
    /// The subscriber of the thread that began this batch.
    dispatch: Option<Dispatch>,
}

struct Record {
    decided: Stopwatch,
    took: Duration,
    retry_after_ms: Option<u64>,
    remaining: u64,
    reason: &'static str,
    strategy: &'static str,
    key_bytes: usize,
    ids: Option<Box<TraceIds>>,
}

/// What only the log thread uses.
#[derive(Default)]
struct Reader {
    /// An empty batch to exchange for a full one.
    spare: Batch,
    dispatch: Option<Dispatch>,
    reported: u64,
    reported_at: Option<Stopwatch>,
}

impl DenialQueue {
    /// Creates a queue and registers it with the log thread.
    pub(super) fn start(policy: &str, storage_mode: &'static str, hasher: KeyHasher) -> Arc<Self> {
        let queue = Arc::new(Self {
            policy: policy.to_owned(),
            storage_mode,
            hasher,
            stripes: Default::default(),
            is_full: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            reader: Mutex::default(),
        });
        log_thread::add(Arc::clone(&queue) as Arc<dyn LogSource>);
        queue
    }

    /// Queues a denial, or counts it as dropped. Never waits.
    pub(super) fn push(&self, key: &[u8], decision: &Decision, took: Duration) {
        if self.is_full.load(Ordering::Relaxed) || !self.try_push(key, decision, took) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        log_thread::wake_if_asleep();
    }

    /// Denials that were not logged.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn try_push(&self, key: &[u8], decision: &Decision, took: Duration) -> bool {
        let own = super::stripe::of_thread();
        let mut is_full = true;
        for turn in 0..STRIPES {
            let stripe = &self.stripes[(own + turn) % STRIPES];
            let Some(mut batch) = stripe.0.try_lock() else {
                is_full = false;
                continue;
            };
            if batch.has_room(key) {
                batch.push(key, decision, took);
                return true;
            }
        }
        self.is_full.store(is_full, Ordering::Relaxed);
        false
    }

    fn emit(&self, record: &Record, key: &[u8]) {
        let timestamp = timestamp::ago(record.decided.elapsed());
        let ids = record.ids.as_deref();
        log::denied(&DecisionEvent {
            policy: &self.policy,
            storage_mode: self.storage_mode,
            strategy: record.strategy,
            reason: record.reason,
            retry_after_ms: record.retry_after_ms,
            remaining: record.remaining,
            took: record.took,
            key_hash: Some(self.hasher.hash(key)),
            suppressed: None,
            timestamp: Some(&timestamp),
            trace_id: ids.and_then(TraceIds::trace_id),
            span_id: ids.and_then(TraceIds::span_id),
        });
    }

    /// Logs how many denials were dropped, once a second or when everything is written out.
    fn report_dropped(&self, reader: &mut Reader, urgency: Urgency) {
        let dropped = self.dropped();
        let is_due = urgency == Urgency::Flush
            || reader
                .reported_at
                .is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if dropped == reader.reported || !is_due {
            return;
        }
        let since = dropped - reader.reported;
        reader.reported = dropped;
        reader.reported_at = Some(Stopwatch::start());
        log::in_dispatch(reader.dispatch.as_ref(), || {
            log::denials_dropped(&self.policy, self.storage_mode, since);
        });
    }
}

impl LogSource for DenialQueue {
    fn drain(&self, urgency: Urgency) -> usize {
        let mut reader = self.reader.lock();
        let mut lines = 0;
        for stripe in &self.stripes {
            let mut batch = std::mem::take(&mut reader.spare);
            std::mem::swap(&mut *stripe.0.lock(), &mut batch);
            self.is_full.store(false, Ordering::Relaxed);
            lines += batch.records.len();
            if let Some(dispatch) = batch.dispatch.take() {
                log::in_dispatch(Some(&dispatch), || {
                    let mut keys = batch.keys.as_slice();
                    for record in &batch.records {
                        let (key, rest) = keys.split_at(record.key_bytes);
                        keys = rest;
                        self.emit(record, key);
                    }
                });
                reader.dispatch = Some(dispatch);
            }
            batch.clear();
            reader.spare = batch;
        }
        self.report_dropped(&mut reader, urgency);
        lines
    }
}

impl Batch {
    fn has_room(&self, key: &[u8]) -> bool {
        self.records.len() < DENIALS_MAX / STRIPES
            && self.keys.len() + key.len() <= KEY_BYTES_MAX / STRIPES
    }

    fn push(&mut self, key: &[u8], decision: &Decision, took: Duration) {
        if self.records.is_empty() {
            self.dispatch = Some(tracing::dispatcher::get_default(Dispatch::clone));
        }
        self.keys.extend_from_slice(key);
        self.records.push(Record {
            decided: Stopwatch::start(),
            took,
            retry_after_ms: super::retry_after_ms(decision),
            remaining: decision.remaining(),
            reason: super::reason(decision),
            strategy: super::strategy(decision.limit()),
            key_bytes: key.len(),
            ids: TraceIds::capture(),
        });
    }

    fn clear(&mut self) {
        self.records.clear();
        self.keys.clear();
    }
}
