//! The settings of polling and retention, shared by both schedulers.

use crate::cycle::Cycle;
use crate::history::Retention;
use crate::schedule::planner::{Planner, PlannerError, PollBudget};
use crate::schedule::poll_schedule::{POLICIES_LIST, PollSchedule};

/// When to poll, what polling may cost, and how long data is kept.
#[derive(Clone, Debug)]
pub struct PollPlan {
    /// When to poll.
    pub schedule: PollSchedule,
    /// The rate limit of polling.
    pub budget: PollBudget,
    /// Tokens of the budget that the monitor leaves to other clients.
    pub reserve: u64,
    /// How long data is kept.
    pub retention: Retention,
}

impl Default for PollPlan {
    /// The default schedule and DICT's own budget, of which two tokens are left to other clients.
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
    /// Checks the plan without running it.
    pub(super) fn validate(&self) -> Result<(), PlannerError> {
        Planner::new(self.schedule.clone(), self.budget, self.reserve).map(drop)
    }

    /// Creates a planner in which every participant is due at once, with the budget as of the newest
    /// stored samples.
    pub(super) async fn planner(&self, cycle: &Cycle) -> Result<Planner, PlannerError> {
        let components = cycle.components();
        let mut planner = Planner::new(self.schedule.clone(), self.budget, self.reserve)?;
        let known = components
            .history
            .latest_samples()
            .await
            .unwrap_or_default();
        for participant in components.sources.keys() {
            let budget = known.iter().find(|sample| {
                sample.bucket().participant() == participant
                    && sample.bucket().policy() == POLICIES_LIST
            });
            planner.add(participant, components.time.now_us(), budget)?;
        }
        Ok(planner)
    }
}
