//! One line for every denial, without a decision that waits for its line.
//!
//! A decision appends a record of the denial to a queue and goes on. The log thread takes the
//! records out, hashes the keys and emits the events. While nobody reads the log, the queue fills;
//! then further denials are counted instead, and the count is logged and exported.
//!
//! A queue has several stripes, so that threads do not compete for one end. A decision tries to lock
//! the stripe of its thread, and then the others, and never waits. The log thread holds a lock only
//! while it exchanges a stripe's records for an empty buffer.
//!
//! Memory that another thread has read is slow to write. So the newest records of a stripe are in a
//! small buffer, which is copied out when it is full and stays in the cache of the deciding thread:
//! one decision in [`RECENT_MAX`] pays for the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
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

/// Longer keys are allocated.
const SHORT_KEY_BYTES: usize = 46;

const STRIPES: usize = 8;

/// A stripe never grows beyond this, so that no decision pays for a larger one.
const STRIPE_MAX: usize = DENIALS_MAX / STRIPES;

/// The newest records of a stripe, which the log thread leaves alone while more come. Few enough for
/// a processor's first cache.
const RECENT_MAX: usize = 256;

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
    /// The subscriber of the thread that built the limiter, for programs without a global one.
    dispatch: Dispatch,
    stripes: [Stripe; STRIPES],
    /// One bit for each stripe, set by the denial that takes its last place, so that the next ones
    /// do not try. Cleared when the log thread has taken the records out.
    full: AtomicU8,
    dropped: AtomicU64,
    /// Only the log thread locks it.
    draining: Mutex<Draining>,
}

#[repr(align(128))]
struct Stripe(Mutex<Records>);

struct Records {
    /// At most [`RECENT_MAX`].
    recent: Vec<Record>,
    /// Those before them. With the recent ones at most [`STRIPE_MAX`].
    ready: Vec<Record>,
    /// Whether recent records became ready since the log thread was here. Then the others will soon.
    is_busy: bool,
}

/// A denial, as small as it can be: each is copied by the decision.
struct Record {
    kind: DenialKind,
    decided_us: u64,
    /// `u64::MAX` if there is no wait.
    wait_us: u64,
    remaining: u64,
    ids: Option<Box<TraceIds>>,
    key: Key,
    took_ns: u32,
    is_window: bool,
}

