//! The whole, put together from a file and run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::{Config, ScheduleConfig};
use crate::cycle::{Components, Cycle, SinkDirectory};
use crate::delivery::{DeliveryError, DeliverySettings, Dispatcher};
use crate::history::{History, HistoryError};
use crate::http::{self, App, WriteAccess};
use crate::schedule::PlannerError;
use crate::schedule::embedded::{self, PollPlan};
use crate::severity::Severity;
use crate::sink::SinkError;
use crate::status::Status;
use crate::time_source::TimeSource;

/// How far ahead the calendar is looked at: a day of five minutes.
const FIRES_LOOKED_AT: usize = 288;

/// How long answers under way may take once the end has come.
const PAGES_WITHIN: Duration = Duration::from_secs(5);

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A monitor that is ready to run.
#[derive(Debug)]
pub struct Monitor {
    cycle: Cycle,
    plan: PollPlan,
    schedule: ScheduleConfig,
    status: Arc<Status>,
    write_access: WriteAccess,
}

impl Monitor {
    /// Opens the history and puts everything together. Whether DICT or a sink is there does not
    /// matter yet.
    pub async fn build(config: &Config, time: TimeSource) -> Result<Self, BuildError> {
        let history = History::open(&config.history).await;
        let history = history.map_err(BuildError::History)?;
        let mut sources = BTreeMap::new();
        for participant in &config.participants {
            let source = participant.build(time.monotonic());
            let source = source.map_err(|why| BuildError::Source {
                participant: participant.ispb.clone(),
                why,
            })?;
            sources.insert(participant.ispb.clone(), source);
        }
        let mut sink_directory = SinkDirectory::default();
        let mut sinks = Vec::new();
        for sink in &config.sinks {
            sink_directory = sink_directory.with(&sink.name, sink.classes.iter().copied());
            let built = sink.build().map_err(|error| BuildError::Sink {
                name: sink.name.clone(),
                error,
            })?;
            sinks.push((sink.name.clone(), built));
        }
        for backlog in history.backlog().await.map_err(BuildError::History)? {
            if config.sinks.iter().all(|sink| sink.name != backlog.sink) {
                // A sink that was renamed or taken away: nobody delivers these any more.
                tracing::warn!(
                    event_type = "sink_missing",
                    sink = backlog.sink,
                    waiting = backlog.waiting,
                    "alerts wait for a sink that is not in the file; bring its name back to have \
                     them delivered"
                );
            }
        }
        let expected = sources.keys().cloned().collect();
        tell_of_strangers(history.clone(), expected, time.now_us()).await?;
        tell_of_false_alarms(config, &time);
        let settings = DeliverySettings::default();
        let dispatcher = Dispatcher::new(&history, time.clock().clone(), &settings, sinks);
        let dispatcher = dispatcher.map_err(BuildError::Delivery)?;
        let cycle = Cycle::new(Components {
            history,
            sources,
            rules: config.rules.clone(),
            staleness: config.staleness,
            analysis: config.analysis.clone(),
            routes: config.routes.clone(),
            sink_directory,
            dispatcher,
            time,
        });
        Ok(Self {
            cycle,
            plan: config.plan.clone(),
            schedule: config.schedule.clone(),
            status: Arc::default(),
            write_access: config.http.write_access(),
        })
    }

    /// The four steps, for whoever wants to run them one by one.
    pub fn cycle(&self) -> &Cycle {
        &self.cycle
    }

    /// How it is doing.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Polls, judges, delivers and shows until `shutdown` is there; then cycles under way end, what
    /// is being delivered is, and the history is closed. `note` stands on the page.
    pub async fn run(
        self,
        listener: TcpListener,
        note: &str,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), RunError> {
        self.running(listener, note, Box::pin(shutdown)).await
    }

