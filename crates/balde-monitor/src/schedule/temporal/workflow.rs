//! One run: everybody is asked about, and again while it matters, until the calendar takes over.
//!
//! All of it happens again, from what Temporal wrote down, whenever a worker takes a run over. So
//! nothing in here knows a clock, a configuration or chance: only the input, the workflow's own time
//! and what the steps returned.

use std::time::UNIX_EPOCH;

use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    WorkflowContext, WorkflowContextView, WorkflowResult, WorkflowTermination, join_all, select,
};

use super::payload::{Answer, Asked, Assignment, Look, Served};
use super::retries::{ANALYSE, GET, PUBLISH, STORE};
use super::rota::Rota;
use super::steps::Activities;

/// What the workflow is called at the server.
pub(super) const KIND: &str = "MonitorRateLimitsWorkflow";

/// How long a run's own history may get, of the 51,200 entries at which Temporal ends it: from then
/// on the calendar alone makes the pace, until the next run. A poll makes some 23 entries.
const ENTRIES_MAX: u32 = 20_000;

/// The workflow.
#[workflow]
pub(crate) struct MonitorRateLimits {
    assignment: Assignment,
    rota: Rota,
    served: Served,
}

#[workflow_methods]
impl MonitorRateLimits {
    #[init]
    fn new(_ctx: &WorkflowContextView, assignment: Assignment) -> Self {
        Self {
            rota: Rota::new(assignment.participants.len()),
            served: Served::default(),
            assignment,
        }
    }

    #[run(name = KIND)]
    pub(crate) async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<Served> {
        let participants = ctx.state(|run| run.assignment.participants.clone());
        let all = participants.into_iter();
        join_all(all.map(|participant| watch(ctx.clone(), participant))).await;
        if ctx.cancellation_token().is_cancelled() {
            return Err(WorkflowTermination::cancelled());
        }
        Ok(ctx.state(|run| run.served))
    }
}

/// Takes one participant's turns until the run is over. Whatever fails here fails for this one.
async fn watch(ctx: WorkflowContext<MonitorRateLimits>, participant: String) {
    loop {
        let look = turn(&ctx, &participant).await;
        if ctx.cancellation_token().is_cancelled() {
            return;
        }
        if look.is_regular || ctx.history_length() > ENTRIES_MAX {
            let now_us = now_us(&ctx);
            let due_us = now_us.saturating_add(look.in_us);
            ctx.state_mut(|run| run.rota.rest(&participant, now_us, due_us));
        }
        let mut over = std::pin::pin!(ctx.wait_condition(|run| run.rota.is_over()));
        let mut due = std::pin::pin!(ctx.timer(look.wait()));
        select! {
            _ = over => return,
            _ = due => {}
        }
        ctx.state_mut(|run| run.rota.work(&participant));
    }
}

/// The four steps.
async fn turn(ctx: &WorkflowContext<MonitorRateLimits>, participant: &str) -> Look {
    let get = ctx.execute_activity(Activities::get, participant.to_owned(), GET.options());
    let is_answered = match get.await {
        Ok(Answer::NotYet(look)) => return look,
        Ok(Answer::Poll(poll)) => {
            let store = ctx.execute_activity(Activities::store, poll, STORE.options());
            // Kept in the worker's memory, if not yet in the database.
            let _either_way = store.await;
            true
        }
        // Judged nevertheless: that there is no answer is news, too.
        Err(_) => false,
    };
    ctx.state_mut(|run| {
        run.served.answers += u64::from(is_answered);
        run.served.failures += u64::from(!is_answered);
    });
    let asked = Asked {
        participant: participant.to_owned(),
        is_answered,
    };
    let analyse = ctx.execute_activity(Activities::analyse, asked, ANALYSE.options());
    let Ok(found) = analyse.await else {
        return Look::AFTER_FAILURE;
    };
    if found.alerts > 0 {
        ctx.state_mut(|run| run.served.alerts += found.alerts);
        let publish = ctx.execute_activity(Activities::publish, (), PUBLISH.options());
        // What did not arrive is the dispatcher' to carry.
        let _either_way = publish.await;
    }
    found.look
}

fn now_us(ctx: &WorkflowContext<MonitorRateLimits>) -> u64 {
    let since = ctx
        .workflow_time()
        .map(|now| now.duration_since(UNIX_EPOCH));
    let since = since.and_then(Result::ok).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