/// A key; most are short enough to be copied without an allocation.
enum Key {
    Short(u8, [u8; SHORT_KEY_BYTES]),
    Long(Box<[u8]>),
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

struct Draining {
    /// The empty buffer that the next stripe gets in exchange for its records.
    spare: Vec<Record>,
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
            stripes: std::array::from_fn(|_| Stripe(Mutex::new(Records::new()))),
            full: AtomicU8::new(0),
            dropped: AtomicU64::new(0),
            draining: Mutex::new(Draining {
                spare: empty_buffer(STRIPE_MAX),
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
        let record = || Record::new(key, decision, took(), decided_us());
        if !self.try_push(record) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        log_thread::wake_if_asleep();
    }

    fn try_push(&self, record: impl FnOnce() -> Record) -> bool {
        let own = super::stripe::of_thread();
        let full = self.full.load(Ordering::Relaxed);
        let turns = (0..STRIPES).map(|turn| (own + turn) % STRIPES);
        let mut open = turns.filter(|at| full & (1 << at) == 0);
        let found = open.find_map(|at| {
            let records = self.stripes[at].0.try_lock()?;
            (!records.are_full()).then_some((at, records))
        });
        let Some((at, mut records)) = found else {
            return false;
        };
        records.push(record());
        if records.are_full() {
            self.full.fetch_or(1 << at, Ordering::Relaxed);
        }
        true
    }

    /// Denials that were not logged.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn emit(&self, record: &Record) {
        let key = record.key.as_bytes();
        let timestamp = timestamp::at_us(record.decided_us);
        let ids = record.ids.as_deref();
        let event = DecisionEvent {
            policy: &self.policy,
            storage_mode: self.storage_mode,
            strategy: super::strategy_word(record.is_window),
            reason: record.kind.reason(),
            retry_after_ms: (record.wait_us < u64::MAX).then(|| record.wait_us.div_ceil(1_000)),
            remaining: record.remaining,
            took: Duration::from_nanos(record.took_ns.into()),
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
        let mut reports = self.draining.lock();
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
    fn drain_stripes(&self, urgency: Urgency) -> usize {
        let mut lines = 0;
        let mut draining = self.draining.lock();
        for (at, stripe) in self.stripes.iter().enumerate() {
            {
                let mut records = stripe.0.lock();
                records.take(urgency, &mut draining.spare);
                if draining.spare.is_empty() {
                    continue;
                }
                self.full.fetch_and(!(1 << at), Ordering::Relaxed);
            }
            lines += draining.spare.len();
            for record in draining.spare.drain(..) {
                self.emit(&record);
            }
        }
        lines
    }
}

impl LogSource for DenialQueue {
    fn drain(&self, urgency: Urgency) -> usize {
        log::in_dispatch(&self.dispatch, || {
            let lines = self.drain_stripes(urgency);
            self.report_dropped(urgency);
            lines
        })
    }
}

impl Records {
    fn new() -> Self {
        Self {
            recent: empty_buffer(RECENT_MAX),
            ready: empty_buffer(STRIPE_MAX),
            is_busy: false,
        }
    }

    fn are_full(&self) -> bool {
        self.recent.len() == RECENT_MAX
    }

    /// Appends a record. There is room for it.
    fn push(&mut self, record: Record) {
        self.recent.push(record);
        // Room for the next recent ones is kept, so that the log thread can always take them too.
        if self.are_full() && self.ready.len() + 2 * RECENT_MAX <= STRIPE_MAX {
            self.ready.append(&mut self.recent);
            self.is_busy = true;
        }
    }

    /// Exchanges the records for an empty buffer. The recent ones stay while they come fast.
    fn take(&mut self, urgency: Urgency, spare: &mut Vec<Record>) {
        if urgency == Urgency::Flush || !self.is_busy || self.are_full() {
            self.ready.append(&mut self.recent);
        }
        self.is_busy = false;
        std::mem::swap(&mut self.ready, spare);
    }
}

/// Room for records. The pages are written once: otherwise one decision in fifty would wait for the
/// system to give it a page.
fn empty_buffer(records_max: usize) -> Vec<Record> {
    let mut buffer = Vec::with_capacity(records_max);
    buffer.resize_with(records_max, Record::blank);
    buffer.clear();
    buffer
}

impl Key {
    fn new(key: &[u8]) -> Self {
        let mut short = [0; SHORT_KEY_BYTES];
        match (short.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(bytes), Ok(length)) => {
                bytes.copy_from_slice(key);
                Self::Short(length, short)
            }
            _ => Self::Long(key.into()),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
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

impl Record {
    fn blank() -> Self {
        Self {
            kind: DenialKind::OverLimit,
            decided_us: 0,
            wait_us: u64::MAX,
            remaining: 0,
            ids: None,
            key: Key::Short(0, [0; SHORT_KEY_BYTES]),
            took_ns: 0,
            is_window: false,
        }
    }

    fn new(key: &[u8], decision: &Decision, took: Duration, decided_us: u64) -> Self {
        let kind = DenialKind::of(decision);
        // A bad key may be of any length, and is not hashed.
        let key = match kind {
            DenialKind::BadKey(_) => &[],
            _ => key,
        };
        Self {
            kind,
            decided_us,
            wait_us: match decision.wait() {
                Wait::Us(us) => us,
                Wait::None | Wait::Never => u64::MAX,
            },
            remaining: decision.remaining(),
            ids: TraceIds::capture(),
            key: Key::new(key),
            took_ns: u32::try_from(took.as_nanos()).unwrap_or(u32::MAX),
            is_window: decision.limit().strategy() == Strategy::FixedWindow,
        }
    }
}
