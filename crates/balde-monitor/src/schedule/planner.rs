//! Which participant to poll next, within the rate limit of polling.

use std::collections::BTreeMap;

use balde_core::{Command, Limit, State};

use crate::analyse::Assessment;
use crate::sample::{NAME_MAX, Sample};
use crate::schedule::poll_schedule::{POLICIES_LIST, POLL_INTERVAL_MIN_US, PollSchedule};

/// The most participants of one monitor.
pub const PARTICIPANTS_MAX: usize = 1_024;

/// The longest Retry-After that is honoured.
const RETRY_AFTER_MAX_US: u64 = 3_600_000_000;

/// The longest backoff after consecutive failures.
const BACKOFF_MAX_US: u64 = 300_000_000;

/// A clock that goes back by less than this is being corrected and has not stepped.
const CLOCK_STEP_US: u64 = 5_000_000;

/// The rate limit of polling, and who shares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollBudget {
    /// Each participant has its own limit, as at DICT.
    PerParticipant(Limit),
    /// All participants share one limit, for example that of a gateway.
    Shared(Limit),
}

impl PollBudget {
    const fn limit(&self) -> &Limit {
        match self {
            Self::PerParticipant(limit) | Self::Shared(limit) => limit,
        }
    }
}

impl Default for PollBudget {
    /// DICT's `POLICIES_LIST`: 6 a minute with a burst of 20, for each participant.
    fn default() -> Self {
        let limit = "6/min burst 20".parse();
        Self::PerParticipant(limit.expect("DICT's limit is valid"))
    }
}

/// What a scheduler has to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Poll this participant. The budget has been charged already.
    Poll {
        /// The participant.
        participant: String,
    },
    /// Wait, because no participant is due or the budget is used up.
    Wait {
        /// When to try again.
        until_us: u64,
    },
    /// There is no participant to poll.
    Idle,
}

/// Decides which participant is polled next: the one that has been due longest, as soon as the
/// budget allows.
///
/// A due participant keeps its due time until it is polled. So a participant that fails again and
/// again never overtakes one that has been waiting longer.
#[derive(Clone, Debug)]
pub struct Planner {
    schedule: PollSchedule,
    budget: PollBudget,
    reserve: u64,
    participants: BTreeMap<String, PollState>,
    shared_budget: Option<State>,
}

#[derive(Clone, Copy, Debug)]
struct PollState {
    due_us: u64,
    polled_us: Option<u64>,
    failures: u32,
    budget: Option<State>,
}

impl Planner {
    /// Creates a planner without participants. It leaves `reserve` tokens of the budget to other
    /// clients.
    pub fn new(
        schedule: PollSchedule,
        budget: PollBudget,
        reserve: u64,
    ) -> Result<Self, PlannerError> {
        if reserve >= budget.limit().capacity() {
            return Err(PlannerError::Reserve { reserve });
        }
        Ok(Self {
            schedule,
            budget,
            reserve,
            participants: BTreeMap::new(),
            shared_budget: None,
        })
    }

    /// Adds a participant, which is due at once. `known` is the newest stored sample of the bucket
    /// that limits polling, if there is one: a monitor that restarts often would otherwise assume a
    /// full budget each time and exceed it.
    pub fn add(
        &mut self,
        participant: &str,
        now_us: u64,
        known: Option<&Sample>,
    ) -> Result<(), PlannerError> {
        if participant.is_empty() || participant.len() > NAME_MAX {
            return Err(PlannerError::Name);
        }
        let is_known = self.participants.contains_key(participant);
        if self.participants.len() >= PARTICIPANTS_MAX && !is_known {
            return Err(PlannerError::TooMany);
        }
        let state = PollState {
            due_us: now_us,
            polled_us: None,
            failures: 0,
            budget: None,
        };
        self.participants
            .entry(participant.to_owned())
            .or_insert(state);
        if let Some(sample) = known {
            self.lower_budget(participant, sample);
        }
        Ok(())
    }

