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

mod payload;
mod retries;
mod rota;
mod standing;
mod steps;
mod worker;
mod workflow;

use std::fmt;
use std::sync::Arc;

use temporalio_client::Url;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use self::payload::Assignment;
use self::steps::Activities;
use self::worker::Work;
use crate::config::TemporalConfig;
use crate::cycle::Cycle;
use crate::history::Leadership;
use crate::schedule::embedded::Plan;
use crate::schedule::leader::{self, Ended, Rounds};
use crate::schedule::{Planner, PlannerError, trouble};
use crate::status::Status;

/// Works for a Temporal server until `shutdown` is there, whenever this monitor leads; then steps
/// under way end, and leadership with them. A server that is away is waited for.
pub async fn run(
    cycle: Cycle,
    plan: Plan,
    status: Arc<Status>,
    settings: &TemporalConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), TemporalError> {
    // What cannot be planned or reached is told before anything else.
    let planner = Planner::new(plan.pace.clone(), plan.budget, plan.reserve);
    drop(planner.map_err(TemporalError::Plan)?);
    let target = target(&settings.address)?;
    let mut shutdown = std::pin::pin!(shutdown);
    while let Some(leadership) = leader::until_leading(&cycle, &status, &mut shutdown).await {
        let reign = Reign {
            cycle: &cycle,
            plan: &plan,
            status: &status,
            leadership,
        };
        let ended = reign.run(&target, settings, &mut shutdown).await;
        leader::step_down(&status, ended.as_ref().ok().copied());
        if ended? == Ended::Shutdown {
            break;
        }
    }
    Ok(())
}

/// The time in which this monitor is the one that takes tasks.
struct Reign<'a> {
    cycle: &'a Cycle,
    plan: &'a Plan,
    status: &'a Arc<Status>,
    leadership: Leadership,
}

impl Reign<'_> {
    async fn run(
        mut self,
        target: &Url,
        settings: &TemporalConfig,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<Ended, TemporalError> {
        let time = &self.cycle.parts().time;
        let (stop, mut working) = self.work(target, settings).await?;
        let mut rounds = Rounds::from(time.now_us());
        let (mut reminding, mut upkeep) = (JoinSet::new(), JoinSet::new());
        let ended = loop {
            let now_us = time.now_us();
            self.status.turned();
            rounds.heal(now_us);
            if upkeep.is_empty() && rounds.is_time_for_upkeep(now_us) {
                upkeep.spawn(leader::keep_up(self.cycle.clone(), self.plan.retention));
            }
            if rounds.is_time_to_remind(now_us) {
                if !self.leadership.is_held().await {
                    break Ended::Deposed;
                }
                if reminding.is_empty() {
                    reminding.spawn(remind(self.cycle.clone(), Arc::clone(self.status)));
                }
            }
            tokio::select! {
                () = time.sleep_until(rounds.remind_us()) => {}
                _ = reminding.join_next(), if !reminding.is_empty() => {}
                _ = upkeep.join_next(), if !upkeep.is_empty() => {}
                () = &mut *shutdown => break Ended::Shutdown,
                worked = &mut working => {
                    // It ends by itself only when it is refused, or by a bug.
                    return worked.unwrap_or(Err(TemporalError::Panicked)).map(|()| Ended::Deposed);
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
        let participants = self.cycle.parts().sources.keys().cloned().collect();
        let work = Work {
            target: target.clone(),
            settings: settings.clone(),
            assignment: Assignment { participants },
            steps: Activities::new(self.cycle.clone(), Arc::clone(self.status), planner),
        };
        let (stop, stopped) = watch::channel(false);
        Ok((stop, tokio::spawn(work.run(stopped))))
    }
}

/// What time alone brings, for everybody.
async fn remind(cycle: Cycle, status: Arc<Status>) {
    for participant in cycle.parts().sources.keys() {
        match cycle.remind(participant).await {
            Ok(events) => cycle.announce(&events),
            Err(error) => trouble::not_kept(participant, &error, &status),
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
