//! The schedule that needs nobody else: one loop in this process, and one leader per database.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::cycle::{Cycle, FetchError, Findings};
use crate::history::{HistoryError, Leadership, Retention};
use crate::schedule::leader::{self, PeriodicTasks, SHUTDOWN_GRACE, TermEnd};
use crate::schedule::{
    NextAction, POLICIES_LIST, Planner, PlannerError, PollBudget, PollSchedule, failure,
};
use crate::status::Status;

pub use crate::schedule::leader::LEADER_RETRY_US;

/// The most participants that are asked about at once.
const AT_ONCE_MAX: usize = 8;

/// What the loop goes by.
#[derive(Clone, Debug)]
pub struct PollPlan {
    /// When to ask.
    pub schedule: PollSchedule,
    /// What asking may cost.
    pub budget: PollBudget,
    /// Tokens of the budget that are left to others.
    pub reserve: u64,
    /// How long what is kept.
    pub retention: Retention,
}

impl Default for PollPlan {
    /// Every five minutes and sooner while it matters, two tokens of the budget left to others.
    fn default() -> Self {
        Self {
            schedule: PollSchedule::default(),
            budget: PollBudget::default(),
            reserve: 2,
            retention: Retention::default(),
        }
    }
}

impl PollPlan {
    /// Everybody is due at once, as far as the budget goes by what is known of it.
    pub(super) async fn planner(&self, cycle: &Cycle) -> Result<Planner, PlannerError> {
        let components = cycle.components();
        let mut planner = Planner::new(self.schedule.clone(), self.budget, self.reserve)?;
        let known = components
            .history
            .latest_samples()
            .await
            .unwrap_or_default();
        for participant in components.sources.keys() {
            let own = known.iter().find(|sample| {
                sample.bucket().participant() == participant
                    && sample.bucket().policy() == POLICIES_LIST
            });
            planner.add(participant, components.time.now_us(), own)?;
        }
        Ok(planner)
    }
}

/// Runs cycles until `shutdown` is there; then those under way end, and leadership with them.
pub async fn run(
    cycle: Cycle,
    plan: PollPlan,
    status: Arc<Status>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), PlannerError> {
    // What cannot be planned is told before anything is asked.
    drop(Planner::new(
        plan.schedule.clone(),
        plan.budget,
        plan.reserve,
    )?);
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

/// The time in which this monitor is the one that polls.
struct LeaderTerm<'a> {
    cycle: &'a Cycle,
    plan: &'a PollPlan,
    status: &'a Arc<Status>,
    leadership: Leadership,
}

/// What came of asking about one participant.
struct Report {
    participant: String,
    /// Whether the participant was asked about, or only thought about.
    is_poll: bool,
    outcome: Result<Option<Findings>, Failure>,
}

enum Failure {
    Get(FetchError),
    History(HistoryError),
}

