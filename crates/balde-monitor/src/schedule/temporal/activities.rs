//! The four steps as activities of this worker.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::payload::{AnalyseInput, AnalyseResult, FetchResult, NextPoll, PublishResult};
use super::retries::HEARTBEAT;
use crate::cycle::{Cycle, FetchError};
use crate::history::HistoryError;
use crate::sample::Poll;
use crate::schedule::{NextAction, Planner, failure};
use crate::status::Status;

/// The longest wait that a failed attempt to ask makes within its step. Longer ones are the
/// workflow's, which meanwhile tells of stale data.
const WAIT_MAX_US: u64 = 60_000_000;

/// What the steps need. The planner is this worker's own, which is why only the leader works: its
/// budget would be everybody's otherwise.
#[derive(Clone)]
pub(crate) struct Activities {
    cycle: Cycle,
    status: Arc<Status>,
    planner: Arc<Mutex<Planner>>,
}

impl Activities {
    pub(super) fn new(cycle: Cycle, status: Arc<Status>, planner: Planner) -> Self {
        Self {
            cycle,
            status,
            planner: Arc::new(Mutex::new(planner)),
        }
    }

    fn now_us(&self) -> u64 {
        self.cycle.components().time.now_us()
    }

    fn next_poll(planner: &Planner, due_us: u64, now_us: u64) -> NextPoll {
        NextPoll {
            in_us: due_us.saturating_sub(now_us),
            is_cron: due_us >= planner.next_cron_us(now_us),
        }
    }

    async fn ask(&self, participant: &str) -> Result<FetchResult, ActivityError> {
        let asked_us = self.now_us();
        {
            let mut planner = self.planner.lock();
            match planner.take(participant, asked_us) {
                NextAction::Poll { .. } => {}
                NextAction::Wait { until_us } => {
                    let next_poll = Self::next_poll(&planner, until_us, asked_us);
                    return Ok(FetchResult::NotDue(next_poll));
                }
                NextAction::Idle => {
                    return Err(failure(
                        FetchError::UnknownParticipant.label(),
                        FetchError::UnknownParticipant,
                    ));
                }
            }
        }
        let answer = self.cycle.fetch(participant).await;
        let now_us = self.now_us();
        match answer {
            Ok(poll) => {
                let took_us = now_us.saturating_sub(asked_us);
                self.status.record_success(participant, now_us, took_us);
                Ok(FetchResult::Poll(poll))
            }
            Err(error) => Err(self.not_answered(participant, &error, now_us)),
        }
    }

    fn not_answered(&self, participant: &str, error: &FetchError, now_us: u64) -> ActivityError {
        let mut planner = self.planner.lock();
        failure::record_fetch_failure(participant, error, now_us, &mut planner, &self.status);
        let due_us = planner.due_us(participant).unwrap_or(now_us);
        self.status.set_next_poll(participant, due_us);
        let wait_us = due_us.saturating_sub(now_us);
        let failure = ApplicationFailure::builder(error.to_string())
            .type_name(error.label().to_owned())
            .next_retry_delay(Duration::from_micros(wait_us))
            .non_retryable(wait_us > WAIT_MAX_US);
        ActivityError::application(failure.build())
    }

    async fn judge(&self, asked: &AnalyseInput) -> Result<AnalyseResult, ActivityError> {
        let AnalyseInput {
            participant,
            is_answered,
        } = asked;
        let findings = self.cycle.analyse(participant).await;
        let findings = findings.map_err(|error| self.not_kept(participant, error))?;
        let now_us = self.now_us();
        let mut planner = self.planner.lock();
        if *is_answered {
            let components = self.cycle.components();
            let seen = findings.assessments(&components.rules, &components.analysis);
            planner.polled(participant, now_us, &seen);
        }
        let due_us = planner.due_us(participant);
        let due_us = due_us.unwrap_or_else(|| planner.next_cron_us(now_us));
        self.status.set_next_poll(participant, due_us);
        Ok(AnalyseResult {
            alerts: u64::try_from(findings.events().len()).unwrap_or(u64::MAX),
            next_poll: Self::next_poll(&planner, due_us, now_us),
        })
    }

    fn not_kept(&self, participant: &str, error: HistoryError) -> ActivityError {
        failure::record_history_failure(participant, &error, &self.status);
        failure("history", error)
    }
}

#[activities]
impl Activities {
    /// Step one.
    #[activity(name = "GetPolicies")]
    pub(crate) async fn get(
        self: Arc<Self>,
        ctx: ActivityContext,
        participant: String,
    ) -> Result<FetchResult, ActivityError> {
        alive(&ctx, self.request(&participant)).await
    }

    /// Step two.
    #[activity(name = "StorePolicyState")]
    pub(crate) async fn store(
        self: Arc<Self>,
        ctx: ActivityContext,
        poll: Poll,
    ) -> Result<(), ActivityError> {
        // It was valid when it was sent; since then it was text in somebody else's database.
        let poll = Poll::new(poll.samples().to_vec());
        let poll = poll.map_err(|error| failure("invalid", error))?;
        let participant = poll.participant().to_owned();
        let stored = Box::pin(alive(&ctx, self.cycle.store(poll))).await;
        stored.map_err(|error| self.not_kept(&participant, error))
    }

    /// Step three.
    #[activity(name = "AnalyzeBalance")]
    pub(crate) async fn analyse(
        self: Arc<Self>,
        ctx: ActivityContext,
        asked: AnalyseInput,
    ) -> Result<AnalyseResult, ActivityError> {
        Box::pin(alive(&ctx, self.judge(&asked))).await
    }

    /// Step four.
    #[activity(name = "PublishAlert")]
    pub(crate) async fn publish(
        self: Arc<Self>,
        ctx: ActivityContext,
    ) -> Result<PublishResult, ActivityError> {
        let round = alive(&ctx, self.cycle.publish()).await;
        let round = round.map_err(|error| failure("history", error))?;
        Ok(PublishResult {
            delivered: round.delivered,
            failed: round.failed + round.unfinished,
        })
    }
}

/// Tells the server that this worker lives for as long as `work` takes.
async fn alive<T>(ctx: &ActivityContext, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(HEARTBEAT) => {
                // If that is not heard, the step is somebody else's before long.
                let _either_way = ctx.record_heartbeat(()).await;
            }
        }
    }
}

fn failure(label: &str, error: impl std::error::Error) -> ActivityError {
    let failure = ApplicationFailure::builder(error.to_string()).type_name(label.to_owned());
    ActivityError::application(failure.build())
}
