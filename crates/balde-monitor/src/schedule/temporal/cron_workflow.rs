//! The standing order at the server: one workflow that the server's cron starts again and again.

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
use super::workflow::{KIND, MonitorRateLimits};
use crate::config::TemporalConfig;

/// How far the calendar's next time has to be for a run of its own before it.
const SOON: Duration = Duration::from_secs(15);

/// Why the order could not be placed.
pub(super) enum ServerError {
    /// The server is away or busy: later.
    Unavailable(String),
    /// It will never be taken like this.
    Rejected(TemporalError),
}

/// What is to stand at the server.
pub(super) struct CronWorkflow<'a> {
    pub(super) client: &'a Client,
    pub(super) settings: &'a TemporalConfig,
    pub(super) input: &'a WorkflowInput,
}

type Handle = WorkflowHandle<Client, MonitorRateLimits>;

impl CronWorkflow<'_> {
    /// Sees to it that the workflow is there, with this calendar and these participants. One that
    /// says otherwise is replaced. `True` if there was nothing to do.
    pub(super) async fn place(&self) -> Result<bool, ServerError> {
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
                "the workflow is started"
            );
            // Another worker may be as quick; one is enough.
            self.start(WorkflowIdConflictPolicy::UseExisting).await?;
            return Ok(false);
        };
        if open.workflow_type() != KIND {
            return Err(ServerError::Rejected(TemporalError::Taken {
                workflow_id: id.clone(),
                kind: open.workflow_type().to_owned(),
            }));
        }
        let Some(difference) = self.difference(&begun(&handle).await?) else {
            return Ok(true);
        };
        tracing::warn!(
            event_type = "temporal_workflow_replaced",
            workflow_id = id,
            "the workflow had {difference}, and is replaced"
        );
        self.start(WorkflowIdConflictPolicy::TerminateExisting)
            .await?;
        Ok(false)
    }

    /// Starts a run at once, beside the calendar's, where the calendar leaves it for later: nobody
    /// wants to wait for the first next_poll at the buckets.
    pub(super) async fn run_at_once(&self) -> Result<(), ServerError> {
        let handle: Handle = self.client.get_workflow_handle(&self.settings.workflow_id);
        let described = handle.describe(WorkflowDescribeOptions::default()).await;
        let begins = described.map_err(ServerError::of)?.execution_time();
        let wait = begins.and_then(|at| at.duration_since(SystemTime::now()).ok());
        if wait.is_none_or(|wait| wait < SOON) {
            return Ok(());
        }
        let id = format!("{}-at-once", self.settings.workflow_id);
        let options = WorkflowStartOptions::new(&self.settings.task_queue, id)
            .id_conflict_policy(WorkflowIdConflictPolicy::UseExisting)
            .static_summary("the first run, before the calendar's")
            .build();
        self.begin(options).await
    }

    async fn start(&self, conflict: WorkflowIdConflictPolicy) -> Result<(), ServerError> {
        let TemporalConfig {
            task_queue,
            workflow_id,
            cron,
            ..
        } = self.settings;
        let options = WorkflowStartOptions::new(task_queue, workflow_id)
            .id_conflict_policy(conflict)
            .cron_schedule(cron)
            .static_summary("balde monitor: how the buckets stand")
            .build();
        self.begin(options).await
    }

    async fn begin(&self, options: WorkflowStartOptions) -> Result<(), ServerError> {
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

    /// What a workflow was started with that it should not have been.
    fn difference(&self, begun: &WorkflowExecutionStartedEventAttributes) -> Option<String> {
        if begun.cron_schedule != self.settings.cron {
            return Some(format!("the calendar {:?}", begun.cron_schedule));
        }
        let queue = begun.task_queue.as_ref().map(|queue| queue.name.as_str());
        if queue != Some(&self.settings.task_queue) {
            return Some(format!("the task queue {:?}", queue.unwrap_or("")));
        }
        let input = begun.input.iter().flat_map(|input| &input.payloads).next();
        let input = input.and_then(|input| serde_json::from_slice(&input.data).ok());
        let is_same = input.is_some_and(|its: WorkflowInput| its == *self.input);
        (!is_same).then(|| "other participants".to_owned())
    }
}

/// What the present run was started with: the first entry of its history.
async fn begun(handle: &Handle) -> Result<WorkflowExecutionStartedEventAttributes, ServerError> {
    let mut entries = handle.fetch_history(WorkflowFetchHistoryOptions::default());
    let first = entries.next().await.transpose().map_err(ServerError::of)?;
    match first.and_then(|entry| entry.attributes) {
        Some(Attributes::WorkflowExecutionStartedEventAttributes(begun)) => Ok(begun),
        _ => Err(ServerError::Unavailable(
            "its history has no beginning".to_owned(),
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
            Code::InvalidArgument => Self::Rejected(TemporalError::Refused { why }),
            code => Self::Unavailable(format!("{code}: {why}")),
        }
    }
}
