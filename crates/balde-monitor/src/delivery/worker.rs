//! One sink's messages.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::delivery::backoff::WHOLE_PER_MILLE;
use crate::delivery::log::DeliveryLog;
use crate::delivery::{Counters, DeliverySettings, DeliverySummary};
use crate::history::{History, HistoryError, OutboxMessage};
use crate::sink::{RETRY_AFTER_MAX, SendError, Sink};

/// The longest that a worker sleeps: a message that nobody announced is found by then.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The shortest that a worker sleeps when it found nothing that it could do.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(50);

/// The longest wait for a database that is away.
const DATABASE_WAIT_MAX: Duration = Duration::from_secs(5);

/// And the first.
const DATABASE_WAIT: Duration = Duration::from_millis(100);

/// The most messages that one pass delivers: a bound, not a goal.
const PASS_MESSAGES_MAX: u64 = 100_000;

/// Carries one sink's messages.
pub(super) struct SinkWorker {
    name: String,
    sink: Sink,
    history: History,
    settings: DeliverySettings,
    counters: Counters,
    report: DeliveryLog,
    news: Notify,
    on_their_way: Mutex<BTreeSet<i64>>,
    /// Held from looking at what is due to claiming it, and to give a claim back. Otherwise a
    /// message could arrive between the two, and be taken for one that is still due.
    claim_lock: tokio::sync::Mutex<()>,
    /// Until when the receiver asked to be left alone, with all messages.
    quiet_until_us: AtomicU64,
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
            report: DeliveryLog::default(),
            news: Notify::new(),
            on_their_way: Mutex::default(),
            claim_lock: tokio::sync::Mutex::default(),
            quiet_until_us: AtomicU64::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn wake(&self) {
        // Kept for a worker that is not listening just now.
        self.news.notify_one();
    }

