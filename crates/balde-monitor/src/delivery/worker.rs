//! The worker of one sink.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde::{Backoff, Clock};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::counters::Counters;
use super::log::DeliveryLog;
use super::retry::{self, JITTER_MAX};
use super::settings::DeliverySettings;
use super::summary::DeliverySummary;
use crate::history::{History, HistoryError, OutboxMessage};
use crate::sink::{RETRY_AFTER_MAX, SendError, Sink};

/// How often the outbox is read even if nothing wakes the worker.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The shortest wait between two reads of the outbox that find nothing to send.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The first and the longest delay between attempts while the database is unavailable.
const DATABASE_DELAY: Duration = Duration::from_millis(100);
const DATABASE_DELAY_MAX: Duration = Duration::from_secs(5);

/// The most messages that one pass sends.
const PASS_MESSAGES_MAX: u64 = 100_000;

/// Delivers the messages of one sink.
pub(super) struct SinkWorker {
    name: String,
    sink: Sink,
    history: History,
    settings: DeliverySettings,
    counters: Counters,
    log: DeliveryLog,
    wakeup: Notify,
    /// The ids of the messages in flight.
    in_flight: Mutex<BTreeSet<i64>>,
    /// Held while due messages are read and claimed, and while a claim is released. Otherwise a
    /// message could be delivered in between, and be sent again as one that is still due.
    claim_lock: tokio::sync::Mutex<()>,
    /// The end of the receiver's last Retry-After, which applies to all messages.
    paused_until_us: AtomicU64,
}

impl SinkWorker {
    pub(super) fn new(
        name: String,
        sink: Sink,
        history: History,
        settings: DeliverySettings,
    ) -> Self {
        Self {
            name,
            sink,
            history,
            settings,
            counters: Counters::default(),
            log: DeliveryLog::default(),
            wakeup: Notify::new(),
            in_flight: Mutex::default(),
            claim_lock: tokio::sync::Mutex::default(),
            paused_until_us: AtomicU64::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn wake(&self) {
        // `notify_one` stores the wakeup if the worker is busy.
        self.wakeup.notify_one();
    }

    /// Delivers messages until it is stopped, and then waits for those in flight.
    pub(super) async fn run(self: Arc<Self>, clock: Clock, mut stop: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        let mut database_failures = 0;
        loop {
            let now = Now::Clock(clock.clone());
            let started = tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                started = self.start_due(&mut tasks, &now) => started,
            };
            let wait = match started {
                Ok(wait) => {
                    database_failures = 0;
                    wait
                }
                Err(error) => {
                    self.log.database_failed(&self.name, &error, clock.now_us());
                    let wait = database_delay(database_failures);
                    database_failures += 1;
                    wait
                }
            };
            let has_panicked = tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                Some(ended) = tasks.join_next() => ended.is_err(),
                () = self.wakeup.notified(), if database_failures == 0 => false,
                () = sleep(wait) => false,
            };
            if has_panicked {
                // The message is due again at once. Without the delay this would be a busy loop.
                sleep(DATABASE_DELAY_MAX).await;
            }
        }
        let finish = async { while tasks.join_next().await.is_some() {} };
        if timeout(self.settings.shutdown_timeout, finish)
            .await
            .is_err()
        {
            DeliveryLog::interrupted(&self.name, tasks.len());
        }
    }

    /// Attempts every message that is due at `now_us` once.
    pub(super) async fn pass(
        self: Arc<Self>,
        now_us: u64,
    ) -> Result<DeliverySummary, HistoryError> {
        let now = Now::Fixed(now_us);
        let mut tasks = JoinSet::new();
        let mut summary = DeliverySummary::default();
        while summary.delivered + summary.failed < PASS_MESSAGES_MAX {
            let started = self.start_due(&mut tasks, &now).await;
            // After a database error, the messages in flight are still waited for.
            match tasks.join_next().await {
                Some(Ok(DeliveryResult::Delivered { .. })) => summary.delivered += 1,
                Some(Ok(DeliveryResult::Failed { .. }) | Err(_)) => summary.failed += 1,
                None => return started.map(|_| summary),
            }
        }
        Ok(summary)
    }