impl LeaderTerm<'_> {
    async fn run(
        mut self,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<TermEnd, PlannerError> {
        let time = self.cycle.components().time.clone();
        let mut planner = self.plan.planner(self.cycle).await?;
        let mut at_work = JoinSet::new();
        let mut busy = BTreeSet::new();
        let mut polling = BTreeSet::new();
        // What was stored and not judged before the last end comes first.
        for participant in self.cycle.components().sources.keys() {
            busy.insert(participant.clone());
            at_work.spawn(judge(self.cycle.clone(), participant.clone()));
        }
        let mut periodic = PeriodicTasks::from(time.now_us());
        let mut upkeep = JoinSet::new();
        let ended = loop {
            let now_us = time.now_us();
            self.status.record_loop_iteration();
            periodic.adjust_to_clock(now_us);
            if periodic.is_timer_check_due(now_us) {
                if !self.leadership.is_held().await {
                    break TermEnd::LeadershipLost;
                }
                self.remind(&mut busy, &mut at_work);
            }
            let mut wake_us = periodic.timer_check_us();
            if upkeep.is_empty() && periodic.is_retention_due(now_us) {
                upkeep.spawn(leader::enforce_retention(
                    self.cycle.clone(),
                    self.plan.retention,
                ));
            }
            if at_work.len() < AT_ONCE_MAX {
                match planner.next(now_us) {
                    NextAction::Poll { participant } => {
                        if !self.leadership.is_held().await {
                            break TermEnd::LeadershipLost;
                        }
                        // Asking again before an answer is there would judge them out of order.
                        if polling.insert(participant.clone()) {
                            let status = Arc::clone(self.status);
                            at_work.spawn(turn(self.cycle.clone(), status, participant));
                        }
                        continue;
                    }
                    NextAction::Wait { until_us } => wake_us = wake_us.min(until_us),
                    NextAction::Idle => {}
                }
            }
            tokio::select! {
                () = time.sleep_until(wake_us) => {}
                Some(done) = at_work.join_next() => {
                    if let Some(report) = Self::joined(done, &mut busy, &mut polling) {
                        self.note(report, &mut planner);
                    }
                }
                _ = upkeep.join_next(), if !upkeep.is_empty() => {}
                () = &mut *shutdown => break TermEnd::Shutdown,
            }
        };
        upkeep.abort_all();
        let all = async { while at_work.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_GRACE, all).await.is_err() {
            tracing::warn!("some cycles were cut short; what they had stored is judged later");
        }
        Ok(ended)
    }

    fn remind(&self, busy: &mut BTreeSet<String>, at_work: &mut JoinSet<Report>) {
        for participant in self.cycle.components().sources.keys() {
            if busy.insert(participant.clone()) {
                at_work.spawn(remind(self.cycle.clone(), participant.clone()));
            }
        }
    }

    /// Who is done. After a panic nobody knows who that was, so everybody is.
    fn joined(
        done: Result<Report, tokio::task::JoinError>,
        busy: &mut BTreeSet<String>,
        polling: &mut BTreeSet<String>,
    ) -> Option<Report> {
        let Ok(report) = done else {
            tracing::error!(
                event_type = "cycle_panicked",
                "a cycle panicked; this is a bug"
            );
            busy.clear();
            polling.clear();
            return None;
        };
        let who = if report.is_poll { polling } else { busy };
        who.remove(&report.participant);
        Some(report)
    }

    fn note(&self, report: Report, planner: &mut Planner) {
        let now_us = self.cycle.components().time.now_us();
        let participant = &report.participant;
        match report.outcome {
            Ok(Some(findings)) => {
                let components = self.cycle.components();
                let seen = findings.assessments(&components.rules, &components.analysis);
                planner.polled(participant, now_us, &seen);
            }
            Ok(None) => return,
            Err(Failure::Get(error)) => {
                failure::record_fetch_failure(participant, &error, now_us, planner, self.status);
            }
            Err(Failure::History(error)) => {
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

/// The four steps for one participant.
async fn turn(cycle: Cycle, status: Arc<Status>, participant: String) -> Report {
    let outcome = async {
        let time = &cycle.components().time;
        let asked_us = time.now_us();
        let poll = cycle.fetch(&participant).await.map_err(Failure::Get)?;
        let now_us = time.now_us();
        status.record_success(&participant, now_us, now_us.saturating_sub(asked_us));
        cycle.store(poll).await.map_err(Failure::History)?;
        let findings = cycle.analyse(&participant).await;
        let findings = findings.map_err(Failure::History)?;
        cycle.notify_dispatcher(findings.events());
        Ok(Some(findings))
    };
    Report {
        outcome: outcome.await,
        participant,
        is_poll: true,
    }
}

/// What was stored before and not judged.
async fn judge(cycle: Cycle, participant: String) -> Report {
    let outcome = cycle.analyse(&participant).await;
    if let Ok(findings) = &outcome {
        cycle.notify_dispatcher(findings.events());
    }
    Report {
        outcome: outcome.map(|_| None).map_err(Failure::History),
        participant,
        is_poll: false,
    }
}

async fn remind(cycle: Cycle, participant: String) -> Report {
    let outcome = cycle.check_timers(&participant).await;
    if let Ok(events) = &outcome {
        cycle.notify_dispatcher(events);
    }
    Report {
        outcome: outcome.map(|_| None).map_err(Failure::History),
        participant,
        is_poll: false,
    }
}
