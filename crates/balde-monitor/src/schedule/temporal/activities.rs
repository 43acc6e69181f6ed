//! The four steps of a cycle as Temporal activities.

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
use crate::schedule::failure;
use crate::schedule::planner::{NextAction, Planner};
use crate::status::Status;

/// The longest wait between two attempts of the fetch activity. For longer waits the workflow uses a
/// timer, so that stale data is detected meanwhile.
const RETRY_WAIT_MAX_US: u64 = 60_000_000;

/// The activities and their shared state. The planner exists in this process only, so only the leader
/// may run activities: several planners would exceed the budget together.
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

    async fn poll(&self, participant: &str) -> Result<FetchResult, ActivityError> {
        let start_us = self.now_us();
        let policy = {
            let mut planner = self.planner.lock();
            match planner.next_for(participant, start_us) {
                NextAction::Poll { .. } => None,
                NextAction::Read { policy, .. } => Some(policy),
                NextAction::Wait { until_us } => {
                    let next_poll = Self::next_poll(&planner, until_us, start_us);
                    return Ok(FetchResult::NotDue(next_poll));
                }
                NextAction::Idle => {
                    let error = FetchError::UnknownParticipant;
                    return Err(activity_error(error.label(), &error));
                }
            }
        };
        let fetched = match policy {
            Some(policy) => self.cycle.fetch_policy(participant, &policy).await,
            None => self.cycle.fetch(participant).await,
        };
        let now_us = self.now_us();
        match fetched {
            Ok(poll) => {
                let duration_us = now_us.saturating_sub(start_us);
                self.status.record_success(participant, now_us, duration_us);
                Ok(FetchResult::Poll(poll))
            }
            Err(error) => Err(self.fetch_failure(participant, &error, now_us)),
        }
    }

    fn fetch_failure(&self, participant: &str, error: &FetchError, now_us: u64) -> ActivityError {
        let mut planner = self.planner.lock();
        failure::record_fetch_failure(participant, error, now_us, &mut planner, &self.status);
        let due_us = planner.due_us(participant).unwrap_or(now_us);
        self.status.set_next_poll(participant, due_us);
        let wait_us = due_us.saturating_sub(now_us);
        let failure = ApplicationFailure::builder(error.to_string())
            .type_name(error.label().to_owned())
            .next_retry_delay(Duration::from_micros(wait_us))
            .non_retryable(wait_us > RETRY_WAIT_MAX_US);
        ActivityError::application(failure.build())
    }

    async fn judge(&self, input: &AnalyseInput) -> Result<AnalyseResult, ActivityError> {
        let AnalyseInput {
            participant,
            is_polled,
        } = input;
        let findings = self.cycle.analyse(participant).await;
        let findings = findings.map_err(|error| self.history_failure(participant, &error))?;
        let now_us = self.now_us();
        let mut planner = self.planner.lock();
        if *is_polled {
            let components = self.cycle.components();
            let assessments = findings.assessments(&components.rules, &components.analysis);
            planner.polled(participant, now_us, &assessments);
            let coverage = planner.coverage(participant);
            self.status.set_coverage(participant, coverage);
        }
        let due_us = planner.due_us(participant);
        let due_us = due_us.unwrap_or_else(|| planner.next_cron_us(now_us));
        self.status.set_next_poll(participant, due_us);
        Ok(AnalyseResult {
            alerts: u64::try_from(findings.events().len()).unwrap_or(u64::MAX),
            next_poll: Self::next_poll(&planner, due_us, now_us),
        })
    }

    fn history_failure(&self, participant: &str, error: &HistoryError) -> ActivityError {
        failure::record_history_failure(participant, error, &self.status);
        activity_error("history", error)
    }
}

#[activities]
impl Activities {
    /// Step one: fetches the bucket states of a participant that is due.
    #[activity(name = "GetPoliciesActivity")]
    pub(crate) async fn fetch(
        self: Arc<Self>,
        ctx: ActivityContext,
        participant: String,
    ) -> Result<FetchResult, ActivityError> {
        with_heartbeat(&ctx, self.poll(&participant)).await
    }

    /// Step two: stores the poll.
    #[activity(name = "StorePolicyStateActivity")]
    pub(crate) async fn store(
        self: Arc<Self>,
        ctx: ActivityContext,
        poll: Poll,
    ) -> Result<(), ActivityError> {
        // Validated again, because it has been in the server's database since it was fetched.
        let poll = Poll::new(poll.samples().to_vec());
        let poll = poll.map_err(|error| activity_error("invalid", &error))?;
        let participant = poll.participant().to_owned();
        let stored = Box::pin(with_heartbeat(&ctx, self.cycle.store(poll))).await;
        stored.map_err(|error| self.history_failure(&participant, &error))
    }

    /// Step three: judges the stored polls.
    #[activity(name = "AnalyzeBalanceActivity")]
    pub(crate) async fn analyse(
        self: Arc<Self>,
        ctx: ActivityContext,
        input: AnalyseInput,
    ) -> Result<AnalyseResult, ActivityError> {
        Box::pin(with_heartbeat(&ctx, self.judge(&input))).await
    }

    /// Step four: attempts the due deliveries once.
    #[activity(name = "PublishAlertActivity")]
    pub(crate) async fn publish(
        self: Arc<Self>,
        ctx: ActivityContext,
    ) -> Result<PublishResult, ActivityError> {
        let round = with_heartbeat(&ctx, self.cycle.publish()).await;
        let round = round.map_err(|error| activity_error("history", &error))?;
        Ok(PublishResult {
            delivered: round.delivered,
            failed: round.failed + round.unfinished,
        })
    }
}

/// Sends heartbeats to the server for as long as `work` takes.
async fn with_heartbeat<T>(ctx: &ActivityContext, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(HEARTBEAT) => {
                // If it does not arrive, the server gives the activity to another worker.
                let _sent_or_timed_out = ctx.record_heartbeat(()).await;
            }
        }
    }
}

fn activity_error(label: &str, error: &dyn std::error::Error) -> ActivityError {
    let failure = ApplicationFailure::builder(error.to_string()).type_name(label.to_owned());
    ActivityError::application(failure.build())
}
