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

use balde_core::{Strategy, Wait};
use parking_lot::Mutex;
use tracing::Dispatch;

use super::key_hash::KeyHasher;
use super::log::{self, DecisionEvent};
use super::log_thread::{self, LogSource, Urgency};
use super::timestamp;
use super::trace_ids::TraceIds;
use crate::clock::Stopwatch;
use crate::decision::{Decision, Reason};
#[cfg(feature = "redis")]
use crate::failure::{OnFailure, StoreFailure};
use crate::key::BadKey;

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
    /// One line for each denial, whether by the limit, by the failure policy or for a bad key: for
    /// audit. Lines are written by another thread; denials that it cannot keep up with are counted
    /// and not written.
    Every,
}

/// The denials of one limiter that wait to be logged.
pub(crate) struct DenialQueue {
    policy: String,
    storage_mode: &'static str,
    hasher: KeyHasher,
    #[cfg(feature = "redis")]
    on_failure: Option<OnFailure>,
    stripes: [Stripe; STRIPES],
    /// Set when all stripes were found full, so that the next denials need not look at each.
    is_full: AtomicBool,
    dropped: AtomicU64,
    reader: Mutex<Reader>,
}

#[repr(align(128))]
struct Stripe(Mutex<Batch>);

/// Records in order, and their keys one after the other.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    keys: Vec<u8>,
    /// The subscriber of the thread that began this batch.
    dispatch: Option<Dispatch>,
}

/// A denial, as small as it can be: each is copied by the decision.
struct Record {
    kind: DenialKind,
    decided_us: u64,
    took: Duration,
    wait: Wait,
    remaining: u64,
    ids: Option<Box<TraceIds>>,
    key_bytes: u32,
    is_window: bool,
}

/// Why a decision was a denial.
#[derive(Clone, Copy)]
enum DenialKind {
    OverLimit,
    OverCapacity,
    BadKey(BadKey),
    #[cfg(feature = "redis")]
    Fallback(StoreFailure),
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
    pub(super) fn new(policy: &str, storage_mode: &'static str, hasher: KeyHasher) -> Self {
        Self {
            policy: policy.to_owned(),
            storage_mode,
            hasher,
            #[cfg(feature = "redis")]
            on_failure: None,
            stripes: std::array::from_fn(|_| Stripe(Mutex::new(Batch::prepared()))),
            is_full: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            reader: Mutex::new(Reader {
                spare: Batch::prepared(),
                ..Reader::default()
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
    pub(super) fn push(&self, key: &[u8], decision: &Decision, took: Duration, decided_us: u64) {
        let is_full = self.is_full.load(Ordering::Relaxed);
        if is_full || !self.try_push(key, decision, took, decided_us) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        log_thread::wake_if_asleep();
    }

    /// Denials that were not logged.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn try_push(&self, key: &[u8], decision: &Decision, took: Duration, decided_us: u64) -> bool {
        let own = super::stripe::of_thread();
        let mut is_full = true;
        for turn in 0..STRIPES {
            let stripe = &self.stripes[(own + turn) % STRIPES];
            let Some(mut batch) = stripe.0.try_lock() else {
                is_full = false;
                continue;
            };
            if batch.has_room(key) {
                batch.push(key, decision, took, decided_us);
                return true;
            }
        }
        self.is_full.store(is_full, Ordering::Relaxed);
        false
    }

    fn emit(&self, record: &Record, key: &[u8]) {
        let timestamp = timestamp::at_us(record.decided_us);
        let ids = record.ids.as_deref();
        let event = DecisionEvent {
            policy: &self.policy,
            storage_mode: self.storage_mode,
            strategy: super::strategy_word(record.is_window),
            reason: record.kind.reason(),
            retry_after_ms: super::wait_ms(record.wait),
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
            // Locked for an exchange of pointers.
            std::mem::swap(&mut *stripe.0.lock(), &mut batch);
            self.is_full.store(false, Ordering::Relaxed);
            lines += batch.records.len();
            if let Some(dispatch) = batch.dispatch.take() {
                log::in_dispatch(Some(&dispatch), || {
                    let mut keys = batch.keys.as_slice();
                    for record in &batch.records {
                        let (key, rest) = keys.split_at(record.key_bytes as usize);
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

impl DenialKind {
    fn of(decision: &Decision) -> Self {
        #[cfg(feature = "redis")]
        if let Some(failure) = decision.failure() {
            return Self::Fallback(failure);
        }
        match decision.reason() {
            Reason::BadKey(bad) => Self::BadKey(bad),
            Reason::OverCapacity => Self::OverCapacity,
            _ => Self::OverLimit,
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::OverLimit => "over_limit",
            Self::OverCapacity => "over_capacity",
            Self::BadKey(_) => "bad_key",
            #[cfg(feature = "redis")]
            Self::Fallback(failure) => failure.as_str(),
        }
    }
}

impl Batch {
    /// An empty batch whose memory has been touched: otherwise one decision in fifty would wait for
    /// the system to give it a page.
    fn prepared() -> Self {
        let blank = || Record {
            kind: DenialKind::OverLimit,
            decided_us: 0,
            took: Duration::ZERO,
            wait: Wait::None,
            remaining: 0,
            ids: None,
            key_bytes: 0,
            is_window: false,
        };
        let mut batch = Self::default();
        batch.records.resize_with(DENIALS_MAX / STRIPES, blank);
        batch.keys.resize(KEY_BYTES_MAX / STRIPES, 1);
        batch.clear();
        batch
    }

    fn has_room(&self, key: &[u8]) -> bool {
        self.records.len() < DENIALS_MAX / STRIPES
            && self.keys.len() + key.len() <= KEY_BYTES_MAX / STRIPES
    }

    fn push(&mut self, key: &[u8], decision: &Decision, took: Duration, decided_us: u64) {
        if self.records.is_empty() {
            self.dispatch = Some(tracing::dispatcher::get_default(Dispatch::clone));
        }
        let kind = DenialKind::of(decision);
        // A bad key may be of any length, and is not hashed.
        let key = match kind {
            DenialKind::BadKey(_) => &[],
            _ => key,
        };
        self.keys.extend_from_slice(key);
        self.records.push(Record {
            kind,
            decided_us,
            took,
            wait: decision.wait(),
            remaining: decision.remaining(),
            ids: TraceIds::capture(),
            key_bytes: u32::try_from(key.len()).unwrap_or(u32::MAX),
            is_window: decision.limit().strategy() == Strategy::FixedWindow,
        });
    }

    fn clear(&mut self) {
        self.records.clear();
        self.keys.clear();
    }
}
