//! The storage check: notices within seconds that the database accepts no writes, sends an alert about
//! it from memory, and stores what was kept in memory when the database is back.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use balde::Backoff;
use tokio::time::{sleep, timeout};

use crate::alert::Event;
use crate::alert::WITHOUT_STORAGE;
use crate::cycle::{Cycle, Unstored};
use crate::history::{Failure, History, HistoryError, RoutedEvent};
use crate::status::Status;

/// When the storage check probes, and when it sends an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageTiming {
    /// How often a small write checks a database that works.
    pub probe_every: Duration,
    /// The longest that this write may take.
    pub probe_timeout: Duration,
    /// How long writes must have failed before an alert is sent. A failover of the database is
    /// usually over by then.
    pub alert_after: Duration,
}

impl Default for StorageTiming {
    /// A probe every 10 s that may take 8 s, and an alert after 15 s: 33 s at most from the fault to
    /// the alert.
    fn default() -> Self {
        Self {
            probe_every: Duration::from_secs(10),
            probe_timeout: Duration::from_secs(8),
            alert_after: Duration::from_secs(15),
        }
    }
}

/// The waits between attempts to recover.
const RECOVERY_WAITS: Backoff =
    Backoff::new(Duration::from_millis(250), Duration::from_secs(2)).expect("in range");

/// The longest that opening the database again may take.
const REOPEN_MAX: Duration = Duration::from_secs(30);

/// How often a lasting failure is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Boxed, because the compiler cannot prove such deep futures to be `Send` otherwise.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(crate) struct StorageCheck {
    cycle: Cycle,
    status: Arc<Status>,
    timing: StorageTiming,
    /// Events about the database that the database has not recorded yet.
    unrecorded: Vec<Event>,
    last_logged_us: Option<u64>,
}

impl StorageCheck {
    pub(crate) fn new(cycle: Cycle, status: Arc<Status>, timing: StorageTiming) -> Self {
        Self {
            cycle,
            status,
            timing,
            unrecorded: Vec::new(),
            last_logged_us: None,
        }
    }