    /// As something that whoever calls does not compile once more: databases, pages and all.
    fn running<'a>(
        self,
        listener: TcpListener,
        note: &'a str,
        shutdown: Boxed<'a, ()>,
    ) -> Boxed<'a, Result<(), RunError>> {
        Box::pin(self.run_all(listener, note, shutdown))
    }

    async fn run_all(
        self,
        listener: TcpListener,
        note: &str,
        shutdown: Boxed<'_, ()>,
    ) -> Result<(), RunError> {
        let (end, ended) = watch::channel(false);
        let until_the_end = |mut ended: watch::Receiver<bool>| async move {
            // A sender that is gone is an end, too.
            let _either_way = ended.wait_for(|is_over| *is_over).await;
        };
        let app = App::new(
            self.cycle.clone(),
            Arc::clone(&self.status),
            self.write_access.clone(),
            note,
        );
        let pages = tokio::spawn(http::serve(listener, app, until_the_end(ended.clone())));
        let delivering = tokio::spawn({
            let (cycle, status) = (self.cycle.clone(), Arc::clone(&self.status));
            let ended = until_the_end(ended.clone());
            async move { deliver(&cycle, &status, ended).await }
        });
        let scheduled = self.schedule(shutdown).await;
        let _nobody_may_be_left = end.send(true);
        let _ended_by_itself = delivering.await;
        // Whoever has not read or written to the end by then is cut off.
        let end = pages.abort_handle();
        let pages = tokio::time::timeout(PAGES_WITHIN, pages).await;
        end.abort();
        self.cycle.components().history.close().await;
        scheduled?;
        match pages {
            Ok(Ok(served)) => served.map_err(RunError::Pages),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    async fn schedule(&self, shutdown: Boxed<'_, ()>) -> Result<(), RunError> {
        match &self.schedule {
            ScheduleConfig::Embedded => {
                let (plan, status) = (self.plan.clone(), Arc::clone(&self.status));
                embedded::run(self.cycle.clone(), plan, status, shutdown)
                    .await
                    .map_err(RunError::Plan)
            }
            #[cfg(feature = "temporal")]
            ScheduleConfig::Temporal(settings) => crate::schedule::temporal::run(
                self.cycle.clone(),
                self.plan.clone(),
                Arc::clone(&self.status),
                settings,
                shutdown,
            )
            .await
            .map_err(RunError::Temporal),
            #[cfg(not(feature = "temporal"))]
            ScheduleConfig::Temporal(_) => Err(RunError::WithoutTemporal),
        }
    }
}

/// Participants that were taken out of the file: nobody resolves what is open about them.
async fn tell_of_strangers(
    history: History,
    expected: BTreeSet<String>,
    now_us: u64,
) -> Result<(), BuildError> {
    let states = history
        .latest_samples()
        .await
        .map_err(BuildError::History)?;
    let known: BTreeSet<String> = states
        .iter()
        .map(|one| one.bucket().participant().to_owned())
        .collect();
    for participant in known.difference(&expected).cloned().collect::<Vec<_>>() {
        let state = history.participant_state(&participant, now_us).await;
        let state = state.map_err(BuildError::History)?;
        let open = state.alerts.iter();
        let open = open
            .filter(|alert| alert.severity > Severity::Normal)
            .count();
        if open > 0 || state.staleness.stale.is_some() {
            tracing::warn!(
                event_type = "participant_missing",
                participant,
                open_alerts = open + usize::from(state.staleness.stale.is_some()),
                "alerts are open about a participant that is not in the file; nobody will resolve \
                 them unless it is brought back"
            );
        }
    }
    Ok(())
}

/// A calendar that is slower than staleness makes alerts of good answers.
fn tell_of_false_alarms(config: &Config, time: &TimeSource) {
    let mut from_us = config.plan.schedule.next_cron_us(time.now_us());
    let mut longest_us = 0;
    for _ in 0..FIRES_LOOKED_AT {
        let next_us = config.plan.schedule.next_cron_us(from_us);
        longest_us = longest_us.max(next_us.saturating_sub(from_us));
        from_us = next_us;
    }
    if longest_us > config.staleness.stale_after_us {
        tracing::warn!(
            event_type = "stale_too_soon",
            longest_s = longest_us / 1_000_000,
            stale_after_s = config.staleness.stale_after_us / 1_000_000,
            "the calendar leaves longer times between polls than stale_after_s allows; raise it, or \
             there will be alerts about good answers"
        );
    }
}

/// Delivers while this monitor leads: two that deliver the same would tell everything twice.
async fn deliver(cycle: &Cycle, status: &Status, ended: impl Future<Output = ()>) {
    let mut ended = std::pin::pin!(ended);
    loop {
        tokio::select! {
            () = status.wait_for_leadership(true) => {}
            () = &mut ended => return,
        }
        let mut is_over = false;
        let until = async {
            tokio::select! {
                () = status.wait_for_leadership(false) => {}
                () = &mut ended => is_over = true,
            }
        };
        cycle.components().dispatcher.run(until).await;
        if is_over {
            return;
        }
    }
}

/// Why a monitor could not be put together.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The history cannot be opened.
    History(HistoryError),
    /// A participant's source makes no sense.
    Source {
        /// Whose.
        participant: String,
        /// Why.
        why: String,
    },
    /// A sink makes no sense.
    Sink {
        /// Which.
        name: String,
        /// Why.
        error: SinkError,
    },
    /// The sinks together make no sense.
    Delivery(DeliveryError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::History(error) => error.fmt(f),
            Self::Source { participant, why } => write!(f, "participant {participant}: {why}"),
            Self::Sink { name, error } => write!(f, "sink {name}: {error}"),
            Self::Delivery(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}

/// Why a monitor ended by itself.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The plan cannot be kept.
    Plan(PlannerError),
    /// The pages cannot be served.
    Pages(io::Error),
    /// This balde was built without Temporal.
    WithoutTemporal,
    /// Temporal's side of it.
    #[cfg(feature = "temporal")]
    Temporal(crate::schedule::temporal::TemporalError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Pages(error) => write!(f, "the pages cannot be served: {error}"),
            Self::WithoutTemporal => f.write_str(
                "this balde was built without Temporal; build it with --features temporal",
            ),
            #[cfg(feature = "temporal")]
            Self::Temporal(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}