    /// Starts as many due deliveries as the settings allow, and returns how long to wait for more.
    async fn start_due(
        self: &Arc<Self>,
        tasks: &mut JoinSet<DeliveryResult>,
        now: &Now,
    ) -> Result<Duration, HistoryError> {
        let now_us = now.us();
        let paused_us = self
            .paused_until_us
            .load(Ordering::Acquire)
            .saturating_sub(now_us);
        // A pause longer than any Retry-After was set by a clock that has been set back since.
        let is_plausible = Duration::from_micros(paused_us) <= RETRY_AFTER_MAX;
        if paused_us > 0 && is_plausible {
            return Ok(Duration::from_micros(paused_us).min(POLL_INTERVAL));
        }
        let free = self.settings.concurrent.saturating_sub(tasks.len());
        if free == 0 {
            return Ok(POLL_INTERVAL);
        }
        let claiming = self.claim_lock.lock().await;
        // Messages in flight are still due in the database, and come first.
        let in_flight = self.in_flight.lock().len();
        let due = self
            .history
            .due_messages(&self.name, now_us, in_flight + free)
            .await?;
        let mut started = 0;
        for message in due {
            if started == free {
                break;
            }
            if let Some(claim) = Claim::new(self, message.id) {
                let worker = Arc::clone(self);
                let now = now.clone();
                tasks.spawn(async move {
                    let result = worker.deliver(&message, &now).await;
                    let _claiming = worker.claim_lock.lock().await;
                    drop(claim);
                    result
                });
                started += 1;
            }
        }
        drop(claiming);
        if started == free {
            return Ok(POLL_INTERVAL);
        }
        self.wait_for_due(now_us).await
    }

    /// Returns how long to wait until the next message is due, and updates the backlog counter.
    async fn wait_for_due(&self, now_us: u64) -> Result<Duration, HistoryError> {
        let backlog = self.history.backlog().await?;
        let own = backlog.iter().find(|one| one.sink == self.name);
        self.counters.set_waiting(own.map_or(0, |one| one.waiting));
        let next_us = self.history.next_due_us(&self.name).await?;
        let wait = next_us.map_or(POLL_INTERVAL, |next_us| {
            Duration::from_micros(next_us.saturating_sub(now_us))
        });
        Ok(wait.clamp(POLL_INTERVAL_MIN, POLL_INTERVAL))
    }

    /// Attempts one delivery and records the result.
    async fn deliver(&self, message: &OutboxMessage, now: &Now) -> DeliveryResult {
        let result = match self.sink.deliver(message, now.us()).await {
            Ok(()) => {
                self.counters.count_delivered();
                self.log.delivered(&self.name);
                DeliveryResult::Delivered { at_us: now.us() }
            }
            Err(error) => {
                self.counters.count_failed(error.is_transient());
                let now_us = now.us();
                let next_us = self.next_attempt_us(message, &error, now_us);
                self.log
                    .failed(&self.name, message, &error, now_us, next_us);
                let error = error.to_string();
                DeliveryResult::Failed { next_us, error }
            }
        };
        // Until it succeeds: a delivered message that is not marked would be delivered again.
        let mut failures = 0;
        while let Err(error) = self.record(message.id, &result).await {
            self.log.database_failed(&self.name, &error, now.us());
            sleep(database_delay(failures)).await;
            failures += 1;
        }
        result
    }

    async fn record(&self, message_id: i64, result: &DeliveryResult) -> Result<(), HistoryError> {
        match result {
            DeliveryResult::Delivered { at_us } => {
                self.history.mark_delivered(message_id, *at_us).await
            }
            DeliveryResult::Failed { next_us, error } => {
                self.history.mark_failed(message_id, *next_us, error).await
            }
        }
    }

    fn next_attempt_us(&self, message: &OutboxMessage, error: &SendError, now_us: u64) -> u64 {
        let us = |wait: Duration| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        if let Some(wait) = error.retry_after() {
            let paused_until_us = now_us.saturating_add(us(wait));
            self.paused_until_us
                .store(paused_until_us, Ordering::Release);
        }
        let jitter = fastrand::u32(0..=JITTER_MAX);
        let delay = retry::delay(self.settings.backoff, message.attempts, error, jitter);
        now_us.saturating_add(us(delay))
    }
}

impl fmt::Debug for SinkWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkWorker")
            .field("name", &self.name)
            .field("sink", &self.sink)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// The result of one delivery attempt.
enum DeliveryResult {
    Delivered { at_us: u64 },
    Failed { next_us: u64, error: String },
}

/// A fixed time, or the time of a clock.
#[derive(Clone)]
enum Now {
    Fixed(u64),
    Clock(Clock),
}

impl Now {
    fn us(&self) -> u64 {
        match self {
            Self::Fixed(us) => *us,
            Self::Clock(clock) => clock.now_us(),
        }
    }
}

/// Marks a message as in flight, so that it is not sent twice at once. Dropping it, also in a panic
/// or a shutdown, releases the message.
struct Claim {
    worker: Arc<SinkWorker>,
    message_id: i64,
}

impl Claim {
    fn new(worker: &Arc<SinkWorker>, message_id: i64) -> Option<Self> {
        let is_free = worker.in_flight.lock().insert(message_id);
        is_free.then(|| Self {
            worker: Arc::clone(worker),
            message_id,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.worker.in_flight.lock().remove(&self.message_id);
    }
}

fn database_delay(failures: u32) -> Duration {
    let backoff = Backoff::new(DATABASE_DELAY, DATABASE_DELAY_MAX);
    backoff.unwrap_or_default().delay(failures)
}

/// Resolves when the worker is stopped, or when the sender is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|is_stopped| *is_stopped).await);
}
