//! The worker: connects, ensures that the workflow runs, and takes tasks. It reconnects while the
//! server is unavailable.

use std::time::Duration;

use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, TlsOptions, Url,
};
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
use crate::schedule::leader::SHUTDOWN_GRACE;
use crate::schedule::temporal_settings::TemporalSettings;

/// The connection timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The wait after the first failed connection, doubled after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest of those waits.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How often the worker checks that the workflow still runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The most workflow tasks, and the most activities, that run concurrently.
const TASKS_MAX: usize = 16;

/// How long a workflow task waits for the worker that has the run in its cache.
const STICKY_TIMEOUT: Duration = Duration::from_secs(5);

/// The most runs in the cache: the cron workflow and the run started at once, and two spare.
const CACHED_RUNS_MAX: usize = 4;

/// A worker and everything it needs.
#[derive(Clone)]
pub(super) struct TemporalWorker {
    pub(super) target: Url,
    pub(super) settings: TemporalSettings,
    pub(super) input: WorkflowInput,
    pub(super) activities: Activities,
}

impl TemporalWorker {
    /// Runs until `stop` is set or its sender is dropped. Reconnects while the server is unavailable.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), TemporalError> {
        let mut wait = FIRST_WAIT;
        loop {
            let why = match self.connect(&mut stop).await {
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
                "Temporal is unavailable, so no participant is polled; reconnecting in {wait:?}"
            );
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                _ = stop.wait_for(|is_stopped| *is_stopped) => return Ok(()),
            }
        }
    }

    /// Connects to the server. Returns `None` if `stop` is set first.
    async fn connect(&self, stop: &mut watch::Receiver<bool>) -> Result<Option<Client>, String> {
        let options = ConnectionOptions::new(self.target.clone())
            .identity(format!("balde-monitor-{}", std::process::id()))
            .connect_timeout(CONNECT_TIMEOUT)
            .maybe_tls_options(self.tls_options())
            .maybe_api_key(self.settings.api_key.clone())
            .build();
        let connect = tokio::time::timeout(2 * CONNECT_TIMEOUT, Connection::connect(options));
        let connection = tokio::select! {
            connection = connect => connection,
            _ = stop.wait_for(|is_stopped| *is_stopped) => return Ok(None),
        };
        let connection = connection
            .map_err(|_| "the connection timed out".to_owned())?
            .map_err(|error| error.to_string())?;
        let options = ClientOptions::new(&self.settings.namespace).build();
        let client = Client::new(connection, options).map_err(|error| error.to_string())?;
        Ok(Some(client))
    }

    fn tls_options(&self) -> Option<TlsOptions> {
        if self.target.scheme() != "https" {
            return None;
        }
        let identity = self.settings.identity.clone().map(|(chain, key)| {
            ClientTlsOptions::builder()
                .client_cert(chain)
                .client_private_key(key)
                .build()
        });
        let options = TlsOptions::builder()
            .maybe_server_root_ca_cert(self.settings.ca.clone())
            .maybe_domain(self.settings.server_name.clone())
            .maybe_client_tls_options(identity);
        Some(options.build())
    }

    /// Serves over one connection until `stop` is set.
    async fn serve(
        &self,
        client: &Client,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), ServerError> {
        let workflow = CronWorkflow {
            client,
            settings: &self.settings,
            input: &self.input,
        };
        workflow.ensure_running().await?;
        workflow.run_at_once().await?;
        tracing::info!(
            event_type = "temporal_worker_started",
            address = self.settings.address,
            task_queue = self.settings.task_queue,
            "the Temporal worker has started"
        );
        // If this future is dropped, the worker's thread sees a closed channel and stops.
        let (end, ended) = watch::channel(false);
        let (worker, client, runtime) = (self.clone(), client.clone(), Handle::current());
        // The SDK's worker is not Send, so it runs on a separate thread.
        let mut working =
            tokio::task::spawn_blocking(move || runtime.block_on(worker.take_tasks(client, ended)));
        let mut is_unavailable = false;
        let error = loop {
            tokio::select! {
                done = &mut working => {
                    let why = done.unwrap_or_else(|error| Err(error.to_string()));
                    let why = why.err().unwrap_or_else(|| "the worker stopped".to_owned());
                    return Err(ServerError::Unavailable(why));
                }
                _ = stop.wait_for(|is_stopped| *is_stopped) => break None,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
            // The SDK's worker reconnects by itself, so an unavailable server is only logged here.
            let checked = match workflow.ensure_running().await {
                Ok(true) => Ok(()),
                Ok(false) => workflow.run_at_once().await,
                Err(error) => Err(error),
            };
            match checked {
                Ok(()) => is_unavailable = false,
                Err(ServerError::Rejected(error)) => break Some(ServerError::Rejected(error)),
                Err(ServerError::Unavailable(why)) if !is_unavailable => {
                    is_unavailable = true;
                    tracing::warn!(
                        event_type = "temporal_unavailable",
                        address = self.settings.address,
                        error = why,
                        "Temporal is unavailable, so no participant is polled until it is back"
                    );
                }
                Err(ServerError::Unavailable(_)) => {}
            }
        };
        end.send_replace(true);
        let _stopped_or_panicked = working.await;
        error.map_or(Ok(()), Err)
    }

    /// Takes tasks until `ended` is set, then finishes the tasks in progress.
    async fn take_tasks(
        self,
        client: Client,
        mut ended: watch::Receiver<bool>,
    ) -> Result<(), String> {
        let runtime = Runtime::from_current_tokio(RuntimeOptions::default());
        let runtime = runtime.map_err(|error| error.to_string())?;
        let slots = FixedSizeSlotSupplier::new(TASKS_MAX);
        let tuner = TunerHolder::builder()
            .workflow_task_slot_supplier(slots)
            .activity_task_slot_supplier(slots)
            .local_activity_task_slot_supplier(slots)
            .nexus_task_slot_supplier(slots)
            .build();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let options = WorkerOptions::new(&self.settings.task_queue)
            .register_activities(self.activities)
            .register_workflow::<MonitorRateLimits>()
            .map_err(|error| error.to_string())?
            .deployment_options(WorkerDeploymentOptions::from_build_id(version))
            .graceful_shutdown_period(SHUTDOWN_GRACE)
            .max_cached_workflows(CACHED_RUNS_MAX)
            .sticky_queue_schedule_to_start_timeout(STICKY_TIMEOUT)
            .tuner(tuner)
            .build();
        let worker = Worker::new(&runtime, client, options);
        let mut worker = worker.map_err(|error| error.to_string())?;
        let shut_down = worker.shutdown_handle();
        let mut run = std::pin::pin!(worker.run());
        let done = tokio::select! {
            done = &mut run => done,
            _ = ended.wait_for(|is_stopped| *is_stopped) => {
                shut_down();
                match tokio::time::timeout(2 * SHUTDOWN_GRACE, run).await {
                    Ok(done) => done,
                    Err(_) => return Err("the worker did not stop in time".to_owned()),
                }
            }
        };
        done.map_err(|error| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
    }
}
