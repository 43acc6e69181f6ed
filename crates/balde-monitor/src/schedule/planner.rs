//! Whom to ask next, within what asking may cost.

use std::collections::BTreeMap;
use std::fmt;

use balde_core::{Command, Limit, State};

use crate::analyse::Assessment;
use crate::sample::{NAME_MAX, Sample};
use crate::schedule::poll_schedule::{POLICIES_LIST, POLL_INTERVAL_MIN_US, PollSchedule};

/// The most participants of one monitor.
pub const PARTICIPANTS_MAX: usize = 1_024;

/// The longest time that a refusal may ask to be waited for.
const RETRY_AFTER_MAX_US: u64 = 3_600_000_000;

/// The longest wait that failures by themselves lead to.
const BACKOFF_MAX_US: u64 = 300_000_000;

/// A clock that goes back by less is being corrected, and has not stepped.
const STEP_US: u64 = 5_000_000;

/// What asking may cost, and who shares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollBudget {
    /// Each participant has its own bucket for asking, as at DICT.
    PerParticipant(Limit),
    /// All participants ask from one bucket, as over one gateway with a limit of its own.
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
    /// DICT's `POLICIES_LIST`: 6 a minute, 20 at once, for each participant.
    fn default() -> Self {
        let limit = "6/min burst 20".parse();
        Self::PerParticipant(limit.expect("the limit is in DICT's table"))
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Ask about this participant, whose turn it is; it is paid for.
    Poll {
        /// Whom.
        participant: String,
    },
    /// Nobody's turn before this.
    Wait {
        /// Until when.
        until_us: u64,
    },
    /// There is nobody to ask about.
    Nobody,
}

/// Whose turn it is: whoever is due for longest, as soon as the budget allows.
///
/// A turn that has come stays at its time until it is taken, so a participant with trouble, who is
/// due again and again, never overtakes one that has waited longer.
#[derive(Clone, Debug)]
pub struct Planner {
    schedule: PollSchedule,
    budget: PollBudget,
    reserve: u64,
    participants: BTreeMap<String, PollState>,
    shared: Option<State>,
}

#[derive(Clone, Copy, Debug)]
struct PollState {
    due_us: u64,
    asked_us: Option<u64>,
    failures: u32,
    spent: Option<State>,
}

