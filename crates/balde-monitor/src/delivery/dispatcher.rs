//! The dispatcher: one worker for each sink.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use balde::Clock;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::counters::Counters;
use super::settings::{DeliveryError, DeliverySettings};
use super::summary::DeliverySummary;
use super::worker::SinkWorker;
use crate::history::{History, HistoryError, RoutedEvent};
use crate::sink::Sink;

/// Delivers the messages of the outbox to their sinks.
///
/// ```no_run
/// # async fn example(
/// #     history: balde_monitor::history::History,
/// #     shutdown: impl Future<Output = ()>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use balde_monitor::delivery::{DeliverySettings, Dispatcher};
/// use balde_monitor::sink::{HttpSettings, LogSink, Sink, Slack};
///
/// let slack = Slack::new("https://hooks.slack.com/services/…", &HttpSettings::default())?;
/// let sinks = vec![
///     ("log".to_owned(), Sink::Log(LogSink)),
///     ("chat".to_owned(), Sink::Slack(slack)),
/// ];
/// let clock = balde::Clock::precise();
/// let dispatcher = Dispatcher::new(&history, clock, &DeliverySettings::default(), sinks)?;
/// dispatcher.run(shutdown).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dispatcher {
    workers: Vec<Arc<SinkWorker>>,
    clock: Clock,
}

impl Dispatcher {
    /// Creates a worker for each sink. Each worker delivers the outbox messages that are addressed to
    /// the sink's name.
    pub fn new(
        history: &History,
        clock: Clock,
        settings: &DeliverySettings,
        sinks: Vec<(String, Sink)>,
    ) -> Result<Self, DeliveryError> {
        settings.check(sinks.iter().map(|(name, _)| name.as_str()))?;
        let worker = |(name, sink)| SinkWorker::new(name, sink, history.clone(), settings.clone());
        Ok(Self {
            workers: sinks.into_iter().map(worker).map(Arc::new).collect(),
            clock,
        })
    }

    /// Wakes the workers after a commit that added messages to the outbox. Without a call, the
    /// workers find new messages within 30 seconds.
    pub fn wake(&self) {
        for worker in &self.workers {
            worker.wake();
        }
    }

    /// Delivers messages until `shutdown`, then waits for those in flight, at most for the
    /// [shutdown timeout](DeliverySettings::shutdown_timeout). What is not delivered by then stays
    /// in the outbox.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for worker in &self.workers {
            tasks.spawn(Arc::clone(worker).run(self.clock.clone(), stopped.clone()));
        }
        shutdown.await;
        stop.send_replace(true);
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(
                    target: "balde_monitor",
                    event_type = "delivery_worker_failed",
                    "a delivery worker panicked; its messages stay in the outbox: {error}"
                );
            }
        }
    }

    /// Delivers messages that were given to [`send_from_memory`](Dispatcher::send_from_memory) until
    /// `shutdown`. Runs besides [`run`](Dispatcher::run), also in a monitor that does not lead.
    pub async fn run_from_memory(&self, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for worker in &self.workers {
            tasks.spawn(Arc::clone(worker).run_from_memory(self.clock.clone(), stopped.clone()));
        }
        shutdown.await;
        stop.send_replace(true);
        while tasks.join_next().await.is_some() {}
    }

    /// Sends events to their sinks without the outbox, because the database accepts no writes. An
    /// event that is sent here and recorded in the database later is not sent again.
    pub fn send_from_memory(&self, events: &[RoutedEvent]) {
        for routed in events {
            for (sink, class) in &routed.sinks {
                let worker = self.workers.iter().find(|worker| worker.name() == sink);
                if let Some(worker) = worker {
                    worker.send_from_memory(routed.event.clone(), *class);
                }
            }
        }
    }

    /// Attempts every message that is due at `now_us` once, for all sinks concurrently, and returns
    /// after `within` at the latest. For callers that schedule deliveries themselves.
    pub async fn deliver_once(
        &self,
        now_us: u64,
        within: Duration,
    ) -> Result<DeliverySummary, HistoryError> {
        let mut passes = JoinSet::new();
        for worker in &self.workers {
            let pass = Arc::clone(worker).pass(now_us);
            passes.spawn(async move { tokio::time::timeout(within, pass).await });
        }
        let mut summary = DeliverySummary::default();
        let mut database_error = None;
        while let Some(ended) = passes.join_next().await {
            match ended {
                Ok(Ok(Ok(pass))) => {
                    summary.delivered += pass.delivered;
                    summary.failed += pass.failed;
                }
                Ok(Ok(Err(error))) => database_error = Some(error),
                Ok(Err(_)) | Err(_) => summary.unfinished += 1,
            }
        }
        match database_error {
            Some(error) => Err(error),
            None => Ok(summary),
        }
    }

    /// Returns the counters of each sink, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &Counters)> {
        self.workers
            .iter()
            .map(|worker| (worker.name(), worker.counters()))
    }
}
