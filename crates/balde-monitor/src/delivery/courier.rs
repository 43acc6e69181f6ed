//! One sink's letters.

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

use crate::delivery::patience::WHOLE_PER_MILLE;
use crate::delivery::report::Report;
use crate::delivery::{DeliverySettings, Round, Tally};
use crate::history::{History, HistoryError, Letter};
use crate::sink::{Failure, RETRY_AFTER_MAX, Sink};

/// The longest that a courier sleeps: a letter that nobody announced is found by then.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The shortest that a courier sleeps when it found nothing that it could do.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(50);

/// The longest wait for a database that is away.
const DATABASE_WAIT_MAX: Duration = Duration::from_secs(5);

/// And the first.
const DATABASE_WAIT: Duration = Duration::from_millis(100);

/// The most letters that one pass delivers: a bound, not a goal.
const PASS_LETTERS_MAX: u64 = 100_000;

/// Carries one sink's letters.
pub(super) struct Courier {
    name: String,
    sink: Sink,
    history: History,
    settings: DeliverySettings,
    tally: Tally,
    report: Report,
    news: Notify,
    on_their_way: Mutex<BTreeSet<i64>>,
    /// Held from looking at what is due to claiming it, and to give a claim back. Otherwise a
    /// letter could arrive between the two, and be taken for one that is still due.
    desk: tokio::sync::Mutex<()>,
    /// Until when the receiver asked to be left alone, with all letters.
    quiet_until_us: AtomicU64,
}

impl Courier {
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
            tally: Tally::default(),
            report: Report::default(),
            news: Notify::new(),
            on_their_way: Mutex::default(),
            desk: tokio::sync::Mutex::default(),
            quiet_until_us: AtomicU64::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn wake(&self) {
        // Kept for a courier that is not listening just now.
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
                // Its letter is due again at once; it must not be tried in a circle.
                sleep(DATABASE_WAIT_MAX).await;
            }
        }
        let landing = async { while flights.join_next().await.is_some() {} };
        if timeout(self.settings.finish_within, landing).await.is_err() {
            Report::cut_short(&self.name, flights.len());
        }
    }

    /// Tries everything that is due at `now_us`, once.
    pub(super) async fn pass(self: Arc<Self>, now_us: u64) -> Result<Round, HistoryError> {
        let now = Now::At(now_us);
        let mut flights = JoinSet::new();
        let mut round = Round::default();
        while round.delivered + round.failed < PASS_LETTERS_MAX {
            let sent_off = self.send_off(&mut flights, &now).await;
            // On an error what is on its way still lands.
            match flights.join_next().await {
                Some(Ok(Landing::Arrived { .. })) => round.delivered += 1,
                Some(Ok(Landing::Failed { .. }) | Err(_)) => round.failed += 1,
                None => return sent_off.map(|_| round),
            }
        }
        Ok(round)
    }

    /// Sends off as many letters as may be on their way, and says how long to wait for more.
    async fn send_off(
        self: &Arc<Self>,
        flights: &mut JoinSet<Landing>,
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
        let at_desk = self.desk.lock().await;
        // Those on their way are still due, and come first.
        let known = self.on_their_way.lock().len();
        let due = self.history.due(&self.name, now_us, known + room).await?;
        let mut sent = 0;
        for letter in due {
            if sent == room {
                break;
            }
            if let Some(claim) = Claim::on(self, letter.id) {
                let courier = Arc::clone(self);
                let now = now.clone();
                flights.spawn(async move {
                    let landing = courier.carry(&letter, &now).await;
                    let _at_desk = courier.desk.lock().await;
                    drop(claim);
                    landing
                });
                sent += 1;
            }
        }
        drop(at_desk);
        if sent == room {
            return Ok(LOOK_EVERY);
        }
        self.look(now_us).await
    }

    /// Nothing more is due: until when, and how much there is.
    async fn look(&self, now_us: u64) -> Result<Duration, HistoryError> {
        let backlog = self.history.backlog().await?;
        let own = backlog.iter().find(|one| one.sink == self.name);
        self.tally.set_waiting(own.map_or(0, |one| one.waiting));
        let next_us = self.history.next_due_us(&self.name).await?;
        let wait = next_us.map_or(LOOK_EVERY, |next_us| {
            Duration::from_micros(next_us.saturating_sub(now_us))
        });
        Ok(wait.clamp(LOOK_AT_MOST_EVERY, LOOK_EVERY))
    }

    /// Delivers one letter and writes down what came of it.
    async fn carry(&self, letter: &Letter, now: &Now) -> Landing {
        let landing = match self.sink.deliver(letter, now.us()).await {
            Ok(()) => {
                self.tally.count_delivered();
                self.report.arrived(&self.name);
                Landing::Arrived { at_us: now.us() }
            }
            Err(failure) => {
                self.tally.count_failed(failure.is_transient());
                let now_us = now.us();
                let next_us = self.next_us(letter, &failure, now_us);
                self.report
                    .failed(&self.name, letter, &failure, now_us, next_us);
                let error = failure.to_string();
                Landing::Failed { next_us, error }
            }
        };
        // Until it is written: a letter that arrived, and is not known to, would arrive again.
        let mut troubles = 0;
        while let Err(error) = self.write_down(letter.id, &landing).await {
            self.report.database(&self.name, &error, now.us());
            sleep(database_wait(troubles)).await;
            troubles += 1;
        }
        landing
    }

    async fn write_down(&self, letter: i64, landing: &Landing) -> Result<(), HistoryError> {
        match landing {
            Landing::Arrived { at_us } => self.history.delivered(letter, *at_us).await,
            Landing::Failed { next_us, error } => {
                self.history.postponed(letter, *next_us, error).await
            }
        }
    }

    fn next_us(&self, letter: &Letter, failure: &Failure, now_us: u64) -> u64 {
        let us = |wait: Duration| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        if let Some(wait) = failure.retry_after() {
            let quiet_us = now_us.saturating_add(us(wait));
            self.quiet_until_us.store(quiet_us, Ordering::Release);
        }
        let chance = fastrand::u32(0..=WHOLE_PER_MILLE);
        let patience = self.settings.patience;
        now_us.saturating_add(us(patience.wait(letter.attempts, failure, chance)))
    }
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier")
            .field("name", &self.name)
            .field("sink", &self.sink)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

/// What became of a letter.
enum Landing {
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

/// A letter that is on its way, and is not to be sent off again meanwhile. Given back when dropped,
/// also by a panic or a shutdown.
struct Claim {
    courier: Arc<Courier>,
    letter: i64,
}

impl Claim {
    fn on(courier: &Arc<Courier>, letter: i64) -> Option<Self> {
        let is_free = courier.on_their_way.lock().insert(letter);
        is_free.then(|| Self {
            courier: Arc::clone(courier),
            letter,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.courier.on_their_way.lock().remove(&self.letter);
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
