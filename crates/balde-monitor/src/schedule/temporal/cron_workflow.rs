//! The cron workflow at the server: started, checked and replaced here.

use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use temporalio_client::{
    Client, WorkflowDescribeOptions, WorkflowExecutionStatus, WorkflowFetchHistoryOptions,
    WorkflowHandle, WorkflowIdConflictPolicy, WorkflowStartOptions,
    errors::{WorkflowInteractionError, WorkflowStartError},
    tonic::{Code, Status},
};
use temporalio_common::protos::temporal::api::history::v1::WorkflowExecutionStartedEventAttributes;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;

use super::TemporalError;
use super::payload::WorkflowInput;
use super::workflow::{MonitorRateLimits, WORKFLOW_TYPE};
use crate::schedule::temporal_settings::TemporalSettings;

/// If the next cron time is at least this far away, a run is started at once.
const START_DELAY_MAX: Duration = Duration::from_secs(15);

/// Why the workflow could not be started or checked.
pub(super) enum ServerError {
    /// The server is unavailable; retry later.
    Unavailable(String),
    /// The server rejects the workflow; retrying does not help.
    Rejected(TemporalError),
}

/// The cron workflow as it is configured.
pub(super) struct CronWorkflow<'a> {
    pub(super) client: &'a Client,
    pub(super) settings: &'a TemporalSettings,
    pub(super) input: &'a WorkflowInput,
}

type Handle = WorkflowHandle<Client, MonitorRateLimits>;

impl CronWorkflow<'_> {
    /// Ensures that the workflow runs with the configured cron expression, task queue and
    /// participants; a workflow that differs is replaced. Returns true if there was nothing to do.
    pub(super) async fn ensure_running(&self) -> Result<bool, ServerError> {
        let id = &self.settings.workflow_id;
        let handle: Handle = self.client.get_workflow_handle(id);
        let described = match handle.describe(WorkflowDescribeOptions::default()).await {
            Ok(described) => Some(described),
            Err(WorkflowInteractionError::NotFound(_)) => None,
            Err(error) => return Err(ServerError::of(error)),
        };
        let open = described.filter(|described| {
            use WorkflowExecutionStatus::{Paused, Running};
            matches!(described.status(), Running | Paused)
        });
        let Some(open) = open else {
            tracing::info!(
                event_type = "temporal_workflow_started",
                workflow_id = id,
                cron = self.settings.cron,
                "starting the workflow"
            );
            // Another worker may start it at the same time.
            self.start(WorkflowIdConflictPolicy::UseExisting).await?;
            return Ok(false);
        };
        if open.workflow_type() != WORKFLOW_TYPE {
            return Err(ServerError::Rejected(TemporalError::IdInUse {
                workflow_id: id.clone(),
                workflow_type: open.workflow_type().to_owned(),
            }));
        }
        let Some(difference) = self.difference(&start_attributes(&handle).await?) else {
            return Ok(true);
        };
        tracing::warn!(
            event_type = "temporal_workflow_replaced",
            workflow_id = id,
            "replacing the workflow, which was started with {difference}"
        );
        self.start(WorkflowIdConflictPolicy::TerminateExisting)
            .await?;
        Ok(false)
    }

    /// Starts an additional run at once, unless the next cron time is near: Temporal starts a cron
    /// workflow at its next cron time only, which would delay the first poll.
    pub(super) async fn run_at_once(&self) -> Result<(), ServerError> {
        let handle: Handle = self.client.get_workflow_handle(&self.settings.workflow_id);
        let described = handle.describe(WorkflowDescribeOptions::default()).await;
        let next_run = described.map_err(ServerError::of)?.execution_time();
        let wait = next_run.and_then(|at| at.duration_since(SystemTime::now()).ok());
        if wait.is_none_or(|wait| wait < START_DELAY_MAX) {
            return Ok(());
        }
        let id = format!("{}-at-once", self.settings.workflow_id);
        let options = WorkflowStartOptions::new(&self.settings.task_queue, id)
            .id_conflict_policy(WorkflowIdConflictPolicy::UseExisting)
            .static_summary("first run, before the next cron time")
            .build();
        self.start_workflow(options).await
    }

    async fn start(&self, conflict: WorkflowIdConflictPolicy) -> Result<(), ServerError> {
        let TemporalSettings {
            task_queue,
            workflow_id,
            cron,
            ..
        } = self.settings;
        let options = WorkflowStartOptions::new(task_queue, workflow_id)
            .id_conflict_policy(conflict)
            .cron_schedule(cron)
            .static_summary("balde monitor: polls the rate-limit buckets")
            .build();
        self.start_workflow(options).await
    }

    async fn start_workflow(&self, options: WorkflowStartOptions) -> Result<(), ServerError> {
        let input = self.input.clone();
        let started = self
            .client
            .start_workflow(MonitorRateLimits::run, input, options)
            .await;
        match started {
            Ok(_) | Err(WorkflowStartError::AlreadyStarted { .. }) => Ok(()),
            Err(WorkflowStartError::Rpc(status)) => Err(ServerError::of_status(&status)),
            Err(error) => Err(ServerError::Unavailable(error.to_string())),
        }
    }

    /// Describes what differs between the running workflow and the configuration.
    fn difference(&self, started: &WorkflowExecutionStartedEventAttributes) -> Option<String> {
        if started.cron_schedule != self.settings.cron {
            return Some(format!("the cron expression {:?}", started.cron_schedule));
        }
        let queue = started.task_queue.as_ref().map(|queue| queue.name.as_str());
        if queue != Some(&self.settings.task_queue) {
            return Some(format!("the task queue {:?}", queue.unwrap_or("")));
        }
        let input = started
            .input
            .iter()
            .flat_map(|input| &input.payloads)
            .next();
        let input = input.and_then(|input| serde_json::from_slice(&input.data).ok());
        let is_same = input.is_some_and(|its: WorkflowInput| its == *self.input);
        (!is_same).then(|| "other participants".to_owned())
    }
}

/// Reads the attributes that the current run was started with: the first event of its history.
async fn start_attributes(
    handle: &Handle,
) -> Result<WorkflowExecutionStartedEventAttributes, ServerError> {
    let mut events = handle.fetch_history(WorkflowFetchHistoryOptions::default());
    let first = events.next().await.transpose().map_err(ServerError::of)?;
    match first.and_then(|event| event.attributes) {
        Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) => Ok(started),
        _ => Err(ServerError::Unavailable(
            "the event history of the workflow is empty".to_owned(),
        )),
    }
}

impl ServerError {
    fn of(error: WorkflowInteractionError) -> Self {
        match error {
            WorkflowInteractionError::Rpc(status) => Self::of_status(&status),
            error => Self::Unavailable(error.to_string()),
        }
    }

    fn of_status(status: &Status) -> Self {
        let why = status.message().to_owned();
        match status.code() {
            Code::InvalidArgument => Self::Rejected(TemporalError::Rejected { why }),
            code => Self::Unavailable(format!("{code}: {why}")),
        }
    }
}
