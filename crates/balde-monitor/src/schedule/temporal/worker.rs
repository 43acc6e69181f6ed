//! The worker: connects, places the standing order, takes tasks; and does all of that again for as
//! long as the server goes away.

use std::time::Duration;

use temporalio_client::{Client, ClientOptions, Connection, ConnectionOptions, TlsOptions, Url};
use temporalio_common::worker::WorkerDeploymentOptions;
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::TemporalError;
use super::activities::Activities;
use super::cron_workflow::{CronWorkflow, ServerError};
use super::payload::WorkflowInput;
use super::workflow::MonitorRateLimits;
use crate::config::TemporalConfig;
use crate::schedule::leader::SHUTDOWN_GRACE;

/// How long a server may take to answer the first call.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The wait after the first failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest of those waits.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How often the order is looked at: somebody may have ended the workflow.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Steps and decisions that are worked on at once.
const AT_ONCE_MAX: usize = 16;

/// How long a decision waits for the worker that made the last one, before any worker may make it.
const FAITHFUL: Duration = Duration::from_secs(5);

/// Runs that are kept in memory: the calendar's and the one at once.
const RUNS_MAX: usize = 4;

/// All that a worker is.
#[derive(Clone)]
pub(super) struct TemporalWorker {
    pub(super) target: Url,
    pub(super) settings: TemporalConfig,
    pub(super) input: WorkflowInput,
    pub(super) steps: Activities,
}

impl TemporalWorker {
    /// Works until told to stop, or gone; a server that is away is waited for.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), TemporalError> {
        let mut wait = FIRST_WAIT;
        loop {
            let why = match self.connected(&mut stop).await {
                Ok(Some(client)) => match self.serve(&client, &mut stop).await {
                    Ok(()) => return Ok(()),
                    Err(ServerError::Rejected(error)) => return Err(error),
                    Err(ServerError::Unavailable(why)) => {
                        wait = FIRST_WAIT;
                        why
                    }
                },
                Ok(None) => return Ok(()),
                Err(why) => why,
            };
            tracing::warn!(
                event_type = "temporal_unavailable",
                address = self.settings.address,
                error = why,
                "there is no Temporal to work for, and nobody is polled; tried again in {wait:?}"
            );
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                _ = stop.wait_for(|is_over| *is_over) => return Ok(()),
            }
        }
    }

    /// A client; nothing when the end came first.
    async fn connected(&self, stop: &mut watch::Receiver<bool>) -> Result<Option<Client>, String> {
        let is_tls = self.target.scheme() == "https";
        let options = ConnectionOptions::new(self.target.clone())
            .identity(format!("balde-monitor-{}", std::process::id()))
            .connect_timeout(CONNECT_WITHIN)
            .maybe_tls_options(is_tls.then(|| TlsOptions::builder().build()))
            .build();
        let connect = tokio::time::timeout(2 * CONNECT_WITHIN, Connection::connect(options));
        let connection = tokio::select! {
            connection = connect => connection,
            _ = stop.wait_for(|is_over| *is_over) => return Ok(None),
        };
        let connection = connection
            .map_err(|_| "no answer".to_owned())?
            .map_err(|error| error.to_string())?;
        let options = ClientOptions::new(&self.settings.namespace).build();
        let client = Client::new(connection, options).map_err(|error| error.to_string())?;
        Ok(Some(client))
    }

    /// Works over one connection until told to stop.
    async fn serve(
        &self,
        client: &Client,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), ServerError> {
        let order = CronWorkflow {
            client,
            settings: &self.settings,
            input: &self.input,
        };
        order.place().await?;
        order.run_at_once().await?;
        tracing::info!(
            event_type = "temporal_worker_started",
            address = self.settings.address,
            task_queue = self.settings.task_queue,
            "this monitor works for Temporal"
        );
        // Whatever ends this, the worker's thread hears that its end of the channel is gone.
        let (end, ended) = watch::channel(false);
        let (work, client, runtime) = (self.clone(), client.clone(), Handle::current());
        // A workflow stays on its thread, and a monitor may move between them.
        let mut working =
            tokio::task::spawn_blocking(move || runtime.block_on(work.take_tasks(client, ended)));
        let mut is_away = false;
        let trouble = loop {
            tokio::select! {
                done = &mut working => {
                    let why = done.unwrap_or_else(|error| Err(error.to_string()));
                    let why = why.err().unwrap_or_else(|| "the worker ended".to_owned());
                    return Err(ServerError::Unavailable(why));
                }
                _ = stop.wait_for(|is_over| *is_over) => break None,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            // The worker itself waits for a server that is away; it need not be made anew.
            let looked = match order.place().await {
                Ok(true) => Ok(()),
                Ok(false) => order.run_at_once().await,
                Err(trouble) => Err(trouble),
            };
            match looked {
                Ok(()) => is_away = false,
                Err(ServerError::Rejected(error)) => break Some(ServerError::Rejected(error)),
                Err(ServerError::Unavailable(why)) if !is_away => {
                    is_away = true;
                    tracing::warn!(
                        event_type = "temporal_unavailable",
                        address = self.settings.address,
                        error = why,
                        "Temporal does not answer, and nobody is polled until it does"
                    );
                }
                Err(ServerError::Unavailable(_)) => {}
            }
        };
        end.send_replace(true);
        let _ended_by_itself = working.await;
        trouble.map_or(Ok(()), Err)
    }

    /// Takes tasks until `ended`, then finishes what it has.
    async fn take_tasks(
        self,
        client: Client,
        mut ended: watch::Receiver<bool>,
    ) -> Result<(), String> {
        let runtime = Runtime::from_current_tokio(RuntimeOptions::default());
        let runtime = runtime.map_err(|error| error.to_string())?;
        let slots = FixedSizeSlotSupplier::new(AT_ONCE_MAX);
        let tuner = TunerHolder::builder()
            .workflow_task_slot_supplier(slots)
            .activity_task_slot_supplier(slots)
            .local_activity_task_slot_supplier(slots)
            .nexus_task_slot_supplier(slots)
            .build();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let options = WorkerOptions::new(&self.settings.task_queue)
            .register_activities(self.steps)
            .register_workflow::<MonitorRateLimits>()
            .map_err(|error| error.to_string())?
            .deployment_options(WorkerDeploymentOptions::from_build_id(version))
            .graceful_shutdown_period(SHUTDOWN_GRACE)
            .max_cached_workflows(RUNS_MAX)
            .sticky_queue_schedule_to_start_timeout(FAITHFUL)
            .tuner(tuner)
            .build();
        let worker = Worker::new(&runtime, client, options);
        let mut worker = worker.map_err(|error| error.to_string())?;
        let shut_down = worker.shutdown_handle();
        let mut run = std::pin::pin!(worker.run());
        let done = tokio::select! {
            done = &mut run => done,
            _ = ended.wait_for(|is_over| *is_over) => {
                shut_down();
                match tokio::time::timeout(2 * SHUTDOWN_GRACE, run).await {
                    Ok(done) => done,
                    Err(_) => return Err("it took too long to end".to_owned()),
                }
            }
        };
        done.map_err(|error| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
    }
}
