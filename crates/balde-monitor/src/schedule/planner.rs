//! Whom to ask next, within what asking may cost.

use std::collections::BTreeMap;
use std::fmt;

use balde_core::{Command, Limit, State};

use crate::analyse::Assessment;
use crate::sample::{NAME_MAX, Sample};
use crate::schedule::pace::{PACE_MIN_US, POLICIES_LIST, Pace};

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
pub enum Budget {
    /// Each participant has its own bucket for asking, as at DICT.
    PerParticipant(Limit),
    /// All participants ask from one bucket, as over one gateway with a limit of its own.
    Shared(Limit),
}

impl Budget {
    const fn limit(&self) -> &Limit {
        match self {
            Self::PerParticipant(limit) | Self::Shared(limit) => limit,
        }
    }
}

impl Default for Budget {
    /// DICT's `POLICIES_LIST`: 6 a minute, 20 at once, for each participant.
    fn default() -> Self {
        let limit = "6/min burst 20".parse();
        Self::PerParticipant(limit.expect("the limit is in DICT's table"))
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
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
    pace: Pace,
    budget: Budget,
    reserve: u64,
    turns: BTreeMap<String, Turn>,
    shared: Option<State>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    due_us: u64,
    asked_us: Option<u64>,
    failures: u32,
    spent: Option<State>,
}

impl Planner {
    /// Nobody to ask about yet. `reserve` tokens of the budget are left to others.
    pub fn new(pace: Pace, budget: Budget, reserve: u64) -> Result<Self, PlannerError> {
        if reserve >= budget.limit().capacity() {
            return Err(PlannerError::Reserve { reserve });
        }
        Ok(Self {
            pace,
            budget,
            reserve,
            turns: BTreeMap::new(),
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
        if self.turns.len() >= PARTICIPANTS_MAX && !self.turns.contains_key(participant) {
            return Err(PlannerError::TooMany);
        }
        self.turns.entry(participant.to_owned()).or_insert(Turn {
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
        self.turns.remove(participant);
    }

    /// Whose turn it is at `now_us`. A turn that is given costs a token and is over: what came of
    /// it is told by [`polled`](Planner::polled) or [`failed`](Planner::failed), and if it never
    /// is, the calendar brings the next one.
    pub fn next(&mut self, now_us: u64) -> Next {
        self.heal(now_us);
        let turns = self.turns.iter();
        let first = turns.min_by_key(|(name, turn)| {
            let ready_us = turn.due_us.max(self.affordable_us(turn, now_us));
            // Among those who can be asked now, the one due for longest.
            (ready_us.max(now_us), turn.due_us, turn.asked_us, *name)
        });
        let Some((name, turn)) = first else {
            return Next::Nobody;
        };
        let ready_us = turn.due_us.max(self.affordable_us(turn, now_us));
        if ready_us > now_us {
            return Next::Wait { until_us: ready_us };
        }
        let participant = name.clone();
        self.spend(&participant, now_us);
        Next::Poll { participant }
    }

    /// Whether it is this participant's turn at `now_us`, for those who keep time themselves and
    /// ask about each by name; it costs the same as one from [`next`](Planner::next). Where a
    /// budget is shared, whoever is due for longer goes first.
    pub fn take(&mut self, participant: &str, now_us: u64) -> Next {
        self.heal(now_us);
        let Some(turn) = self.turns.get(participant) else {
            return Next::Nobody;
        };
        let ahead = match self.budget {
            Budget::PerParticipant(_) => 0,
            Budget::Shared(_) => self.ahead(participant, turn, now_us),
        };
        // Never more than the bucket holds, or nobody would go while those ahead do not ask.
        let capacity = self.budget.limit().capacity();
        let n = (self.reserve + 1).saturating_add(ahead).min(capacity);
        let until_us = turn.due_us.max(self.with_tokens_us(turn, n, now_us));
        if until_us > now_us {
            return Next::Wait { until_us };
        }
        self.spend(participant, now_us);
        let participant = participant.to_owned();
        Next::Poll { participant }
    }

    /// When the calendar says to ask next.
    pub fn regular_us(&self, now_us: u64) -> u64 {
        self.pace.regular_us(now_us)
    }

    /// A participant was asked and answered; `seen` is what its buckets look like now. What the
    /// answer says about the budget is believed where it is less than was thought: others ask, too.
    pub fn polled(&mut self, participant: &str, now_us: u64, seen: &[Assessment<'_>]) {
        let due_us = self.pace.next_us(now_us, seen);
        let Some(turn) = self.turns.get_mut(participant) else {
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
        let Some(turn) = self.turns.get_mut(participant) else {
            return;
        };
        turn.failures = turn.failures.saturating_add(1);
        let doubled = PACE_MIN_US << (turn.failures - 1).min(10);
        let told_us = retry_after_us.unwrap_or(0).min(RETRY_AFTER_MAX_US);
        let wait_us = doubled.min(BACKOFF_MAX_US).max(told_us);
        turn.due_us = now_us.saturating_add(wait_us);
    }

    /// When a participant is due; nothing for one that is not here.
    pub fn due_us(&self, participant: &str) -> Option<u64> {
        self.turns.get(participant).map(|turn| turn.due_us)
    }

    /// After the clock stepped back behind a turn that was taken, what is due by the old clock is
    /// due now, and what was spent by it is not known any more: a bucket would stand still until the
    /// time is made up for. Whoever asks has a limit of its own, by a clock that does not step.
    fn heal(&mut self, now_us: u64) {
        for turn in self.turns.values_mut() {
            let is_behind = |asked_us| asked_us > now_us.saturating_add(STEP_US);
            if turn.asked_us.is_some_and(is_behind) {
                turn.due_us = now_us;
                turn.asked_us = Some(now_us);
                turn.spent = None;
                self.shared = None;
            }
        }
    }

    fn spent(&self, turn: &Turn) -> Option<State> {
        match self.budget {
            Budget::PerParticipant(_) => turn.spent,
            Budget::Shared(_) => self.shared,
        }
    }

    /// How many others are due and have been for longer.
    fn ahead(&self, participant: &str, turn: &Turn, now_us: u64) -> u64 {
        let rank = |name: &str, turn: &Turn| (turn.due_us, turn.asked_us, name.to_owned());
        let own = rank(participant, turn);
        let due = self.turns.iter().filter(|(_, turn)| turn.due_us <= now_us);
        let ahead = due.filter(|(name, turn)| rank(name, turn) < own).count();
        u64::try_from(ahead).unwrap_or(u64::MAX)
    }

    /// When the budget has a token beyond the reserve.
    fn affordable_us(&self, turn: &Turn, now_us: u64) -> u64 {
        self.with_tokens_us(turn, self.reserve + 1, now_us)
    }

    /// When the budget has `n` tokens.
    fn with_tokens_us(&self, turn: &Turn, n: u64, now_us: u64) -> u64 {
        let ask = self
            .budget
            .limit()
            .apply(self.spent(turn), Command::Take { n }, now_us);
        now_us.saturating_add(ask.retry_after_us().unwrap_or(0))
    }

    fn spend(&mut self, participant: &str, now_us: u64) {
        let regular_us = self.pace.regular_us(now_us);
        let Some(turn) = self.turns.get(participant).copied() else {
            return;
        };
        let taken = self
            .budget
            .limit()
            .apply(self.spent(&turn), Command::Take { n: 1 }, now_us);
        self.keep(
            participant,
            Turn {
                due_us: regular_us,
                asked_us: Some(now_us),
                ..turn
            },
            taken.state(),
        );
    }

    fn learn(&mut self, participant: &str, sample: &Sample) {
        let Some(turn) = self.turns.get(participant).copied() else {
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

    fn keep(&mut self, participant: &str, turn: Turn, spent: Option<State>) {
        match self.budget {
            Budget::PerParticipant(_) => {
                let turn = Turn { spent, ..turn };
                self.turns.insert(participant.to_owned(), turn);
            }
            Budget::Shared(_) => {
                self.shared = spent;
                self.turns.insert(participant.to_owned(), turn);
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
