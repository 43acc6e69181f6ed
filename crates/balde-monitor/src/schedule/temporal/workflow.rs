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

use super::activities::Activities;
use super::completion::RunCompletion;
use super::payload::{AnalyseInput, FetchResult, NextPoll, RunSummary, WorkflowInput};
use super::retries::{ANALYSE, GET, PUBLISH, STORE};

/// What the workflow is called at the server.
pub(super) const KIND: &str = "MonitorRateLimitsWorkflow";

/// How long a run's own history may get, of the 51,200 entries at which Temporal ends it: from then
/// on the calendar alone makes the pace, until the next run. A poll makes some 23 entries.
const ENTRIES_MAX: u32 = 20_000;

/// The workflow.
#[workflow]
pub(crate) struct MonitorRateLimits {
    input: WorkflowInput,
    completion: RunCompletion,
    summary: RunSummary,
}

#[workflow_methods]
impl MonitorRateLimits {
    #[init]
    fn new(_ctx: &WorkflowContextView, input: WorkflowInput) -> Self {
        Self {
            completion: RunCompletion::new(input.participants.len()),
            summary: RunSummary::default(),
            input,
        }
    }

    #[run(name = KIND)]
    pub(crate) async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<RunSummary> {
        let participants = ctx.state(|run| run.input.participants.clone());
        let all = participants.into_iter();
        join_all(all.map(|participant| watch(ctx.clone(), participant))).await;
        if ctx.cancellation_token().is_cancelled() {
            return Err(WorkflowTermination::cancelled());
        }
        Ok(ctx.state(|run| run.summary))
    }
}

/// Takes one participant's turns until the run is over. Whatever fails here fails for this one.
async fn watch(ctx: WorkflowContext<MonitorRateLimits>, participant: String) {
    loop {
        let next_poll = turn(&ctx, &participant).await;
        if ctx.cancellation_token().is_cancelled() {
            return;
        }
        if next_poll.is_cron || ctx.history_length() > ENTRIES_MAX {
            let now_us = now_us(&ctx);
            let due_us = now_us.saturating_add(next_poll.in_us);
            ctx.state_mut(|run| run.completion.rest(&participant, now_us, due_us));
        }
        let mut over = std::pin::pin!(ctx.wait_condition(|run| run.completion.is_over()));
        let mut due = std::pin::pin!(ctx.timer(next_poll.wait()));
        select! {
            _ = over => return,
            _ = due => {}
        }
        ctx.state_mut(|run| run.completion.work(&participant));
    }
}

/// The four steps.
async fn turn(ctx: &WorkflowContext<MonitorRateLimits>, participant: &str) -> NextPoll {
    let get = ctx.execute_activity(Activities::get, participant.to_owned(), GET.options());
    let is_answered = match get.await {
        Ok(FetchResult::NotDue(next_poll)) => return next_poll,
        Ok(FetchResult::Poll(poll)) => {
            let store = ctx.execute_activity(Activities::store, poll, STORE.options());
            // Kept in the worker's memory, if not yet in the database.
            let _either_way = store.await;
            true
        }
        // Judged nevertheless: that there is no answer is news, too.
        Err(_) => false,
    };
    ctx.state_mut(|run| {
        run.summary.answers += u64::from(is_answered);
        run.summary.failures += u64::from(!is_answered);
    });
    let asked = AnalyseInput {
        participant: participant.to_owned(),
        is_answered,
    };
    let analyse = ctx.execute_activity(Activities::analyse, asked, ANALYSE.options());
    let Ok(found) = analyse.await else {
        return NextPoll::AFTER_FAILURE;
    };
    if found.alerts > 0 {
        ctx.state_mut(|run| run.summary.alerts += found.alerts);
        let publish = ctx.execute_activity(Activities::publish, (), PUBLISH.options());
        // What did not arrive is the dispatcher' to carry.
        let _either_way = publish.await;
    }
    found.next_poll
}

fn now_us(ctx: &WorkflowContext<MonitorRateLimits>) -> u64 {
    let since = ctx
        .workflow_time()
        .map(|now| now.duration_since(UNIX_EPOCH));
    let since = since.and_then(Result::ok).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