    /// Removes a participant.
    pub fn remove(&mut self, participant: &str) {
        self.participants.remove(participant);
    }

    /// Decides what to do at `now_us`. A poll is charged to the budget at once, and its result is
    /// reported with [`polled`](Planner::polled) or [`failed`](Planner::failed). A participant whose
    /// result is never reported is due again at the next time of the cron expression.
    pub fn next(&mut self, now_us: u64) -> NextAction {
        self.adjust_to_clock(now_us);
        let first = self.participants.iter().min_by_key(|(name, state)| {
            let ready_us = state.due_us.max(self.affordable_us(state, now_us));
            // Among those that can be polled now, the one that has been due longest.
            (ready_us.max(now_us), state.due_us, state.polled_us, *name)
        });
        let Some((name, state)) = first else {
            return NextAction::Idle;
        };
        let ready_us = state.due_us.max(self.affordable_us(state, now_us));
        if ready_us > now_us {
            return NextAction::Wait { until_us: ready_us };
        }
        let participant = name.clone();
        self.charge(&participant, now_us);
        NextAction::Poll { participant }
    }

    /// Decides whether to poll this participant at `now_us`, for schedulers that keep a timer for
    /// each participant. Costs the same as a poll from [`next`](Planner::next). With a shared budget,
    /// participants that have been due longer go first.
    pub fn next_for(&mut self, participant: &str, now_us: u64) -> NextAction {
        self.adjust_to_clock(now_us);
        let Some(state) = self.participants.get(participant) else {
            return NextAction::Idle;
        };
        let ahead = match self.budget {
            PollBudget::PerParticipant(_) => 0,
            PollBudget::Shared(_) => self.due_longer(participant, state, now_us),
        };
        // Never more than the capacity, or none could be polled while those ahead are not.
        let capacity = self.budget.limit().capacity();
        let n = (self.reserve + 1).saturating_add(ahead).min(capacity);
        let until_us = state.due_us.max(self.with_tokens_us(state, n, now_us));
        if until_us > now_us {
            return NextAction::Wait { until_us };
        }
        self.charge(participant, now_us);
        let participant = participant.to_owned();
        NextAction::Poll { participant }
    }

    /// The next time of the cron expression.
    pub fn next_cron_us(&self, now_us: u64) -> u64 {
        self.schedule.next_cron_us(now_us)
    }