    /// Delivers until it is stopped, and then what is on its way.
    pub(super) async fn run(self: Arc<Self>, clock: Clock, mut stop: watch::Receiver<bool>) {
        let mut flights = JoinSet::new();
        let mut troubles = 0;
        loop {
            let now = Now::Clock(clock.clone());
            let sent_off = tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                sent_off = self.send_off(&mut flights, &now) => sent_off,
            };
            let wait = match sent_off {
                Ok(wait) => {
                    troubles = 0;
                    wait
                }
                Err(error) => {
                    self.report.database(&self.name, &error, clock.now_us());
                    let wait = database_wait(troubles);
                    troubles += 1;
                    wait
                }
            };
            let has_panicked = tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                Some(landed) = flights.join_next() => landed.is_err(),
                () = self.news.notified(), if troubles == 0 => false,
                () = sleep(wait) => false,
            };
            if has_panicked {
                // Its message is due again at once; it must not be tried in a circle.
                sleep(DATABASE_WAIT_MAX).await;
            }
        }
        let landing = async { while flights.join_next().await.is_some() {} };
        if timeout(self.settings.finish_within, landing).await.is_err() {
            DeliveryLog::cut_short(&self.name, flights.len());
        }
    }

    /// Tries everything that is due at `now_us`, once.
    pub(super) async fn pass(
        self: Arc<Self>,
        now_us: u64,
    ) -> Result<DeliverySummary, HistoryError> {
        let now = Now::At(now_us);
        let mut flights = JoinSet::new();
        let mut round = DeliverySummary::default();
        while round.delivered + round.failed < PASS_MESSAGES_MAX {
            let sent_off = self.send_off(&mut flights, &now).await;
            // On an error what is on its way still lands.
            match flights.join_next().await {
                Some(Ok(DeliveryResult::Arrived { .. })) => round.delivered += 1,
                Some(Ok(DeliveryResult::Failed { .. }) | Err(_)) => round.failed += 1,
                None => return sent_off.map(|_| round),
            }
        }
        Ok(round)
    }

    /// Sends off as many messages as may be on their way, and says how long to wait for more.
    async fn send_off(
        self: &Arc<Self>,
        flights: &mut JoinSet<DeliveryResult>,
        now: &Now,
    ) -> Result<Duration, HistoryError> {
        let now_us = now.us();
        let quiet_us = self
            .quiet_until_us
            .load(Ordering::Acquire)
            .saturating_sub(now_us);
        // Longer than anybody is left alone: that was by a clock that has been put back since.
        let is_absurd = Duration::from_micros(quiet_us) > RETRY_AFTER_MAX;
        if quiet_us > 0 && !is_absurd {
            return Ok(Duration::from_micros(quiet_us).min(LOOK_EVERY));
        }
        let room = self.settings.concurrent.saturating_sub(flights.len());
        if room == 0 {
            return Ok(LOOK_EVERY);
        }
        let claiming = self.claim_lock.lock().await;
        // Those on their way are still due, and come first.
        let known = self.on_their_way.lock().len();
        let due = self
            .history
            .due_messages(&self.name, now_us, known + room)
            .await?;
        let mut sent = 0;
        for message in due {
            if sent == room {
                break;
            }
            if let Some(claim) = Claim::on(self, message.id) {
                let worker = Arc::clone(self);
                let now = now.clone();
                flights.spawn(async move {
                    let landing = worker.carry(&message, &now).await;
                    let _claiming = worker.claim_lock.lock().await;
                    drop(claim);
                    landing
                });
                sent += 1;
            }
        }
        drop(claiming);
        if sent == room {
            return Ok(LOOK_EVERY);
        }
        self.look(now_us).await
    }

    /// Nothing more is due: until when, and how much there is.
    async fn look(&self, now_us: u64) -> Result<Duration, HistoryError> {
        let backlog = self.history.backlog().await?;
        let own = backlog.iter().find(|one| one.sink == self.name);
        self.counters.set_waiting(own.map_or(0, |one| one.waiting));
        let next_us = self.history.next_due_us(&self.name).await?;
        let wait = next_us.map_or(LOOK_EVERY, |next_us| {
            Duration::from_micros(next_us.saturating_sub(now_us))
        });
        Ok(wait.clamp(LOOK_AT_MOST_EVERY, LOOK_EVERY))
    }

    /// Delivers one message and writes down what came of it.
    async fn carry(&self, message: &OutboxMessage, now: &Now) -> DeliveryResult {
        let landing = match self.sink.deliver(message, now.us()).await {
            Ok(()) => {
                self.counters.count_delivered();
                self.report.arrived(&self.name);
                DeliveryResult::Arrived { at_us: now.us() }
            }
            Err(failure) => {
                self.counters.count_failed(failure.is_transient());
                let now_us = now.us();
                let next_us = self.next_us(message, &failure, now_us);
                self.report
                    .failed(&self.name, message, &failure, now_us, next_us);
                let error = failure.to_string();
                DeliveryResult::Failed { next_us, error }
            }
        };
        // Until it is written: a message that arrived, and is not known to, would arrive again.
        let mut troubles = 0;
        while let Err(error) = self.write_down(message.id, &landing).await {
            self.report.database(&self.name, &error, now.us());
            sleep(database_wait(troubles)).await;
            troubles += 1;
        }
        landing
    }

    async fn write_down(&self, message: i64, landing: &DeliveryResult) -> Result<(), HistoryError> {
        match landing {
            DeliveryResult::Arrived { at_us } => self.history.mark_delivered(message, *at_us).await,
            DeliveryResult::Failed { next_us, error } => {
                self.history.mark_failed(message, *next_us, error).await
            }
        }
    }

    fn next_us(&self, message: &OutboxMessage, failure: &SendError, now_us: u64) -> u64 {
        let us = |wait: Duration| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        if let Some(wait) = failure.retry_after() {
            let quiet_us = now_us.saturating_add(us(wait));
            self.quiet_until_us.store(quiet_us, Ordering::Release);
        }
        let chance = fastrand::u32(0..=WHOLE_PER_MILLE);
        let backoff = self.settings.backoff;
        now_us.saturating_add(us(backoff.wait(message.attempts, failure, chance)))
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

/// What became of a message.
enum DeliveryResult {
    Arrived { at_us: u64 },
    Failed { next_us: u64, error: String },
}

/// What time it is.
#[derive(Clone)]
enum Now {
    At(u64),
    Clock(Clock),
}

impl Now {
    fn us(&self) -> u64 {
        match self {
            Self::At(us) => *us,
            Self::Clock(clock) => clock.now_us(),
        }
    }
}

/// A message that is on its way, and is not to be sent off again meanwhile. Given back when dropped,
/// also by a panic or a shutdown.
struct Claim {
    worker: Arc<SinkWorker>,
    message: i64,
}

impl Claim {
    fn on(worker: &Arc<SinkWorker>, message: i64) -> Option<Self> {
        let is_free = worker.on_their_way.lock().insert(message);
        is_free.then(|| Self {
            worker: Arc::clone(worker),
            message,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.worker.on_their_way.lock().remove(&self.message);
    }
}

fn database_wait(troubles: u32) -> Duration {
    let doubled = DATABASE_WAIT.saturating_mul(1 << troubles.min(10));
    doubled.min(DATABASE_WAIT_MAX)
}

/// Also when whoever could say so is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|is_stopped| *is_stopped).await);
}
