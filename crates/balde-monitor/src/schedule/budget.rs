//! What polling may cost: a share of DICT's two limits, `POLICIES_LIST` and `POLICIES_READ`.

use std::time::Duration;

use balde_core::{Command, Limit, State};

/// The limits of polling, the share of them that the monitor uses, and who shares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollBudget {
    /// The limit of listBucketStates.
    pub list: Limit,
    /// The limit of getBucketState.
    pub read: Limit,
    /// The share of `list` that the monitor uses, in percent.
    pub list_share_pct: u32,
    /// The share of `read` that the monitor uses, in percent.
    pub read_share_pct: u32,
    /// Whether all participants share the limits, for example those of a gateway. At DICT, each
    /// participant has its own.
    pub is_shared: bool,
}

impl Default for PollBudget {
    /// A third of DICT's limits, 6 lists a minute with a burst of 20 and 60 reads a minute with a
    /// burst of 200, for each participant.
    fn default() -> Self {
        let limit = |text: &str| text.parse().expect("DICT's limits are valid");
        Self {
            list: limit("6/min burst 20"),
            read: limit("60/min burst 200"),
            list_share_pct: 33,
            read_share_pct: 33,
            is_shared: false,
        }
    }
}

impl PollBudget {
    /// The monitor's part of both limits; `None` if a share is not between 1 and 100 percent.
    pub(super) fn shares(&self) -> Option<Shares> {
        Some(Shares {
            list: Share::of(&self.list, self.list_share_pct)?,
            read: Share::of(&self.read, self.read_share_pct)?,
        })
    }
}

/// The monitor's parts of the limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub(super) list: Share,
    pub(super) read: Share,
}

/// The monitor's part of a limit, as a limit: the same percentage of capacity and refill. While
/// nobody else uses it, DICT's bucket then never falls below the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) limit: Limit,
    /// The tokens of the whole limit that are not part of the share.
    pub(super) rest: u64,
}

impl Share {
    fn of(whole: &Limit, pct: u32) -> Option<Self> {
        if !(1..=100).contains(&pct) {
            return None;
        }
        let pct = u64::from(pct);
        // At least one poll at a time, however small the share.
        let capacity = (whole.capacity() * pct / 100).max(1);
        let period = Duration::from_micros(whole.period_us().checked_mul(100)?);
        let limit = Limit::bucket_of(capacity, whole.refill_tokens() * pct, period).ok()?;
        Some(Self {
            limit,
            rest: whole.capacity() - capacity,
        })
    }

    /// When one more call is within the share.
    pub(super) fn affordable_us(&self, state: Option<State>, n: u64, now_us: u64) -> u64 {
        let n = n.clamp(1, self.limit.capacity());
        let decision = self.limit.apply(state, Command::Take { n }, now_us);
        now_us.saturating_add(decision.retry_after_us().unwrap_or(0))
    }

    /// Takes a call from the share.
    pub(super) fn charge(&self, state: Option<State>, now_us: u64) -> Option<State> {
        self.limit
            .apply(state, Command::Take { n: 1 }, now_us)
            .state()
    }

    /// Lowers the share to what DICT's bucket, at `level`, has above the rest. If others use the
    /// bucket, too, the share is empty, but still refills: the monitor goes on, at its own rate.
    pub(super) fn lower(&self, state: Option<State>, level: i64, at_us: u64) -> Option<State> {
        let rest = i64::try_from(self.rest).unwrap_or(i64::MAX);
        let level = level.saturating_sub(rest).max(0);
        let known = self.limit.apply(state, Command::Peek, at_us);
        if level >= known.level() {
            return state;
        }
        self.limit
            .apply(state, Command::SetLevel { level }, at_us)
            .state()
    }

    /// Empties the share.
    pub(super) fn emptied(&self, now_us: u64) -> Option<State> {
        let level = Command::SetLevel { level: 0 };
        self.limit.apply(None, level, now_us).state()
    }

    /// The time that one call takes to come back.
    pub(super) fn interval_us(&self) -> u64 {
        let tokens = self.limit.refill_tokens().max(1);
        self.limit.period_us().div_ceil(tokens)
    }
}