    /// Runs until `shutdown` completes. Then it tries once more to store what is in memory.
    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        tokio::select! {
            never = self.check() => match never {},
            () = &mut shutdown => {}
        }
        let health = self.cycle.components().history.health().clone();
        if health.failure().is_none() {
            return;
        }
        let recovered = timeout(self.timing.probe_timeout, self.recover()).await;
        let unstored = self.cycle.unstored();
        if !matches!(recovered, Ok(Ok(()))) && unstored != Unstored::default() {
            tracing::error!(
                target: "balde_monitor",
                event_type = "history_lost",
                polls = unstored.polls,
                events = unstored.events,
                changes = unstored.changes,
                "the monitor stops while its database accepts no writes: what it kept in memory is \
                 lost"
            );
        }
    }

    async fn check(&mut self) -> std::convert::Infallible {
        loop {
            let health = self.cycle.components().history.health().clone();
            match health.failure() {
                None => {
                    if let Err(error) = self.probe().await {
                        health.fail(self.now_us(), &error.to_string());
                        continue;
                    }
                    // A change of an operator may wait in memory because one write was slow.
                    let _tried_again_at_the_next_probe = self.flush_changes().await;
                    tokio::select! {
                        () = sleep(self.timing.probe_every) => {}
                        () = health.suspected() => {
                            // Many errors at once cause one probe.
                            sleep(self.timing.probe_every.min(Duration::from_millis(100))).await;
                        }
                    }
                }
                Some(failure) => self.while_failing(failure).await,
            }
        }
    }

    /// Tries to recover until that succeeds, and sends the alert meanwhile.
    async fn while_failing(&mut self, failure: Failure) {
        let since_us = failure.since_us;
        self.log_failure(&failure);
        self.send_alert(&failure);
        for attempt in 0.. {
            let health = self.cycle.components().history.health().clone();
            match self.recover().await {
                Ok(()) => {
                    // Only now: until here, everything is judged from memory.
                    health.restore();
                    return self.finish(since_us).await;
                }
                Err(error) => health.fail(self.now_us(), &error.to_string()),
            }
            if let Some(failure) = health.failure() {
                self.log_failure(&failure);
                self.send_alert(&failure);
            }
            sleep(RECOVERY_WAITS.delay(attempt)).await;
        }
    }

    /// Opens the database again, stores everything that was kept in memory, and probes.
    fn recover(&mut self) -> Boxed<'_, Result<(), HistoryError>> {
        Box::pin(self.recover_once())
    }

    async fn recover_once(&mut self) -> Result<(), HistoryError> {
        let history = &self.cycle.components().history;
        if history.is_open() {
            let reopened = timeout(REOPEN_MAX, reopen(history.clone())).await;
            reopened.map_err(|_| unresponsive(REOPEN_MAX))??;
        } else {
            // The first migration may take long.
            reopen(history.clone()).await?;
        }
        self.probe().await?;
        self.cycle.flush().await?;
        if self.status.is_leader() {
            let directory = &self.cycle.components().sink_directory;
            let events = self.unrecorded.iter().cloned();
            let events: Vec<_> = events.map(|event| directory.route_to_all(event)).collect();
            record(history.clone(), events).await?;
        }
        self.unrecorded.clear();
        Ok(())
    }

    fn probe(&self) -> Boxed<'static, Result<(), HistoryError>> {
        let history = self.cycle.components().history.clone();
        let (within, now_us) = (self.timing.probe_timeout, self.now_us());
        Box::pin(async move {
            let probed = timeout(within, history.probe(now_us)).await;
            probed.unwrap_or_else(|_| Err(unresponsive(within)))
        })
    }

    fn flush_changes(&self) -> Boxed<'static, Result<(), HistoryError>> {
        let (cycle, within) = (self.cycle.clone(), self.timing.probe_timeout);
        Box::pin(async move {
            let flushed = timeout(within, cycle.flush_changes()).await;
            flushed.unwrap_or_else(|_| Err(unresponsive(within)))
        })
    }

    fn log_failure(&mut self, failure: &Failure) {
        let now_us = self.now_us();
        let log_every_us = u64::try_from(LOG_EVERY.as_micros()).unwrap_or(u64::MAX);
        let is_due = |last_us: u64| now_us.saturating_sub(last_us) >= log_every_us;
        if !self.last_logged_us.is_none_or(is_due) {
            return;
        }
        self.last_logged_us = Some(now_us);
        let unstored = self.cycle.unstored();
        tracing::error!(
            target: "balde_monitor",
            event_type = "storage_failed",
            cause = failure.cause,
            failing_for_s = now_us.saturating_sub(failure.since_us) / 1_000_000,
            unstored_polls = unstored.polls,
            unstored_events = unstored.events,
            unstored_changes = unstored.changes,
            "the database accepts no writes; the monitor tries to recover. {WITHOUT_STORAGE}"
        );
    }

    fn send_alert(&mut self, failure: &Failure) {
        let remind_every_us = self.cycle.components().staleness.remind_every_us;
        let alert_after = self.timing.alert_after.as_micros();
        let timing = (
            u64::try_from(alert_after).unwrap_or(u64::MAX),
            remind_every_us,
        );
        let now_us = self.now_us();
        let silences = self.cycle.remembered_silences();
        let mut alert = self.cycle.storage_alert();
        let (since_us, cause) = (failure.since_us, &failure.cause);
        let event = alert.failing(since_us, cause, now_us, timing, &silences);
        drop(alert);
        if let Some(event) = event {
            self.send(event);
        }
    }

    async fn finish(&mut self, since_us: u64) {
        self.last_logged_us = None;
        let now_us = self.now_us();
        tracing::info!(
            target: "balde_monitor",
            event_type = "storage_recovered",
            failed_for_s = now_us.saturating_sub(since_us) / 1_000_000,
            "the database accepts writes again; everything that was kept in memory is stored"
        );
        let recovered = self.cycle.storage_alert().recovered(now_us);
        if let Some(event) = recovered {
            let components = self.cycle.components();
            let routed = vec![components.sink_directory.route_to_all(event.clone())];
            // By the outbox if possible, which survives a crash. What a standby monitor has sent from
            // memory is not known to the leader, which reads the outbox.
            let recorded = if self.status.is_leader() {
                record(components.history.clone(), routed).await.is_ok()
            } else {
                false
            };
            if !recorded {
                self.send(event);
            }
        }
        self.cycle.components().dispatcher.wake();
    }

    /// Sends an event to every sink from memory.
    fn send(&mut self, event: Event) {
        let components = self.cycle.components();
        let routed = components.sink_directory.route_to_all(event.clone());
        components.dispatcher.send_from_memory(&[routed]);
        self.unrecorded.push(event);
    }

    fn now_us(&self) -> u64 {
        self.cycle.components().time.now_us()
    }
}

/// Opens the database again. On another thread, because the futures of migrations are not `Send`.
fn reopen(history: History) -> Boxed<'static, Result<(), HistoryError>> {
    let runtime = tokio::runtime::Handle::current();
    let reopening = tokio::task::spawn_blocking(move || runtime.block_on(history.reopen()));
    Box::pin(async move {
        let interrupted = |error: tokio::task::JoinError| HistoryError::Unavailable {
            reason: error.to_string(),
        };
        reopening.await.map_err(interrupted)?
    })
}

fn record(history: History, events: Vec<RoutedEvent>) -> Boxed<'static, Result<(), HistoryError>> {
    Box::pin(async move { history.record(&events).await })
}

fn unresponsive(within: Duration) -> HistoryError {
    HistoryError::Unavailable {
        reason: format!("no response within {} s", within.as_secs_f32()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alert_is_out_within_a_minute() {
        let timing = StorageTiming::default();
        let longest = timing.probe_every + timing.probe_timeout + timing.alert_after;
        // A fault that begins right after a probe; recovery attempts delay the alert further.
        assert!(longest + timing.probe_timeout <= Duration::from_secs(50));
    }
}
