//! Carries messages from the outbox to the sinks, until each has arrived.
//!
//! Every sink has a worker of its own, so one that is away delays no other. A worker takes the
//! oldest undelivered message of each episode, several episodes at once, and marks what arrived.
//! What did not is tried again, later and later, for as long as it takes: nothing is given up. A
//! crash between arriving and marking makes a message arrive twice, with the same key.

mod backoff;
mod counters;
mod log;
mod settings;
mod worker;

pub use backoff::Backoff;
pub use counters::Counters;
pub use settings::{CONCURRENT_MAX, DeliveryError, DeliverySettings, SINK_NAME_MAX, SINKS_MAX};

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use balde::Clock;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::worker::SinkWorker;
use crate::history::{History, HistoryError};
use crate::sink::Sink;

/// The dispatcher of all sinks.
///
/// ```no_run
/// # async fn example(
/// #     history: balde_monitor::history::History,
/// #     shutdown: impl Future<Output = ()>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use balde_monitor::delivery::{Dispatcher, DeliverySettings};
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
    dispatcher: Vec<Arc<SinkWorker>>,
    clock: Clock,
}

/// What one pass over the sinks did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliverySummary {
    /// Letters that arrived.
    pub delivered: u64,
    /// Letters that did not, and will be tried again.
    pub failed: u64,
    /// Sinks that were not done in the time there was.
    pub unfinished: u64,
}

impl Dispatcher {
    /// A worker for each sink, by the name under which its messages are in the outbox.
    pub fn new(
        history: &History,
        clock: Clock,
        settings: &DeliverySettings,
        sinks: Vec<(String, Sink)>,
    ) -> Result<Self, DeliveryError> {
        settings.check(sinks.iter().map(|(name, _)| name.as_str()))?;
        let worker = |(name, sink)| SinkWorker::new(name, sink, history.clone(), settings.clone());
        Ok(Self {
            dispatcher: sinks.into_iter().map(worker).map(Arc::new).collect(),
            clock,
        })
    }

    /// There is something new in the outbox. To be called after every commit that told something;
    /// without it a message is found when a worker next looks by itself.
    pub fn wake(&self) {
        for worker in &self.dispatcher {
            worker.wake();
        }
    }

    /// Delivers until `shutdown`, and then finishes what is on its way, within the settings'
    /// deadline. What is not finished by then stays in the outbox.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for worker in &self.dispatcher {
            tasks.spawn(Arc::clone(worker).run(self.clock.clone(), stopped.clone()));
        }
        shutdown.await;
        stop.send_replace(true);
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(
                    target: "balde_monitor",
                    event_type = "dispatcher_failed",
                    "a worker ended before its time, and its messages are still in the outbox: \
                     {error}"
                );
            }
        }
    }

    /// One pass over all sinks side by side, as of `now_us`: everything that is due is tried once,
    /// within `within`. For those who keep time themselves, such as a cycle's last step.
    pub async fn deliver_once(
        &self,
        now_us: u64,
        within: Duration,
    ) -> Result<DeliverySummary, HistoryError> {
        let mut passes = JoinSet::new();
        for worker in &self.dispatcher {
            let pass = Arc::clone(worker).pass(now_us);
            passes.spawn(async move { tokio::time::timeout(within, pass).await });
        }
        let mut round = DeliverySummary::default();
        let mut refused = None;
        while let Some(ended) = passes.join_next().await {
            match ended {
                Ok(Ok(Ok(pass))) => {
                    round.delivered += pass.delivered;
                    round.failed += pass.failed;
                }
                Ok(Ok(Err(error))) => refused = Some(error),
                Ok(Err(_)) | Err(_) => round.unfinished += 1,
            }
        }
        match refused {
            Some(error) => Err(error),
            None => Ok(round),
        }
    }

    /// What each sink has done since the start, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &Counters)> {
        self.dispatcher
            .iter()
            .map(|worker| (worker.name(), worker.counters()))
    }
}
