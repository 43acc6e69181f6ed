//! Cycles as workflows of a Temporal server.
//!
//! The server keeps the calendar: the workflow `monitor-rate-limits-cron` has a cron line, and one
//! run of it is a cycle over all participants, with the four steps as activities. While a bucket is
//! low a run goes on with timers until the calendar brings the next one.
//!
//! | Where | What |
//! |--|--|
//! | server | when runs begin, which step is next, how often it is tried: [the rules](self#rules) |
//! | the leading monitor | workflow and steps, on the task queue; the budget of asking; delivery |
//! | the other monitors | stand by, as without Temporal |
//!
//! Only the monitor that [leads](crate::history::History::lead) its database takes tasks. That costs
//! nothing, because the steps are short and DICT allows few; and it keeps the budget in one place
//! and every alert with one dispatcher. Staleness and reminders do not wait for the server either: a
//! monitor whose Temporal is away says that its data is stale.
//!
//! # Rules
//!
//! | Step | Activity | An attempt | Attempts | Waits | Not tried again |
//! |--|--|--|--|--|--|
//! | get | `GetPolicies` | 45 s | 3 | as long as the planner waits, 12 s or more, or Retry-After | refused (403), nonsense, nobody to ask; waits over a minute |
//! | store | `StorePolicyState` | 30 s | for 5 minutes | 1 s to 30 s | a poll that cannot be one |
//! | analyse | `AnalyzeBalance` | 30 s | for 5 minutes | 1 s to 30 s | |
//! | publish | `PublishAlert` | 45 s | 3 | 2 s to 10 s | |
//!
//! A step whose worker has not been heard of for 10 s is given to the next one.

mod activities;
mod completion;
mod cron_workflow;
mod payload;
mod retries;
mod worker;
mod workflow;

use std::fmt;
use std::sync::Arc;

use temporalio_client::Url;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use self::activities::Activities;
use self::payload::WorkflowInput;
use self::worker::TemporalWorker;
use crate::config::TemporalConfig;
use crate::cycle::Cycle;
use crate::history::Leadership;
use crate::schedule::embedded::PollPlan;
use crate::schedule::leader::{self, PeriodicTasks, TermEnd};
use crate::schedule::{Planner, PlannerError, failure};
use crate::status::Status;

/// Works for a Temporal server until `shutdown` is there, whenever this monitor leads; then steps
/// under way end, and leadership with them. A server that is away is waited for.
pub async fn run(
    cycle: Cycle,
    plan: PollPlan,
    status: Arc<Status>,
    settings: &TemporalConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), TemporalError> {
    // What cannot be planned or reached is told before anything else.
    let planner = Planner::new(plan.schedule.clone(), plan.budget, plan.reserve);
    drop(planner.map_err(TemporalError::Plan)?);
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

/// The time in which this monitor is the one that takes tasks.
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
        settings: &TemporalConfig,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<TermEnd, TemporalError> {
        let time = &self.cycle.components().time;
        let (stop, mut working) = self.work(target, settings).await?;
        let mut periodic = PeriodicTasks::from(time.now_us());
        let (mut reminding, mut upkeep) = (JoinSet::new(), JoinSet::new());
        let ended = loop {
            let now_us = time.now_us();
            self.status.record_loop_iteration();
            periodic.adjust_to_clock(now_us);
            if upkeep.is_empty() && periodic.is_retention_due(now_us) {
                upkeep.spawn(leader::enforce_retention(
                    self.cycle.clone(),
                    self.plan.retention,
                ));
            }
            if periodic.is_timer_check_due(now_us) {
                if !self.leadership.is_held().await {
                    break TermEnd::LeadershipLost;
                }
                if reminding.is_empty() {
                    reminding.spawn(remind(self.cycle.clone(), Arc::clone(self.status)));
                }
            }
            tokio::select! {
                () = time.sleep_until(periodic.timer_check_us()) => {}
                _ = reminding.join_next(), if !reminding.is_empty() => {}
                _ = upkeep.join_next(), if !upkeep.is_empty() => {}
                () = &mut *shutdown => break TermEnd::Shutdown,
                worked = &mut working => {
                    // It ends by itself only when it is refused, or by a bug.
                    return worked.unwrap_or(Err(TemporalError::Panicked)).map(|()| TermEnd::LeadershipLost);
                }
            }
        };
        stop.send_replace(true);
        upkeep.abort_all();
        let _ended_by_itself = working.await;
        Ok(ended)
    }

    /// Puts a worker to work, with a planner that knows what was spent before.
    async fn work(
        &self,
        target: &Url,
        settings: &TemporalConfig,
    ) -> Result<(watch::Sender<bool>, JoinHandle<Result<(), TemporalError>>), TemporalError> {
        let planner = self.plan.planner(self.cycle).await;
        let planner = planner.map_err(TemporalError::Plan)?;
        let participants = self.cycle.components().sources.keys().cloned().collect();
        let work = TemporalWorker {
            target: target.clone(),
            settings: settings.clone(),
            input: WorkflowInput { participants },
            steps: Activities::new(self.cycle.clone(), Arc::clone(self.status), planner),
        };
        let (stop, stopped) = watch::channel(false);
        Ok((stop, tokio::spawn(work.run(stopped))))
    }
}

/// What time alone brings, for everybody.
async fn remind(cycle: Cycle, status: Arc<Status>) {
    for participant in cycle.components().sources.keys() {
        match cycle.check_timers(participant).await {
            Ok(events) => cycle.notify_dispatcher(&events),
            Err(error) => failure::record_history_failure(participant, &error, &status),
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

/// Why a monitor does not work for Temporal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemporalError {
    /// The plan cannot be kept.
    Plan(PlannerError),
    /// The server's address is none.
    Address,
    /// The workflow's id belongs to something else.
    Taken {
        /// The id.
        workflow_id: String,
        /// What it is there.
        kind: String,
    },
    /// The server does not take the workflow as it is configured.
    Refused {
        /// What it says.
        why: String,
    },
    /// A bug.
    Panicked,
}

impl fmt::Display for TemporalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Address => f.write_str(
                "temporal_address must be where Temporal's frontend listens, as \
                 http://127.0.0.1:7233",
            ),
            Self::Taken { workflow_id, kind } => write!(
                f,
                "the id {workflow_id} belongs to a workflow of the kind {kind}, which is not the \
                 monitor's; end that one, or write another temporal_workflow_id"
            ),
            Self::Refused { why } => write!(
                f,
                "Temporal does not take the workflow as [schedule] describes it; its words: {why}"
            ),
            Self::Panicked => f.write_str("the worker for Temporal panicked; this is a bug"),
        }
    }
}

impl std::error::Error for TemporalError {}
