//! Whom to poll next, and which bucket to read, within the budget of polling.

use std::collections::BTreeMap;

use balde_core::State;

use crate::analyse::Assessment;
use crate::coverage::Coverage;
use crate::sample::{NAME_MAX, Sample};
use crate::schedule::budget::{PollBudget, Shares};
use crate::schedule::poll_schedule::{
    POLICIES_LIST, POLICIES_READ, POLL_INTERVAL_MIN_US, PollSchedule, READ_INTERVAL_MIN_US,
    unnoticed_us,
};

/// The most participants of one monitor.
pub const PARTICIPANTS_MAX: usize = 1_024;

/// The longest Retry-After that is honoured.
const RETRY_AFTER_MAX_US: u64 = 3_600_000_000;

/// The longest backoff after consecutive failures.
const BACKOFF_MAX_US: u64 = 300_000_000;

/// A clock that goes back by less than this is being corrected and has not stepped.
const CLOCK_STEP_US: u64 = 5_000_000;

/// A call whose result has not been reported for this long counts as lost.
const CALL_LOST_US: u64 = 120_000_000;

/// What a scheduler has to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// List all buckets of this participant. The budget has been charged already.
    Poll {
        /// The participant.
        participant: String,
    },
    /// Read one bucket of this participant. The budget has been charged already.
    Read {
        /// The participant.
        participant: String,
        /// The policy of the bucket.
        policy: String,
    },
    /// Wait, because nothing is due, the budget is used up, or a call is in flight.
    Wait {
        /// When to try again.
        until_us: u64,
    },
    /// There is no participant to poll.
    Idle,
}

/// Decides what is polled next: all buckets of a participant at the times of the schedule, single
/// buckets in between, each call as soon as the monitor's share of the budget allows.
///
/// A due participant keeps its due time until it is polled. So a participant that fails again and
/// again never overtakes one that has been waiting longer. Among due reads the one that is late by
/// the largest part of its interval goes first: when there are more of them than the budget allows,
/// all intervals become longer by the same factor. A participant has one call in flight at a time.
#[derive(Clone, Debug)]
pub struct Planner {
    schedule: PollSchedule,
    shares: Shares,
    is_shared: bool,
    participants: BTreeMap<String, PollState>,
    shared_use: BudgetUse,
}

#[derive(Clone, Debug)]
struct PollState {
    due_us: u64,
    polled_us: Option<u64>,
    failures: u32,
    /// The call in flight, and when it began.
    call: Option<(Call, u64)>,
    budget_use: BudgetUse,
    reads: BTreeMap<String, ReadState>,
    coverage: Vec<Coverage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    List,
    Read(String),
}

#[derive(Clone, Copy, Debug)]
struct ReadState {
    interval_us: u64,
    due_us: u64,
}

impl ReadState {
    /// How late it is, as a part of its interval, in thousandths.
    fn lateness(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.due_us).saturating_mul(1_000) / self.interval_us.max(1)
    }
}

/// What has been used of the shares.
#[derive(Clone, Copy, Debug, Default)]
struct BudgetUse {
    list: Option<State>,
    read: Option<State>,
}

impl Planner {
    /// Creates a planner without participants.
    pub fn new(schedule: PollSchedule, budget: PollBudget) -> Result<Self, PlannerError> {
        Ok(Self {
            schedule,
            shares: budget.shares().ok_or(PlannerError::Share)?,
            is_shared: budget.is_shared,
            participants: BTreeMap::new(),
            shared_use: BudgetUse::default(),
        })
    }

    /// Adds a participant, which is due at once. `known` are the newest stored samples, of which
    /// those of the policies that limit polling are used: a monitor that restarts often would
    /// otherwise assume an unused budget each time and exceed it. Reads are earned from then on.
    pub fn add(
        &mut self,
        participant: &str,
        now_us: u64,
        known: &[Sample],
    ) -> Result<(), PlannerError> {
        if participant.is_empty() || participant.len() > NAME_MAX {
            return Err(PlannerError::Name);
        }
        let is_known = self.participants.contains_key(participant);
        if self.participants.len() >= PARTICIPANTS_MAX && !is_known {
            return Err(PlannerError::TooMany);
        }
        let unused = self.shares.read.emptied(now_us);
        let state = PollState {
            due_us: now_us,
            polled_us: None,
            failures: 0,
            call: None,
            budget_use: BudgetUse {
                list: None,
                read: unused,
            },
            reads: BTreeMap::new(),
            coverage: Vec::new(),
        };
        if self.participants.is_empty() {
            self.shared_use.read = unused;
        }
        self.participants
            .entry(participant.to_owned())
            .or_insert(state);
        let own = known
            .iter()
            .filter(|one| one.bucket().participant() == participant);
        self.lower_budget(participant, own);
        Ok(())
    }