    /// Reports a successful poll and the analysis of its buckets. If the poll shows fewer tokens in
    /// the budget than expected, because other clients poll too, that number is used from now on.
    pub fn polled(&mut self, participant: &str, now_us: u64, assessments: &[Assessment<'_>]) {
        let due_us = self.schedule.next_us(now_us, assessments);
        let Some(state) = self.participants.get_mut(participant) else {
            return;
        };
        state.due_us = due_us;
        state.failures = 0;
        let samples = assessments.iter().map(Assessment::sample);
        let mut budget = samples.filter(|sample| sample.bucket().policy() == POLICIES_LIST);
        if let Some(sample) = budget.next() {
            self.lower_budget(participant, sample);
        }
    }

    /// Reports a failed poll. The participant is due again after an exponential backoff, or after
    /// `retry_after_us` if that is longer.
    pub fn failed(&mut self, participant: &str, now_us: u64, retry_after_us: Option<u64>) {
        let Some(state) = self.participants.get_mut(participant) else {
            return;
        };
        state.failures = state.failures.saturating_add(1);
        let doubled_us = POLL_INTERVAL_MIN_US << (state.failures - 1).min(10);
        let retry_after_us = retry_after_us.unwrap_or(0).min(RETRY_AFTER_MAX_US);
        let wait_us = doubled_us.min(BACKOFF_MAX_US).max(retry_after_us);
        state.due_us = now_us.saturating_add(wait_us);
    }

    /// When a participant is due; `None` for an unknown one.
    pub fn due_us(&self, participant: &str) -> Option<u64> {
        self.participants.get(participant).map(|state| state.due_us)
    }

    /// Handles a clock that was set back to before a participant's last poll. The due time was
    /// computed by the old clock, so the participant is due now. Its budget is reset, because it
    /// would not refill until the clock has caught up; the client has its own limit by a monotonic
    /// clock.
    fn adjust_to_clock(&mut self, now_us: u64) {
        for state in self.participants.values_mut() {
            let is_future = |polled_us| polled_us > now_us.saturating_add(CLOCK_STEP_US);
            if state.polled_us.is_some_and(is_future) {
                state.due_us = now_us;
                state.polled_us = Some(now_us);
                state.budget = None;
                self.shared_budget = None;
            }
        }
    }

    fn budget(&self, state: &PollState) -> Option<State> {
        match self.budget {
            PollBudget::PerParticipant(_) => state.budget,
            PollBudget::Shared(_) => self.shared_budget,
        }
    }

    /// The number of other participants that have been due longer.
    fn due_longer(&self, participant: &str, state: &PollState, now_us: u64) -> u64 {
        let rank = |name: &str, state: &PollState| (state.due_us, state.polled_us, name.to_owned());
        let own = rank(participant, state);
        let participants = self.participants.iter();
        let due = participants.filter(|(_, state)| state.due_us <= now_us);
        let ahead = due.filter(|(name, state)| rank(name, state) < own).count();
        u64::try_from(ahead).unwrap_or(u64::MAX)
    }

    /// When the budget has a token beyond the reserve.
    fn affordable_us(&self, state: &PollState, now_us: u64) -> u64 {
        self.with_tokens_us(state, self.reserve + 1, now_us)
    }

    /// When the budget has `n` tokens.
    fn with_tokens_us(&self, state: &PollState, n: u64, now_us: u64) -> u64 {
        let limit = self.budget.limit();
        let decision = limit.apply(self.budget(state), Command::Take { n }, now_us);
        now_us.saturating_add(decision.retry_after_us().unwrap_or(0))
    }

    fn charge(&mut self, participant: &str, now_us: u64) {
        let Some(state) = self.participants.get(participant).copied() else {
            return;
        };
        let limit = self.budget.limit();
        let decision = limit.apply(self.budget(&state), Command::Take { n: 1 }, now_us);
        let state = PollState {
            due_us: self.schedule.next_cron_us(now_us),
            polled_us: Some(now_us),
            ..state
        };
        self.update(participant, state, decision.state());
    }

    /// Lowers the budget to the level of a sample, if that is less than expected.
    fn lower_budget(&mut self, participant: &str, sample: &Sample) {
        let Some(state) = self.participants.get(participant).copied() else {
            return;
        };
        let limit = *self.budget.limit();
        let (level, taken_us) = (sample.level(), sample.taken_us());
        let expected = limit.apply(self.budget(&state), Command::Peek, taken_us);
        if level < expected.level() {
            let lowered = limit.apply(expected.state(), Command::SetLevel { level }, taken_us);
            self.update(participant, state, lowered.state());
        }
    }

    fn update(&mut self, participant: &str, state: PollState, budget: Option<State>) {
        let state = match self.budget {
            PollBudget::PerParticipant(_) => PollState { budget, ..state },
            PollBudget::Shared(_) => {
                self.shared_budget = budget;
                state
            }
        };
        self.participants.insert(participant.to_owned(), state);
    }
}

/// Why a planner or a participant is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlannerError {
    /// The reserve leaves no tokens for the monitor.
    #[error("a reserve of {reserve} leaves nothing of the budget for the monitor; lower it")]
    Reserve {
        /// The tokens to leave to other clients.
        reserve: u64,
    },
    /// There are more than [`PARTICIPANTS_MAX`] participants.
    #[error("one monitor polls at most {PARTICIPANTS_MAX} participants")]
    TooMany,
    /// The name of a participant is empty or too long.
    #[error("a participant's name must have 1 to {NAME_MAX} bytes")]
    Name,
}
