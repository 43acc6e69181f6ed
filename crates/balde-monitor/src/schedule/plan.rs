//! The settings of polling and retention, shared by both schedulers.

use crate::cycle::Cycle;
use crate::history::Retention;
use crate::schedule::budget::PollBudget;
use crate::schedule::planner::{Planner, PlannerError};
use crate::schedule::poll_schedule::{POLICIES_LIST, POLICIES_READ, PollSchedule};

/// How far back the levels of DICT's polling limits are looked up after a restart. Both limits have
/// refilled completely after this time.
const BUDGET_LOOKBACK_US: u64 = 600_000_000;

/// When to poll, what polling may cost, and how long data is kept.
#[derive(Clone, Debug, Default)]
pub struct PollPlan {
    /// When to poll.
    pub schedule: PollSchedule,
    /// The limits of polling, and the monitor's share of them.
    pub budget: PollBudget,
    /// How long data is kept.
    pub retention: Retention,
}

impl PollPlan {
    /// Checks the plan without running it.
    pub(super) fn validate(&self) -> Result<(), PlannerError> {
        Planner::new(self.schedule.clone(), self.budget).map(drop)
    }

    /// Creates a planner in which every participant is due at once, with the budget as of the newest
    /// stored samples.
    pub(super) async fn planner(&self, cycle: &Cycle) -> Result<Planner, PlannerError> {
        let components = cycle.components();
        let mut planner = Planner::new(self.schedule.clone(), self.budget)?;
        for participant in components.sources.keys() {
            let now_us = components.time.now_us();
            let since_us = now_us.saturating_sub(BUDGET_LOOKBACK_US);
            let known = components.history.recent_samples(participant, since_us);
            let known = known.await.unwrap_or_default().into_iter().flatten();
            let known: Vec<_> = known
                .filter(|sample| {
                    let policy = sample.bucket().policy();
                    matches!(policy, POLICIES_LIST | POLICIES_READ) && sample.taken_us() <= now_us
                })
                .collect();
            planner.add(participant, now_us, &known)?;
        }
        Ok(planner)
    }
}