    /// Removes a participant.
    pub fn remove(&mut self, participant: &str) {
        self.participants.remove(participant);
    }

    /// Decides what to do at `now_us`. A call is charged to the budget at once, and its result is
    /// reported with [`polled`](Planner::polled) or [`failed`](Planner::failed).
    pub fn next(&mut self, now_us: u64) -> NextAction {
        self.adjust_to_clock(now_us);
        let list = self.participants.iter().map(|(name, state)| {
            let ready_us = self.list_ready_us(state, 1, now_us);
            // Among those that can be polled now, the one that has been due longest.
            (
                (ready_us.max(now_us), state.due_us, state.polled_us, name),
                ready_us,
            )
        });
        let Some(((.., name), ready_us)) = list.min() else {
            return NextAction::Idle;
        };
        if ready_us <= now_us {
            let name = name.clone();
            return self.begin(&name, Call::List, now_us);
        }
        let reads = self
            .participants
            .iter()
            .filter_map(|(name, state)| Some((name, self.next_read(state, now_us)?)));
        let mut wait_us = ready_us;
        let mut latest: Option<(u64, String, String)> = None;
        for (name, (read_us, policy, lateness)) in reads {
            if read_us > now_us {
                wait_us = wait_us.min(read_us);
            } else if latest.as_ref().is_none_or(|(most, ..)| lateness > *most) {
                latest = Some((lateness, name.clone(), policy.to_owned()));
            }
        }
        match latest {
            Some((_, name, policy)) => self.begin(&name, Call::Read(policy), now_us),
            None => NextAction::Wait { until_us: wait_us },
        }
    }

    /// Decides what to do about this participant at `now_us`, for schedulers that keep a timer for
    /// each participant. Costs the same as a call from [`next`](Planner::next). With a shared budget,
    /// participants that have been due longer go first.
    pub fn next_for(&mut self, participant: &str, now_us: u64) -> NextAction {
        self.adjust_to_clock(now_us);
        let Some(state) = self.participants.get(participant) else {
            return NextAction::Idle;
        };
        let ahead = if self.is_shared {
            self.due_longer(participant, state, now_us)
        } else {
            0
        };
        let list_us = self.list_ready_us(state, ahead.saturating_add(1), now_us);
        if list_us <= now_us {
            return self.begin(participant, Call::List, now_us);
        }
        match self.next_read(state, now_us) {
            Some((read_us, policy, _)) if read_us <= now_us => {
                let policy = policy.to_owned();
                self.begin(participant, Call::Read(policy), now_us)
            }
            Some((read_us, ..)) => NextAction::Wait {
                until_us: list_us.min(read_us),
            },
            None => NextAction::Wait { until_us: list_us },
        }
    }

    /// The next time of the cron expression.
    pub fn next_cron_us(&self, now_us: u64) -> u64 {
        self.schedule.next_cron_us(now_us)
    }

