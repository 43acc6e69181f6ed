//! The whole monitor: built from its configuration, and run.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::{Config, ScheduleConfig, SinkConfig};
use crate::cycle::{Components, Cycle, SinkDirectory};
use crate::delivery::{Backoff, DeliveryError, DeliverySettings, Dispatcher};
use crate::gateway_reports;
use crate::history::{History, HistoryError};
use crate::http::{self, Access, App};
use crate::schedule::PlannerError;
use crate::schedule::{PollPlan, embedded};
use crate::sink::{Secret, SinkError};
use crate::status::Status;
use crate::storage_check::{StorageCheck, StorageTiming};
use crate::time_source::TimeSource;

/// How many runs of the cron schedule are checked against `stale_after_s`: a day at five minutes.
const CRON_RUNS_CHECKED: usize = 288;

/// The first and the longest delay between attempts to deliver a message. A sink that is back gets its
/// first message within the longest, and all others at once.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);

/// The longest time that HTTP requests in flight may take after shutdown was requested.
const HTTP_GRACE: Duration = Duration::from_secs(5);

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A rate-limit monitor that is ready to run.
#[derive(Debug)]
pub struct Monitor {
    cycle: Cycle,
    plan: PollPlan,
    schedule: ScheduleConfig,
    status: Arc<Status>,
    access: Access,
    public_url: Option<String>,
    pager_duty: Vec<Secret>,
    storage_timing: StorageTiming,
    hosts: Vec<String>,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Monitor {
    /// Opens the database and builds all components. Connects neither to DICT nor to any sink.
    ///
    /// A database that is unavailable for now, such as a server that does not run or a full disk, is
    /// no error: the monitor waits for it when it [runs](Monitor::run).
    pub async fn build(config: &Config, time: TimeSource) -> Result<Self, BuildError> {
        let history = History::closed(&config.history).map_err(BuildError::History)?;
        if let Err(error) = history.reopen().await {
            if !error.is_transient() {
                return Err(BuildError::History(error));
            }
            tracing::error!(
                event_type = "history_unavailable",
                error = %error,
                "the database cannot be opened; the monitor waits for it and does not poll until then"
            );
            history.health().fail(time.now_us(), &error.to_string());
        }
        let mut sources = BTreeMap::new();
        let status = Arc::<Status>::default();
        for participant in &config.participants {
            if let Some(us) = participant.certificate_expiry_us() {
                status.set_certificate_expiry(&participant.ispb, us);
            }
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
        let identity = config.http.identity.as_ref();
        let tls = identity.map(|identity| balde_net::tls::server(identity, None, &[b"http/1.1"]));
        let tls = tls.transpose()?;
        warn_of_short_staleness(config, &time);
        let backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST).unwrap_or_default();
        let settings = DeliverySettings::default()
            .backoff(backoff)
            .wording(config.wording.clone());
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
            status,
            access: config.http.access(),
            public_url: config.http.public_url.clone(),
            pager_duty: config
                .sinks
                .iter()
                .filter_map(SinkConfig::webhook_secret)
                .cloned()
                .collect(),
            storage_timing: StorageTiming::default(),
            hosts: config.http.hosts.clone(),
            tls,
        })
    }

    /// Replaces the timing of the storage check.
    #[must_use]
    pub fn with_storage_timing(mut self, timing: StorageTiming) -> Self {
        self.storage_timing = timing;
        self
    }

    /// The polling cycle, for callers that run its steps themselves.
    pub fn cycle(&self) -> &Cycle {
        &self.cycle
    }

    /// The monitor's own status.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Polls, analyses, delivers alerts and serves the HTTP API until `shutdown` completes. Then
    /// cycles, deliveries and requests in flight are finished and the database is closed. `note` is
    /// shown on the page; a second line is the note for pages in Portuguese.
    pub async fn run(
        self,
        listener: TcpListener,
        note: &str,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), RunError> {
        self.running(listener, note, Box::pin(shutdown)).await
    }

    /// Boxes the future, so that the generic `run` does not instantiate all of it in every caller.
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
        let (stop, stopped) = watch::channel(false);
        let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
            // A dropped sender means the end, too.
            let _either_way = stopped.wait_for(|is_stopped| *is_stopped).await;
        };
        let app = App::new(
            self.cycle.clone(),
            Arc::clone(&self.status),
            self.access.clone(),
            note,
        );
        let app = app
            .with_hosts(self.hosts.clone())
            .with_public_url(self.public_url.clone())
            .with_pager_duty(self.pager_duty.clone())
            .with_tls(self.tls.clone());
        let pages = tokio::spawn(http::serve(listener, app, until_stopped(stopped.clone())));
        let delivering = tokio::spawn({
            let (cycle, status) = (self.cycle.clone(), Arc::clone(&self.status));
            let stopped = until_stopped(stopped.clone());
            async move { deliver_while_leading(&cycle, &status, stopped).await }
        });
        let from_memory = tokio::spawn({
            let (cycle, stopped) = (self.cycle.clone(), until_stopped(stopped.clone()));
            async move { cycle.components().dispatcher.run_from_memory(stopped).await }
        });
        let storage = tokio::spawn({
            let (cycle, status) = (self.cycle.clone(), Arc::clone(&self.status));
            let check = StorageCheck::new(cycle, status, self.storage_timing);
            let run: Boxed<'static, ()> = Box::pin(check.run(until_stopped(stopped.clone())));
            run
        });
        let reports = tokio::spawn(gateway_reports::keep_fresh(self.cycle.clone()));
        let cleaning = tokio::spawn(clean_up(self.cycle.clone(), Arc::clone(&self.status)));
        let scheduled = self.schedule(shutdown).await;
        cleaning.abort();
        reports.abort();
        let _receivers_may_be_gone = stop.send(true);
        let _finished_or_panicked = tokio::join!(delivering, from_memory, storage);
        // Clients that have not finished by then are disconnected.
        let abort = pages.abort_handle();
        let pages = tokio::time::timeout(HTTP_GRACE, pages).await;
        abort.abort();
        self.cycle.components().history.close().await;
        scheduled?;
        match pages {
            Ok(Ok(served)) => served.map_err(RunError::Http),
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

/// Takes care of what an older configuration has left behind, once this monitor leads: messages for
/// sinks and alerts about participants that are no longer in the file.
fn clean_up(cycle: Cycle, status: Arc<Status>) -> Boxed<'static, ()> {
    const RETRY: Duration = Duration::from_secs(5);
    Box::pin(async move {
        loop {
            status.wait_for_leadership(true).await;
            let is_done = warn_of_removed_sinks(&cycle).await.is_ok()
                && resolve_removed_participants(&cycle).await.is_ok();
            if is_done {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    })
}

/// Warns about messages for sinks that are no longer configured: nothing delivers them.
async fn warn_of_removed_sinks(cycle: &Cycle) -> Result<(), HistoryError> {
    let Components {
        history,
        dispatcher,
        ..
    } = cycle.components();
    for backlog in history.backlog().await? {
        if dispatcher.counters().all(|(sink, _)| sink != backlog.sink) {
            tracing::warn!(
                event_type = "sink_not_configured",
                sink = backlog.sink,
                waiting = backlog.waiting,
                "alerts are waiting for a sink that is not configured; add a sink of that name \
                 to have them delivered"
            );
        }
    }
    Ok(())
}

/// Resolves the open alerts of participants that are no longer configured, and says so.
async fn resolve_removed_participants(cycle: &Cycle) -> Result<(), HistoryError> {
    let Components {
        history, sources, ..
    } = cycle.components();
    let mut known: BTreeSet<String> = BTreeSet::new();
    for sample in history.latest_samples().await? {
        known.insert(sample.bucket().participant().to_owned());
    }
    for participant in known {
        if sources.contains_key(&participant) {
            continue;
        }
        let closed = cycle.resolve_removed(&participant).await?;
        if closed > 0 {
            tracing::warn!(
                event_type = "participant_not_configured",
                participant,
                closed_alerts = closed,
                "closed the alerts of a participant that is no longer in the file"
            );
        }
    }
    Ok(())
}

/// Warns if the cron schedule polls less often than `stale_after_s`, which raises false alerts.
fn warn_of_short_staleness(config: &Config, time: &TimeSource) {
    let mut from_us = config.plan.schedule.next_cron_us(time.now_us());
    let mut longest_us = 0;
    for _ in 0..CRON_RUNS_CHECKED {
        let next_us = config.plan.schedule.next_cron_us(from_us);
        longest_us = longest_us.max(next_us.saturating_sub(from_us));
        from_us = next_us;
    }
    if longest_us > config.staleness.stale_after_us {
        tracing::warn!(
            event_type = "stale_after_too_short",
            longest_interval_s = longest_us / 1_000_000,
            stale_after_s = config.staleness.stale_after_us / 1_000_000,
            "the cron schedule polls less often than stale_after_s allows; raise stale_after_s, or \
             healthy data will be reported as stale"
        );
    }
}

/// Runs the dispatchers while this monitor is the leader: with two at work, every alert would be sent
/// twice.
async fn deliver_while_leading(cycle: &Cycle, status: &Status, stopped: impl Future<Output = ()>) {
    let mut stopped = std::pin::pin!(stopped);
    loop {
        tokio::select! {
            () = status.wait_for_leadership(true) => {}
            () = &mut stopped => return,
        }
        let mut is_stopped = false;
        let until = async {
            tokio::select! {
                () = status.wait_for_leadership(false) => {}
                () = &mut stopped => is_stopped = true,
            }
        };
        cycle.components().dispatcher.run(until).await;
        if is_stopped {
            return;
        }
    }
}

/// Why a monitor could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The database could not be opened or read.
    #[error(transparent)]
    History(HistoryError),
    /// The source of a participant is not valid.
    #[error("participant {participant}: {why}")]
    Source {
        /// The participant.
        participant: String,
        /// What is wrong.
        why: String,
    },
    /// A sink is not valid.
    #[error("sink {name}: {error}")]
    Sink {
        /// The name of the sink.
        name: String,
        /// What is wrong.
        #[source]
        error: SinkError,
    },
    /// The sinks do not fit together.
    #[error(transparent)]
    Delivery(DeliveryError),
    /// The certificate or the key of the pages cannot be used.
    #[error("[http]: {0}")]
    Tls(#[from] balde_net::tls::TlsError),
}

/// Why a running monitor failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The polling plan is not valid.
    #[error(transparent)]
    Plan(PlannerError),
    /// The HTTP server failed.
    #[error("the HTTP server failed: {0}")]
    Http(#[source] io::Error),
    /// The file configures Temporal, but this binary was built without it.
    #[error("this balde was built without Temporal; build it with --features temporal")]
    WithoutTemporal,
    /// The Temporal worker failed.
    #[cfg(feature = "temporal")]
    #[error(transparent)]
    Temporal(crate::schedule::temporal::TemporalError),
}