impl Planner {
    /// Nobody to ask about yet. `reserve` tokens of the budget are left to others.
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
            shared: None,
        })
    }

    /// Adds a participant, who is due at once. `known` is the newest sample of its budget from
    /// before a restart, so that a monitor that keeps crashing does not spend what it has spent.
    pub fn add(
        &mut self,
        participant: &str,
        now_us: u64,
        known: Option<&Sample>,
    ) -> Result<(), PlannerError> {
        if participant.is_empty() || participant.len() > NAME_MAX {
            return Err(PlannerError::Name);
        }
        if self.participants.len() >= PARTICIPANTS_MAX
            && !self.participants.contains_key(participant)
        {
            return Err(PlannerError::TooMany);
        }
        self.participants
            .entry(participant.to_owned())
            .or_insert(PollState {
                due_us: now_us,
                asked_us: None,
                failures: 0,
                spent: None,
            });
        if let Some(sample) = known {
            self.learn(participant, sample);
        }
        Ok(())
    }

    /// Takes a participant away.
    pub fn remove(&mut self, participant: &str) {
        self.participants.remove(participant);
    }

    /// Whose turn it is at `now_us`. A turn that is given costs a token and is over: what came of
    /// it is told by [`polled`](Planner::polled) or [`failed`](Planner::failed), and if it never
    /// is, the calendar brings the next one.
    pub fn next(&mut self, now_us: u64) -> NextAction {
        self.adjust_to_clock(now_us);
        let turns = self.participants.iter();
        let first = turns.min_by_key(|(name, turn)| {
            let ready_us = turn.due_us.max(self.affordable_us(turn, now_us));
            // Among those who can be asked now, the one due for longest.
            (ready_us.max(now_us), turn.due_us, turn.asked_us, *name)
        });
        let Some((name, turn)) = first else {
            return NextAction::Idle;
        };
        let ready_us = turn.due_us.max(self.affordable_us(turn, now_us));
        if ready_us > now_us {
            return NextAction::Wait { until_us: ready_us };
        }
        let participant = name.clone();
        self.spend(&participant, now_us);
        NextAction::Poll { participant }
    }

    /// Whether it is this participant's turn at `now_us`, for those who keep time themselves and
    /// ask about each by name; it costs the same as one from [`next`](Planner::next). Where a
    /// budget is shared, whoever is due for longer goes first.
    pub fn take(&mut self, participant: &str, now_us: u64) -> NextAction {
        self.adjust_to_clock(now_us);
        let Some(turn) = self.participants.get(participant) else {
            return NextAction::Idle;
        };
        let ahead = match self.budget {
            PollBudget::PerParticipant(_) => 0,
            PollBudget::Shared(_) => self.ahead(participant, turn, now_us),
        };
        // Never more than the bucket holds, or nobody would go while those ahead do not ask.
        let capacity = self.budget.limit().capacity();
        let n = (self.reserve + 1).saturating_add(ahead).min(capacity);
        let until_us = turn.due_us.max(self.with_tokens_us(turn, n, now_us));
        if until_us > now_us {
            return NextAction::Wait { until_us };
        }
        self.spend(participant, now_us);
        let participant = participant.to_owned();
        NextAction::Poll { participant }
    }

    /// When the calendar says to ask next.
    pub fn next_cron_us(&self, now_us: u64) -> u64 {
        self.schedule.next_cron_us(now_us)
    }

    /// A participant was asked and answered; `seen` is what its buckets look like now. What the
    /// answer says about the budget is believed where it is less than was thought: others ask, too.
    pub fn polled(&mut self, participant: &str, now_us: u64, seen: &[Assessment<'_>]) {
        let due_us = self.schedule.next_us(now_us, seen);
        let Some(turn) = self.participants.get_mut(participant) else {
            return;
        };
        turn.due_us = due_us;
        turn.failures = 0;
        let own = seen.iter().map(Assessment::sample);
        let mut own = own.filter(|sample| sample.bucket().policy() == POLICIES_LIST);
        if let Some(sample) = own.next() {
            self.learn(participant, sample);
        }
    }

    /// A participant was asked and there was no good answer; it said when to come back, perhaps.
    pub fn failed(&mut self, participant: &str, now_us: u64, retry_after_us: Option<u64>) {
        let Some(turn) = self.participants.get_mut(participant) else {
            return;
        };
        turn.failures = turn.failures.saturating_add(1);
        let doubled = POLL_INTERVAL_MIN_US << (turn.failures - 1).min(10);
        let told_us = retry_after_us.unwrap_or(0).min(RETRY_AFTER_MAX_US);
        let wait_us = doubled.min(BACKOFF_MAX_US).max(told_us);
        turn.due_us = now_us.saturating_add(wait_us);
    }

    /// When a participant is due; nothing for one that is not here.
    pub fn due_us(&self, participant: &str) -> Option<u64> {
        self.participants.get(participant).map(|turn| turn.due_us)
    }

    /// After the clock stepped back behind a turn that was taken, what is due by the old clock is
    /// due now, and what was spent by it is not known any more: a bucket would stand still until the
    /// time is made up for. Whoever asks has a limit of its own, by a clock that does not step.
    fn adjust_to_clock(&mut self, now_us: u64) {
        for turn in self.participants.values_mut() {
            let is_behind = |asked_us| asked_us > now_us.saturating_add(STEP_US);
            if turn.asked_us.is_some_and(is_behind) {
                turn.due_us = now_us;
                turn.asked_us = Some(now_us);
                turn.spent = None;
                self.shared = None;
            }
        }
    }

    fn spent(&self, turn: &PollState) -> Option<State> {
        match self.budget {
            PollBudget::PerParticipant(_) => turn.spent,
            PollBudget::Shared(_) => self.shared,
        }
    }

    /// How many others are due and have been for longer.
    fn ahead(&self, participant: &str, turn: &PollState, now_us: u64) -> u64 {
        let rank = |name: &str, turn: &PollState| (turn.due_us, turn.asked_us, name.to_owned());
        let own = rank(participant, turn);
        let due = self
            .participants
            .iter()
            .filter(|(_, turn)| turn.due_us <= now_us);
        let ahead = due.filter(|(name, turn)| rank(name, turn) < own).count();
        u64::try_from(ahead).unwrap_or(u64::MAX)
    }

    /// When the budget has a token beyond the reserve.
    fn affordable_us(&self, turn: &PollState, now_us: u64) -> u64 {
        self.with_tokens_us(turn, self.reserve + 1, now_us)
    }

    /// When the budget has `n` tokens.
    fn with_tokens_us(&self, turn: &PollState, n: u64, now_us: u64) -> u64 {
        let ask = self
            .budget
            .limit()
            .apply(self.spent(turn), Command::Take { n }, now_us);
        now_us.saturating_add(ask.retry_after_us().unwrap_or(0))
    }

    fn spend(&mut self, participant: &str, now_us: u64) {
        let next_cron_us = self.schedule.next_cron_us(now_us);
        let Some(turn) = self.participants.get(participant).copied() else {
            return;
        };
        let taken = self
            .budget
            .limit()
            .apply(self.spent(&turn), Command::Take { n: 1 }, now_us);
        self.keep(
            participant,
            PollState {
                due_us: next_cron_us,
                asked_us: Some(now_us),
                ..turn
            },
            taken.state(),
        );
    }

    fn learn(&mut self, participant: &str, sample: &Sample) {
        let Some(turn) = self.participants.get(participant).copied() else {
            return;
        };
        let limit = *self.budget.limit();
        let thought = limit.apply(self.spent(&turn), Command::Peek, sample.taken_us());
        if sample.level() < thought.level() {
            let level = sample.level();
            let told = limit.apply(
                thought.state(),
                Command::SetLevel { level },
                sample.taken_us(),
            );
            self.keep(participant, turn, told.state());
        }
    }

    fn keep(&mut self, participant: &str, turn: PollState, spent: Option<State>) {
        match self.budget {
            PollBudget::PerParticipant(_) => {
                let turn = PollState { spent, ..turn };
                self.participants.insert(participant.to_owned(), turn);
            }
            PollBudget::Shared(_) => {
                self.shared = spent;
                self.participants.insert(participant.to_owned(), turn);
            }
        }
    }
}

/// Why a planner or a participant was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlannerError {
    /// Nothing of the budget would be left for the monitor.
    Reserve {
        /// What was to be left to others.
        reserve: u64,
    },
    /// More than [`PARTICIPANTS_MAX`].
    TooMany,
    /// A participant's name is empty or too long.
    Name,
}

impl fmt::Display for PlannerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve { reserve } => write!(
                f,
                "a reserve of {reserve} leaves nothing of the budget for the monitor; lower it"
            ),
            Self::TooMany => write!(
                f,
                "{PARTICIPANTS_MAX} participants are the most that one monitor asks about"
            ),
            Self::Name => write!(f, "a participant's name needs 1 to {NAME_MAX} bytes"),
        }
    }
}

impl std::error::Error for PlannerError {}
