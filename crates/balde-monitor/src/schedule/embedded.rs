//! The embedded scheduler: one loop in this process, and one leader per database.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::cycle::{Cycle, FetchError, Findings};
use crate::history::{HistoryError, Leadership};
use crate::schedule::failure;
use crate::schedule::leader::{self, PeriodicTasks, SHUTDOWN_GRACE, TermEnd};
use crate::schedule::plan::PollPlan;
use crate::schedule::planner::{NextAction, Planner, PlannerError};
use crate::schedule::unchanged::UnchangedReads;
use crate::status::Status;

/// The most cycles that run concurrently.
const CYCLES_MAX: usize = 8;

/// Runs cycles while this monitor is the leader, until `shutdown` completes. Then the cycles in
/// flight are finished and the leadership is released.
pub async fn run(
    cycle: Cycle,
    plan: PollPlan,
    status: Arc<Status>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), PlannerError> {
    // Fails on an invalid plan before anything is polled.
    plan.validate()?;
    let mut shutdown = std::pin::pin!(shutdown);
    while let Some(leadership) = leader::acquire_leadership(&cycle, &status, &mut shutdown).await {
        let term = LeaderTerm {
            cycle: &cycle,
            plan: &plan,
            status: &status,
            leadership,
        };
        let ended = term.run(&mut shutdown).await;
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

/// The result of one task for one participant.
struct TaskReport {
    participant: String,
    /// Whether the task polled the participant, or only analysed stored data.
    is_poll: bool,
    result: Result<Option<Findings>, TaskError>,
}

enum TaskError {
    Fetch(FetchError),
    History(HistoryError),
}

/// The tasks in flight, and the participants they work on.
#[derive(Default)]
struct Tasks {
    running: JoinSet<TaskReport>,
    polling: BTreeSet<String>,
    unchanged: Arc<Mutex<UnchangedReads>>,
    analysing: BTreeSet<String>,
}

impl LeaderTerm<'_> {
    async fn run(
        mut self,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<TermEnd, PlannerError> {
        let time = self.cycle.components().time.clone();
        let mut planner = self.plan.planner(self.cycle).await?;
        let mut tasks = Tasks::default();
        // Polls that were stored but not analysed before the previous leader ended come first.
        for participant in self.cycle.components().sources.keys() {
            tasks.analysing.insert(participant.clone());
            let analyse = analyse(self.cycle.clone(), participant.clone());
            tasks.running.spawn(analyse);
        }
        let mut periodic = PeriodicTasks::from(time.now_us());
        let mut retention = JoinSet::new();
        let ended = loop {
            let now_us = time.now_us();
            self.status.record_loop_iteration();
            periodic.adjust_to_clock(now_us);
            if periodic.is_timer_check_due(now_us) {
                if !leader::still_leads(&mut self.leadership, self.cycle).await {
                    break TermEnd::LeadershipLost;
                }
                self.check_timers(&mut tasks);
            }
            let mut wake_us = periodic.timer_check_us();
            if retention.is_empty() && periodic.is_retention_due(now_us) {
                let enforce = leader::enforce_retention(self.cycle.clone(), self.plan.retention);
                retention.spawn(enforce);
            }
            if tasks.running.len() < CYCLES_MAX {
                let due = match planner.next(now_us) {
                    NextAction::Poll { participant } => Some((participant, None)),
                    NextAction::Read {
                        participant,
                        policy,
                    } => Some((participant, Some(policy))),
                    NextAction::Wait { until_us } => {
                        wake_us = wake_us.min(until_us);
                        None
                    }
                    NextAction::Idle => None,
                };
                if let Some((participant, policy)) = due {
                    if !leader::still_leads(&mut self.leadership, self.cycle).await {
                        break TermEnd::LeadershipLost;
                    }
                    // Two concurrent polls of a participant could be judged out of order.
                    if tasks.polling.insert(participant.clone()) {
                        let call = CallContext {
                            cycle: self.cycle.clone(),
                            status: Arc::clone(self.status),
                            unchanged: Arc::clone(&tasks.unchanged),
                        };
                        tasks.running.spawn(run_cycle(call, participant, policy));
                    }
                    continue;
                }
            }
            tokio::select! {
                () = time.sleep_until(wake_us) => {}
                Some(done) = tasks.running.join_next() => {
                    if let Some(report) = tasks.finished(done) {
                        self.record(report, &mut planner);
                    }
                }
                _ = retention.join_next(), if !retention.is_empty() => {}
                () = &mut *shutdown => break TermEnd::Shutdown,
            }
        };
        retention.abort_all();
        let all = async { while tasks.running.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_GRACE, all).await.is_err() {
            tracing::warn!(
                event_type = "cycles_aborted",
                "aborted cycles that did not finish in time; polls that they stored are analysed \
                 after the next start"
            );
        }
        Ok(ended)
    }

    fn check_timers(&self, tasks: &mut Tasks) {
        for participant in self.cycle.components().sources.keys() {
            if tasks.analysing.insert(participant.clone()) {
                let check = check_timers(self.cycle.clone(), participant.clone());
                tasks.running.spawn(check);
            }
        }
    }

    fn record(&self, report: TaskReport, planner: &mut Planner) {
        let now_us = self.cycle.components().time.now_us();
        let participant = &report.participant;
        match report.result {
            Ok(Some(findings)) => {
                let components = self.cycle.components();
                let assessments = findings.assessments(&components.rules, &components.analysis);
                planner.polled(participant, now_us, &assessments);
                let coverage = planner.coverage(participant);
                self.status.set_coverage(participant, coverage);
            }
            Ok(None) => return,
            Err(TaskError::Fetch(error)) => {
                failure::record_fetch_failure(participant, &error, now_us, planner, self.status);
            }
            Err(TaskError::History(error)) => {
                if report.is_poll {
                    planner.failed(participant, now_us, None);
                }
                failure::record_history_failure(participant, &error, self.status);
            }
        }
        if let Some(us) = planner.due_us(participant) {
            self.status.set_next_poll(participant, us);
        }
    }
}

impl Tasks {
    /// Removes a finished task. After a panic its participant is not known, so all participants
    /// count as free again.
    fn finished(&mut self, done: Result<TaskReport, tokio::task::JoinError>) -> Option<TaskReport> {
        let Ok(report) = done else {
            tracing::error!(
                event_type = "cycle_panicked",
                "a cycle panicked; this is a bug"
            );
            self.analysing.clear();
            self.polling.clear();
            return None;
        };
        let busy = if report.is_poll {
            &mut self.polling
        } else {
            &mut self.analysing
        };
        busy.remove(&report.participant);
        Some(report)
    }
}

/// What a cycle uses.
struct CallContext {
    cycle: Cycle,
    status: Arc<Status>,
    unchanged: Arc<Mutex<UnchangedReads>>,
}

/// Runs the steps of a cycle for one participant: for all buckets, or for the one of a policy. The
/// dispatchers do the publishing.
async fn run_cycle(call: CallContext, participant: String, policy: Option<String>) -> TaskReport {
    let CallContext {
        cycle,
        status,
        unchanged,
    } = call;
    let result = async {
        let time = &cycle.components().time;
        let start_us = time.now_us();
        let poll = match &policy {
            Some(policy) => cycle.fetch_policy(&participant, policy).await,
            None => cycle.fetch(&participant).await,
        };
        let poll = poll.map_err(TaskError::Fetch)?;
        let now_us = time.now_us();
        status.record_success(&participant, now_us, now_us.saturating_sub(start_us));
        // While the database accepts no writes, every poll is judged from memory.
        let is_failing = cycle.components().history.health().failure().is_some();
        let new = if is_failing {
            vec![poll]
        } else {
            unchanged.lock().to_store(poll)
        };
        if new.is_empty() {
            // Nothing has changed, so there is nothing to judge.
            let findings = cycle.inspect(&participant).await;
            return findings.map(Some).map_err(TaskError::History);
        }
        for poll in new {
            if let Err(error) = cycle.store(poll).await {
                // It waits in memory, and is judged all the same.
                failure::record_history_failure(&participant, &error, &status);
            }
        }
        let findings = cycle.assess(&participant).await;
        findings.map(Some).map_err(TaskError::History)
    };
    TaskReport {
        result: result.await,
        participant,
        is_poll: true,
    }
}

/// Analyses polls that were stored earlier.
async fn analyse(cycle: Cycle, participant: String) -> TaskReport {
    let result = cycle.assess(&participant).await;
    TaskReport {
        result: result.map(|_| None).map_err(TaskError::History),
        participant,
        is_poll: false,
    }
}

async fn check_timers(cycle: Cycle, participant: String) -> TaskReport {
    let result = cycle.check_timers(&participant).await;
    TaskReport {
        result: result.map(|_| None).map_err(TaskError::History),
        participant,
        is_poll: false,
    }
}
