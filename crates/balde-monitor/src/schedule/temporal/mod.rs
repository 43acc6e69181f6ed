//! The Temporal scheduler: cycles as workflow runs of a Temporal server.
//!
//! The workflow `monitor-rate-limits-cron` has a cron expression. One run of it is a cycle over all
//! participants, with the four steps as activities. While a bucket is low, a run continues with
//! timers until the next cron time.
//!
//! | Where | What |
//! |--|--|
//! | server | when runs start, which activity is next, [timeouts and retries](self#retries) |
//! | leader | runs workflow and activities from the task queue; keeps the poll budget; delivers alerts |
//! | other monitors | standby, as without Temporal |
//!
//! Only the monitor that [leads](crate::history::History::lead) its database takes tasks. One worker
//! is enough, because activities are short and DICT allows few polls, and it keeps the budget and the
//! dispatchers in one process. Staleness and reminders do not depend on the server: while Temporal is
//! unavailable, the leader still raises the alert for stale data.
//!
//! # Retries
//!
//! | Step | Activity | Timeout of an attempt | Attempts | Waits | Not retried |
//! |--|--|--|--|--|--|
//! | fetch | `GetPoliciesActivity` | 45 s | 3 | the planner's backoff (12 s or more), or Retry-After | 403, an invalid response, an unknown participant; waits of over a minute |
//! | store | `StorePolicyStateActivity` | 30 s | for 5 minutes | 1 s to 30 s | an invalid poll |
//! | analyse | `AnalyzeBalanceActivity` | 30 s | for 5 minutes | 1 s to 30 s | |
//! | publish | `PublishAlertActivity` | 45 s | 3 | 2 s to 10 s | |
//!
//! An activity without a heartbeat for 10 s is given to another worker.

mod activities;
mod completion;
mod cron_workflow;
mod payload;
mod retries;
mod worker;
mod workflow;

use std::sync::Arc;

use temporalio_client::Url;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use self::activities::Activities;
use self::payload::WorkflowInput;
use self::worker::TemporalWorker;
use crate::cycle::Cycle;
use crate::history::Leadership;
use crate::schedule::failure;
use crate::schedule::leader::{self, PeriodicTasks, TermEnd};
use crate::schedule::plan::PollPlan;
use crate::schedule::planner::PlannerError;
use crate::schedule::temporal_settings::TemporalSettings;
use crate::status::Status;

/// Runs a Temporal worker while this monitor is the leader, until `shutdown` completes. Then the
/// activities in progress are finished and the leadership is released. Reconnects while the server is
/// unavailable.
pub async fn run(
    cycle: Cycle,
    plan: PollPlan,
    status: Arc<Status>,
    settings: &TemporalSettings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), TemporalError> {
    // Fails on an invalid plan or address before anything is polled.
    plan.validate().map_err(TemporalError::Plan)?;
    let target = target(&settings.address)?;
    let mut shutdown = std::pin::pin!(shutdown);
    while let Some(leadership) = leader::acquire_leadership(&cycle, &status, &mut shutdown).await {
        let term = LeaderTerm {
            cycle: &cycle,
            plan: &plan,
            status: &status,
            leadership,
        };
        let ended = term.run(&target, settings, &mut shutdown).await;
        leader::step_down(&status, ended.as_ref().ok().copied());
        if ended? == TermEnd::Shutdown {
            break;
        }
    }
    Ok(())
}

/// The time in which this monitor is the leader.
struct LeaderTerm<'a> {
    cycle: &'a Cycle,
    plan: &'a PollPlan,
    status: &'a Arc<Status>,
    leadership: Leadership,
}

impl LeaderTerm<'_> {
    async fn run(
        mut self,
        target: &Url,
        settings: &TemporalSettings,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<TermEnd, TemporalError> {
        let time = &self.cycle.components().time;
        let (stop, mut worker) = self.start_worker(target, settings).await?;
        let mut periodic = PeriodicTasks::from(time.now_us());
        let (mut timers, mut retention) = (JoinSet::new(), JoinSet::new());
        let ended = loop {
            let now_us = time.now_us();
            self.status.record_loop_iteration();
            periodic.adjust_to_clock(now_us);
            if retention.is_empty() && periodic.is_retention_due(now_us) {
                retention.spawn(leader::enforce_retention(
                    self.cycle.clone(),
                    self.plan.retention,
                ));
            }
            if periodic.is_timer_check_due(now_us) {
                if !leader::still_leads(&mut self.leadership, self.cycle).await {
                    break TermEnd::LeadershipLost;
                }
                if timers.is_empty() {
                    timers.spawn(check_timers(self.cycle.clone(), Arc::clone(self.status)));
                }
            }
            tokio::select! {
                () = time.sleep_until(periodic.timer_check_us()) => {}
                _ = timers.join_next(), if !timers.is_empty() => {}
                _ = retention.join_next(), if !retention.is_empty() => {}
                () = &mut *shutdown => break TermEnd::Shutdown,
                stopped = &mut worker => {
                    // It stops by itself only if the server rejects the workflow, or by a bug.
                    return stopped.unwrap_or(Err(TemporalError::Panicked)).map(|()| TermEnd::LeadershipLost);
                }
            }
        };
        stop.send_replace(true);
        retention.abort_all();
        let _stopped_or_panicked = worker.await;
        Ok(ended)
    }

    /// Starts a worker with a planner that knows the budget as of the newest stored samples.
    async fn start_worker(
        &self,
        target: &Url,
        settings: &TemporalSettings,
    ) -> Result<(watch::Sender<bool>, JoinHandle<Result<(), TemporalError>>), TemporalError> {
        let planner = self.plan.planner(self.cycle).await;
        let planner = planner.map_err(TemporalError::Plan)?;
        let participants = self.cycle.components().sources.keys().cloned().collect();
        let worker = TemporalWorker {
            target: target.clone(),
            settings: settings.clone(),
            input: WorkflowInput { participants },
            activities: Activities::new(self.cycle.clone(), Arc::clone(self.status), planner),
        };
        let (stop, stopped) = watch::channel(false);
        Ok((stop, tokio::spawn(worker.run(stopped))))
    }
}

/// Evaluates staleness, reminders and silences of all participants.
async fn check_timers(cycle: Cycle, status: Arc<Status>) {
    for participant in cycle.components().sources.keys() {
        if let Err(error) = cycle.check_timers(participant).await {
            failure::record_history_failure(participant, &error, &status);
        }
    }
}

fn target(address: &str) -> Result<Url, TemporalError> {
    let is_url = address.contains("://");
    let url = if is_url {
        address.parse::<Url>()
    } else {
        format!("http://{address}").parse()
    };
    let url = url.ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or(TemporalError::Address)
}

/// Why the Temporal scheduler stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemporalError {
    /// The polling plan is not valid.
    #[error(transparent)]
    Plan(PlannerError),
    /// The address of the server is not valid.
    #[error(
        "temporal_address must be the address of Temporal's frontend, such as http://127.0.0.1:7233"
    )]
    Address,
    /// The id of the workflow is in use by a workflow of another type.
    #[error(
        "the workflow id {workflow_id} is in use by a workflow of type {workflow_type}; terminate \
         that workflow, or set another temporal_workflow_id"
    )]
    IdInUse {
        /// The id.
        workflow_id: String,
        /// The type of the workflow that uses it.
        workflow_type: String,
    },
    /// The server rejects the workflow as it is configured.
    #[error("Temporal rejects the workflow that [schedule] describes: {why}")]
    Rejected {
        /// The server's message.
        why: String,
    },
    /// The worker panicked.
    #[error("the Temporal worker panicked; this is a bug")]
    Panicked,
}
