//! The worker of one sink.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use balde::{Backoff, Clock};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::counters::Counters;
use super::log::DeliveryLog;
use super::memory_queue::{InOutbox, MemoryQueue, Next};
use super::retry::{self, JITTER_MAX};
use super::settings::DeliverySettings;
use super::summary::DeliverySummary;
use crate::alert::{Event, OutboxMessage, SinkClass};
use crate::history::{History, HistoryError};
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
    /// Messages that are delivered while the database accepts no writes.
    memory: Mutex<MemoryQueue>,
    memory_wakeup: Notify,
    /// Set when the sink works again after it was unavailable.
    is_back: AtomicBool,
    /// Messages that were delivered, but could not be marked.
    unmarked: Mutex<Vec<(Claim, u64)>>,
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
            memory: Mutex::default(),
            memory_wakeup: Notify::new(),
            is_back: AtomicBool::new(false),
            unmarked: Mutex::default(),
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

    /// Delivers an event without the outbox.
    pub(super) fn send_from_memory(&self, event: Event, class: SinkClass) {
        let message = OutboxMessage {
            id: 0,
            sink: self.name.clone(),
            class,
            event,
            attempts: 0,
        };
        if let Some(dropped) = self.memory.lock().push(message) {
            DeliveryLog::dropped(&self.name, &dropped);
        }
        self.memory_wakeup.notify_one();
    }

    /// Delivers messages from memory until it is stopped, and then waits for those in flight.
    pub(super) async fn run_from_memory(
        self: Arc<Self>,
        clock: Clock,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut tasks = JoinSet::new();
        loop {
            let now_us = clock.now_us();
            let mut wait = self.paused(now_us);
            while wait.is_none() && tasks.len() < self.settings.concurrent {
                let next = self.memory.lock().next(now_us);
                match next {
                    Next::Send(message) => {
                        let (worker, now) = (Arc::clone(&self), Now::Clock(clock.clone()));
                        tasks
                            .spawn(async move { worker.deliver_from_memory(&message, &now).await });
                    }
                    Next::WaitUntil { us } => {
                        wait = Some(Duration::from_micros(us.saturating_sub(now_us)));
                    }
                    Next::Nothing => break,
                }
            }
            self.counters
                .set_waiting_in_memory(self.memory.lock().waiting());
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                Some(_) = tasks.join_next() => {}
                () = self.memory_wakeup.notified() => {}
                () = sleep(wait.unwrap_or(POLL_INTERVAL).clamp(POLL_INTERVAL_MIN, POLL_INTERVAL)) => {}
            }
        }
        let finish = async { while tasks.join_next().await.is_some() {} };
        let _finished_or_not = timeout(self.settings.shutdown_timeout, finish).await;
        let undelivered = self.memory.lock().waiting();
        if undelivered > 0 {
            DeliveryLog::lost(&self.name, undelivered);
        }
    }

    async fn deliver_from_memory(&self, message: &OutboxMessage, now: &Now) {
        let key = &message.event.key;
        match self.attempt(message, now).await {
            DeliveryResult::Delivered { at_us } => self.memory.lock().delivered(key, at_us),
            DeliveryResult::Failed { next_us, .. } => self.memory.lock().failed(key, next_us),
        }
    }

    /// The rest of the receiver's Retry-After. One that is longer than any was set by a clock that
    /// has been set back since.
    fn paused(&self, now_us: u64) -> Option<Duration> {
        let until_us = self.paused_until_us.load(Ordering::Acquire);
        let left = Duration::from_micros(until_us.saturating_sub(now_us));
        (!left.is_zero() && left <= RETRY_AFTER_MAX).then_some(left)
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
        if let Some(paused) = self.paused(now_us) {
            return Ok(paused.min(POLL_INTERVAL));
        }
        self.mark_delivered().await?;
        if self.is_back.swap(false, Ordering::AcqRel)
            && let Err(error) = self.history.make_due(&self.name, now_us).await
        {
            self.is_back.store(true, Ordering::Release);
            self.log.database_failed(&self.name, &error, now_us);
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
            let Some(claim) = Claim::new(self, message.id) else {
                continue;
            };
            let key = &message.event.key;
            let in_memory = self.memory.lock().in_outbox(key);
            match in_memory {
                InOutbox::Send => {
                    let (worker, now) = (Arc::clone(self), now.clone());
                    tasks.spawn(async move { worker.deliver(claim, message, &now).await });
                    started += 1;
                }
                InOutbox::Leave => {}
                InOutbox::Mark { at_us } => {
                    self.history.mark_delivered(message.id, at_us).await?;
                    self.memory.lock().forget(key);
                }
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

    /// Delivers one message and records the result. While the result cannot be recorded, a failed
    /// delivery is retried from here, and a message that was delivered keeps its claim, so that it is
    /// not sent again.
    async fn deliver(
        self: Arc<Self>,
        claim: Claim,
        mut message: OutboxMessage,
        now: &Now,
    ) -> DeliveryResult {
        loop {
            let result = self.attempt(&message, now).await;
            let Err(error) = self.record(message.id, &result).await else {
                let _claiming = self.claim_lock.lock().await;
                drop(claim);
                return result;
            };
            self.log.database_failed(&self.name, &error, now.us());
            self.history.health().suspect();
            match (&result, now) {
                (DeliveryResult::Delivered { at_us }, _) => {
                    self.unmarked.lock().push((claim, *at_us));
                    return result;
                }
                // A pass at a fixed time attempts every message once.
                (DeliveryResult::Failed { .. }, Now::Fixed(_)) => {
                    let _claiming = self.claim_lock.lock().await;
                    drop(claim);
                    return result;
                }
                (DeliveryResult::Failed { next_us, .. }, Now::Clock(clock)) => {
                    while clock.now_us() < *next_us {
                        let left = Duration::from_micros(next_us.saturating_sub(clock.now_us()));
                        sleep(left.clamp(POLL_INTERVAL_MIN, DATABASE_DELAY_MAX)).await;
                    }
                    message.attempts = message.attempts.saturating_add(1);
                }
            }
        }
    }

    /// Marks messages that were delivered while the database accepted no writes.
    async fn mark_delivered(&self) -> Result<(), HistoryError> {
        loop {
            let next = self
                .unmarked
                .lock()
                .first()
                .map(|(claim, at_us)| (claim.message_id, *at_us));
            let Some((message_id, at_us)) = next else {
                return Ok(());
            };
            if let Err(error) = self.history.mark_delivered(message_id, at_us).await {
                // While it can be read, due messages are sent all the same.
                self.log.database_failed(&self.name, &error, at_us);
                return Ok(());
            }
            let _claiming = self.claim_lock.lock().await;
            self.unmarked
                .lock()
                .retain(|(claim, _)| claim.message_id != message_id);
        }
    }

    async fn attempt_in_words(&self, message: &OutboxMessage, now: &Now) -> Result<(), SendError> {
        let wording = &self.settings.wording;
        self.sink.deliver(message, now.us(), wording).await
    }

    /// Attempts one delivery.
    async fn attempt(&self, message: &OutboxMessage, now: &Now) -> DeliveryResult {
        match self.attempt_in_words(message, now).await {
            Ok(()) => {
                self.counters.count_delivered();
                if self.log.delivered(&self.name) {
                    // What waits for its next attempt need not wait any longer.
                    self.is_back.store(true, Ordering::Release);
                    self.memory.lock().hurry();
                    self.memory_wakeup.notify_one();
                }
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
        }
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
