//! The workflow: one run polls every participant, and again while a bucket is low, until the next
//! cron time.
//!
//! Temporal replays a workflow from its event history whenever another worker takes it over. So the
//! code here must be deterministic: it reads no clock, no configuration and no random numbers, only
//! the input, the workflow's own time and the results of activities.

use std::time::UNIX_EPOCH;

use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    WorkflowContext, WorkflowContextView, WorkflowResult, WorkflowTermination, join_all, select,
};

use super::activities::Activities;
use super::completion::RunCompletion;
use super::payload::{AnalyseInput, FetchResult, NextPoll, RunSummary, WorkflowInput};
use super::retries::{ANALYSE, FETCH, PUBLISH, STORE};

/// The type name of the workflow.
pub(super) const WORKFLOW_TYPE: &str = "MonitorRateLimitsWorkflow";

/// The event-history length from which a run polls at cron times only. Temporal terminates a run at
/// 51,200 events; a poll takes about 23.
const HISTORY_EVENTS_MAX: u32 = 20_000;

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

    #[run(name = WORKFLOW_TYPE)]
    pub(crate) async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<RunSummary> {
        let participants = ctx.state(|run| run.input.participants.clone());
        let all = participants.into_iter();
        join_all(all.map(|participant| poll_until_complete(ctx.clone(), participant))).await;
        if ctx.cancellation_token().is_cancelled() {
            return Err(WorkflowTermination::cancelled());
        }
        Ok(ctx.state(|run| run.summary))
    }
}

/// Polls one participant until the run is complete. Failures do not affect other participants.
async fn poll_until_complete(ctx: WorkflowContext<MonitorRateLimits>, participant: String) {
    loop {
        let next_poll = run_cycle(&ctx, &participant).await;
        if ctx.cancellation_token().is_cancelled() {
            return;
        }
        if next_poll.is_cron || ctx.history_length() > HISTORY_EVENTS_MAX {
            let now_us = now_us(&ctx);
            let due_us = now_us.saturating_add(next_poll.in_us);
            ctx.state_mut(|run| run.completion.wait(&participant, now_us, due_us));
        }
        let mut complete = std::pin::pin!(ctx.wait_condition(|run| run.completion.is_complete()));
        let mut due = std::pin::pin!(ctx.timer(next_poll.wait()));
        select! {
            _ = complete => return,
            _ = due => {}
        }
        ctx.state_mut(|run| run.completion.resume(&participant));
    }
}

/// Runs the four steps of a cycle as activities.
async fn run_cycle(ctx: &WorkflowContext<MonitorRateLimits>, participant: &str) -> NextPoll {
    let fetch = ctx.execute_activity(Activities::fetch, participant.to_owned(), FETCH.options());
    let is_polled = match fetch.await {
        Ok(FetchResult::NotDue(next_poll)) => return next_poll,
        Ok(FetchResult::Poll(poll)) => {
            let store = ctx.execute_activity(Activities::store, poll, STORE.options());
            // If it failed, the poll stays in the worker's memory.
            let _stored_or_pending = store.await;
            true
        }
        // The analysis runs nevertheless, because it detects stale data.
        Err(_) => false,
    };
    ctx.state_mut(|run| {
        run.summary.polls += u64::from(is_polled);
        run.summary.failures += u64::from(!is_polled);
    });
    let input = AnalyseInput {
        participant: participant.to_owned(),
        is_polled,
    };
    let analyse = ctx.execute_activity(Activities::analyse, input, ANALYSE.options());
    let Ok(result) = analyse.await else {
        return NextPoll::AFTER_FAILURE;
    };
    if result.alerts > 0 {
        ctx.state_mut(|run| run.summary.alerts += result.alerts);
        let publish = ctx.execute_activity(Activities::publish, (), PUBLISH.options());
        // The dispatchers retry what failed.
        let _delivered_or_retried = publish.await;
    }
    result.next_poll
}

fn now_us(ctx: &WorkflowContext<MonitorRateLimits>) -> u64 {
    let since = ctx
        .workflow_time()
        .map(|now| now.duration_since(UNIX_EPOCH));
    let since = since.and_then(Result::ok).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