    /// Reports a successful call and the analysis of the participant's buckets: of all after a list;
    /// after a read, at least of the one that was read. If DICT's buckets have fewer tokens than
    /// expected, because other clients poll too, that number is used from now on.
    pub fn polled(&mut self, participant: &str, now_us: u64, assessments: &[Assessment<'_>]) {
        let next_cron_us = self.schedule.next_cron_us(now_us);
        let calendar_us = self.calendar_us(now_us);
        let read_us = self.shares.read.interval_us();
        let Some(state) = self.participants.get_mut(participant) else {
            return;
        };
        let was_read = match state.call.take() {
            Some((Call::Read(policy), _)) => Some(policy),
            _ => None,
        };
        if was_read.is_none() {
            // The next cron time may be a moment after this poll, which then counts for it, too.
            state.due_us = next_cron_us.max(now_us.saturating_add(POLL_INTERVAL_MIN_US));
            state.reads.clear();
            state.coverage.clear();
        }
        state.failures = 0;
        for assessment in assessments {
            let sample = assessment.sample();
            let policy = sample.bucket().policy();
            match self.schedule.read_interval_us(assessment) {
                Some(interval_us) => {
                    // A read that said nothing new has not been stored.
                    let is_read = was_read.as_deref() == Some(policy);
                    let from_us = if is_read { now_us } else { sample.taken_us() };
                    let due_us = from_us.saturating_add(interval_us);
                    let read = ReadState {
                        interval_us,
                        due_us,
                    };
                    state.reads.insert(policy.to_owned(), read);
                }
                None => {
                    state.reads.remove(policy);
                }
            }
            if state.coverage.iter().all(|known| known.policy != policy) {
                state.coverage.push(Coverage {
                    policy: policy.to_owned(),
                    interval_us: calendar_us,
                    unnoticed_us: unnoticed_us(assessment),
                });
            }
        }
        state.update_coverage(calendar_us, read_us);
        let samples = assessments.iter().map(Assessment::sample);
        self.lower_budget(participant, samples);
    }

    /// Reports a failed call. The participant, or the bucket that was read, is due again after an
    /// exponential backoff, or after `retry_after_us` if that is longer.
    pub fn failed(&mut self, participant: &str, now_us: u64, retry_after_us: Option<u64>) {
        let Some(state) = self.participants.get_mut(participant) else {
            return;
        };
        state.failures = state.failures.saturating_add(1);
        let doubled_us = POLL_INTERVAL_MIN_US << (state.failures - 1).min(10);
        let retry_after_us = retry_after_us.unwrap_or(0).min(RETRY_AFTER_MAX_US);
        let wait_us = doubled_us.min(BACKOFF_MAX_US).max(retry_after_us);
        let due_us = now_us.saturating_add(wait_us);
        if !matches!(state.call.take(), Some((Call::Read(_), _))) {
            state.due_us = due_us;
        }
        // While DICT fails or refuses, single reads would fail as well.
        for read in state.reads.values_mut() {
            read.due_us = read.due_us.max(due_us);
        }
    }

    /// When a participant is due, for a list or a read; `None` for an unknown one.
    pub fn due_us(&self, participant: &str) -> Option<u64> {
        let state = self.participants.get(participant)?;
        let reads = state.reads.values().map(|read| read.due_us);
        Some(reads.fold(state.due_us, u64::min))
    }

    /// What can be missed of each bucket of a participant, as of its newest poll.
    pub fn coverage(&self, participant: &str) -> &[Coverage] {
        let state = self.participants.get(participant);
        state.map_or(&[], |state| &state.coverage)
    }

    /// Handles a clock that was set back to before a participant's last poll. The due times were
    /// computed by the old clock, so the participant is due now. Its budget is reset, because it
    /// would not refill until the clock has caught up; the client has its own limit by a monotonic
    /// clock.
    fn adjust_to_clock(&mut self, now_us: u64) {
        for state in self.participants.values_mut() {
            let is_future = |polled_us| polled_us > now_us.saturating_add(CLOCK_STEP_US);
            if state.polled_us.is_some_and(is_future) {
                state.due_us = now_us;
                state.polled_us = Some(now_us);
                state.call = None;
                state.reads.clear();
                state.budget_use = BudgetUse::default();
                self.shared_use = BudgetUse::default();
            }
        }
    }

    /// The longest time between the next two times of the cron expression.
    fn calendar_us(&self, now_us: u64) -> u64 {
        let first_us = self.schedule.next_cron_us(now_us);
        self.schedule
            .next_cron_us(first_us)
            .saturating_sub(first_us)
    }

    fn budget_use(&self, state: &PollState) -> BudgetUse {
        if self.is_shared {
            self.shared_use
        } else {
            state.budget_use
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

    /// When the participant can be polled: it is due, no call is in flight, and the budget has `n`
    /// calls.
    fn list_ready_us(&self, state: &PollState, n: u64, now_us: u64) -> u64 {
        let budget_use = self.budget_use(state);
        let affordable_us = self.shares.list.affordable_us(budget_use.list, n, now_us);
        state.due_us.max(affordable_us).max(state.free_us(now_us))
    }

    /// The read that is most late, or due next: when it can be made, its policy and its lateness.
    fn next_read<'a>(&self, state: &'a PollState, now_us: u64) -> Option<(u64, &'a str, u64)> {
        let key = |read: &ReadState| (read.lateness(now_us), u64::MAX - read.due_us);
        let (policy, read) = state.reads.iter().max_by_key(|(_, read)| key(read))?;
        let budget_use = self.budget_use(state);
        let affordable_us = self.shares.read.affordable_us(budget_use.read, 1, now_us);
        let ready_us = read.due_us.max(affordable_us).max(state.free_us(now_us));
        Some((ready_us, policy, read.lateness(now_us)))
    }

    /// Charges a call and remembers that it is in flight.
    fn begin(&mut self, participant: &str, call: Call, now_us: u64) -> NextAction {
        let next_cron_us = self.schedule.next_cron_us(now_us);
        let Some(state) = self.participants.get_mut(participant) else {
            return NextAction::Idle;
        };
        let budget_use = if self.is_shared {
            &mut self.shared_use
        } else {
            &mut state.budget_use
        };
        state.polled_us = Some(now_us);
        state.call = Some((call.clone(), now_us));
        let participant = participant.to_owned();
        match call {
            Call::List => {
                budget_use.list = self.shares.list.charge(budget_use.list, now_us);
                state.due_us = next_cron_us;
                NextAction::Poll { participant }
            }
            Call::Read(policy) => {
                budget_use.read = self.shares.read.charge(budget_use.read, now_us);
                if let Some(read) = state.reads.get_mut(&policy) {
                    read.due_us = now_us.saturating_add(read.interval_us);
                }
                NextAction::Read {
                    participant,
                    policy,
                }
            }
        }
    }

    /// Lowers the budget to the levels of samples of DICT's own buckets, if those are less than
    /// expected.
    fn lower_budget<'a>(&mut self, participant: &str, samples: impl Iterator<Item = &'a Sample>) {
        let Some(state) = self.participants.get_mut(participant) else {
            return;
        };
        let budget_use = if self.is_shared {
            &mut self.shared_use
        } else {
            &mut state.budget_use
        };
        for sample in samples {
            let (level, at_us) = (sample.level(), sample.taken_us());
            match sample.bucket().policy() {
                POLICIES_LIST => {
                    budget_use.list = self.shares.list.lower(budget_use.list, level, at_us);
                }
                POLICIES_READ => {
                    budget_use.read = self.shares.read.lower(budget_use.read, level, at_us);
                }
                _ => {}
            }
        }
    }
}

impl PollState {
    /// Computes how far apart the samples of each bucket are: a read comes after its interval, or
    /// later by the factor by which all reads together exceed the budget, one read per `read_us`.
    fn update_coverage(&mut self, calendar_us: u64, read_us: u64) {
        let parts = |read: &ReadState| read_us.saturating_mul(1_000_000) / read.interval_us.max(1);
        let demand_ppm: u64 = self.reads.values().map(parts).sum();
        for known in &mut self.coverage {
            let interval_us = self.reads.get(&known.policy).map(|read| {
                let us = u128::from(read.interval_us) * u128::from(demand_ppm.max(1_000_000));
                let us = u64::try_from(us / 1_000_000).unwrap_or(u64::MAX);
                // It also waits for others that are due at the same time.
                us.saturating_add(2 * READ_INTERVAL_MIN_US)
            });
            let longest_us = calendar_us.saturating_add(READ_INTERVAL_MIN_US);
            known.interval_us = interval_us.unwrap_or(longest_us).min(longest_us);
        }
    }

    /// When the next call can begin: the one in flight has been reported, or counts as lost.
    fn free_us(&self, now_us: u64) -> u64 {
        let lost_us = |(_, since_us): &(Call, u64)| since_us.saturating_add(CALL_LOST_US);
        self.call.as_ref().map_or(now_us, lost_us)
    }
}

/// Why a planner or a participant is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlannerError {
    /// A share is not between 1 and 100 percent.
    #[error("the monitor's share of a polling limit must be 1 to 100 percent")]
    Share,
    /// There are more than [`PARTICIPANTS_MAX`] participants.
    #[error("one monitor polls at most {PARTICIPANTS_MAX} participants")]
    TooMany,
    /// The name of a participant is empty or too long.
    #[error("a participant's name must have 1 to {NAME_MAX} bytes")]
    Name,
}
