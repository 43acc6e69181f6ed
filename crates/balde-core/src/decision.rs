//! The decision on a command. Levels and waits are computed by their methods, so that a caller that
//! reads only [`Decision::is_allowed`] does not compute a division.

use core::time::Duration;

use crate::{Command, EXACT_MAX, Limit, Snapshot, Start, State, Strategy};

/// How long until a command passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// It passes now.
    None,
    /// It passes after exactly this many microseconds, if no other command changes the bucket.
    Us(u64),
    /// It never passes: it needs more tokens than the capacity.
    Never,
}

/// The wait of a command for which there are enough tokens, of which some are held. They may come back
/// at any time, and until then nothing is known.
pub const HELD_RETRY_US: u64 = 100_000;

/// The numbers of a decision, for [`Decision::from_parts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionParts {
    /// Whether the command passed.
    pub is_allowed: bool,
    /// The deficit before the command, in units.
    pub before: u64,
    /// The deficit after the command, in units.
    pub after: u64,
    /// The time as of which `after` holds; for a fixed window, its end.
    pub at_us: u64,
    /// The time of the decision.
    pub now_us: u64,
    /// Tokens held after the command.
    pub held: u64,
}

/// The result of a command: whether it passed, levels, waits, and the state to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    limit: Limit,
    command: Command,
    is_allowed: bool,
    before: u64,
    after: u64,
    at_us: u64,
    now_us: u64,
    /// Tokens held after the command.
    held: u64,
}

impl Decision {
    #[inline]
    pub(crate) const fn new(
        limit: &Limit,
        command: Command,
        is_allowed: bool,
        snapshot: Snapshot,
        after: u64,
        at_us: u64,
    ) -> Self {
        Self {
            limit: *limit,
            command,
            is_allowed,
            before: snapshot.owed,
            after,
            at_us,
            now_us: snapshot.now_us,
            held: 0,
        }
    }

    /// Creates the decision that another implementation made, such as a script in Redis.
    ///
    /// Returns `None` if no decision on `command` under `limit` has these numbers: more is owed than
    /// the limit allows, or a command was refused that must pass.
    ///
    /// ```
    /// use balde_core::{Command, Decision, DecisionParts, Limit};
    ///
    /// let limit: Limit = "10/s".parse()?;
    /// let take = Command::Take { n: 4 };
    /// let here = limit.apply(None, take, 77);
    /// let after = 4 * limit.token_units();
    /// let parts = DecisionParts { is_allowed: true, before: 0, after, at_us: 77, now_us: 77, held: 0 };
    /// assert_eq!(Decision::from_parts(&limit, take, parts), Some(here));
    ///
    /// // There were enough tokens, so this cannot be a refusal.
    /// let parts = DecisionParts { is_allowed: false, after: 0, ..parts };
    /// assert_eq!(Decision::from_parts(&limit, take, parts), None);
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn from_parts(limit: &Limit, command: Command, parts: DecisionParts) -> Option<Self> {
        let DecisionParts {
            is_allowed,
            before,
            after,
            at_us,
            now_us,
            held,
        } = parts;
        if before > limit.owed_max() || after > limit.owed_max() || held > EXACT_MAX {
            return None;
        }
        if !is_allowed {
            // Waits are computed from `before`.
            let is_over = |n: u64| {
                let n = n.saturating_add(held);
                n > limit.capacity() || before + n * limit.token_units() > limit.capacity_units()
            };
            let may_refuse = match command {
                Command::Take { n } => is_over(n),
                Command::TakeIf { needed, .. } | Command::Hold { needed, .. } => is_over(needed),
                Command::TakeUpTo { n } => n > 0 && is_over(1),
                _ => false,
            };
            if !may_refuse || after != before {
                return None;
            }
        }
        Some(Self {
            limit: *limit,
            command,
            is_allowed,
            before,
            after,
            at_us,
            now_us,
            held,
        })
    }

    /// Returns whether the command passed. A command that did not pass changed nothing.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// The command that was run.
    pub const fn command(&self) -> Command {
        self.command
    }

    /// The limit it was run under.
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The time of the decision.
    pub const fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Whole tokens available before the command; negative is debt.
    pub fn level_before(&self) -> i64 {
        self.level_of(self.before)
            .saturating_sub_unsigned(self.held_before())
    }

    /// Whole tokens available after the command: those in the bucket less those that are
    /// [held](Decision::held). Negative is debt.
    pub fn level(&self) -> i64 {
        self.level_of(self.after).saturating_sub_unsigned(self.held)
    }

    /// Tokens that are held after the command, by all holders: they are in the bucket, and nobody else
    /// can take them. Always zero for a bucket without holds.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Tokens that were held before the command.
    pub fn held_before(&self) -> u64 {
        match self.command {
            Command::Hold { n, .. } if self.is_allowed => self.held.saturating_sub(n),
            Command::Settle { held, .. } => self.held.saturating_add(held).min(EXACT_MAX),
            _ => self.held,
        }
    }

    /// A peek at the bucket after `us` microseconds, if no other command changes it.
    ///
    /// ```
    /// use balde_core::{Command, Limit};
    ///
    /// let limit: Limit = "10/s".parse()?;
    /// let decision = limit.apply(None, Command::Take { n: 4 }, 0);
    /// assert_eq!(decision.after(200_000).level(), 8);
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn after(&self, us: u64) -> Self {
        let now_us = self.now_us.saturating_add(us);
        let snapshot = self.limit.snapshot(self.state(), now_us);
        self.limit.decide_held(snapshot, self.held, Command::Peek)
    }

    /// The decision on another command right after this one, at the same time.
    ///
    /// ```
    /// use balde_core::{Command, Limit};
    ///
    /// let limit: Limit = "10/s".parse()?;
    /// let decision = limit.apply(None, Command::Take { n: 4 }, 0);
    /// assert_eq!(decision.then(Command::Take { n: 5 }).level(), 1);
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn then(&self, command: Command) -> Self {
        let snapshot = self.limit.snapshot(self.state(), self.now_us);
        if self.held == 0 {
            self.limit.decide(snapshot, command)
        } else {
            self.limit.decide_held(snapshot, self.held, command)
        }
    }

    /// Whole tokens that can still be taken: the level, or zero in debt.
    pub fn remaining(&self) -> u64 {
        u64::try_from(self.level()).unwrap_or(0)
    }

    /// Whole tokens that were taken, charged or credited; a hold takes none. Less than the command's `n` if a
    /// [`TakeUpTo`](Command::TakeUpTo) found fewer, a [`Charge`](Command::Charge) reached the largest
    /// debt or a [`Credit`](Command::Credit) reached the capacity; zero if the command did not pass.
    pub const fn moved(&self) -> u64 {
        self.before.abs_diff(self.after) / self.limit.token_units()
    }

    /// Returns whether a take of `n` tokens right after the command, at the same time, would pass.
    ///
    /// ```
    /// use balde_core::{Command, Limit};
    ///
    /// let limit: Limit = "10/s".parse()?;
    /// let decision = limit.apply(None, Command::Take { n: 4 }, 0);
    /// assert!(decision.has_room_for(6) && !decision.has_room_for(7));
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    #[inline]
    pub const fn has_room_for(&self, n: u64) -> bool {
        let n = n.saturating_add(self.held);
        n <= self.limit.capacity()
            && self.after + n * self.limit.token_units() <= self.limit.capacity_units()
    }

    /// How long until the same command would pass.
    #[inline]
    pub fn wait(&self) -> Wait {
        if self.is_allowed {
            return Wait::None;
        }
        self.wait_of_refused()
    }

    fn wait_of_refused(&self) -> Wait {
        match self.command {
            Command::Take { n } => self.wait_for(n),
            Command::TakeIf { needed, .. } | Command::Hold { needed, .. } => self.wait_for(needed),
            // The only other command that can fail needs one token.
            _ => self.wait_for(1),
        }
    }

    /// Returns how long it takes until `n` tokens can be taken, counted from the moment of this
    /// decision and from the state that it left behind. Works for every command, a
    /// [`Peek`](Command::Peek) included.
    ///
    /// The wait is exact to the microsecond, as long as no other command reaches the bucket:
    /// a [`Take`](Command::Take) of `n` passes after it, and is refused one microsecond earlier.
    /// [`Wait::Never`] if `n` is more than the capacity, [`Wait::None`] if `n` tokens can be taken
    /// now. Where tokens are held, it is the shortest wait: until the bucket would have enough if all
    /// of them came back, or [`HELD_RETRY_US`] if it would have enough now.
    ///
    /// ```
    /// use balde_core::{Command, Limit, Wait};
    ///
    /// let limit: Limit = "10/s".parse()?;
    /// let decision = limit.apply(None, Command::Take { n: 4 }, 0);
    /// assert_eq!(decision.wait_for(6), Wait::None);
    /// assert_eq!(decision.wait_for(7), Wait::Us(100_000));
    /// assert_eq!(decision.wait_for(11), Wait::Never);
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    #[inline]
    pub fn wait_for(&self, n: u64) -> Wait {
        if n > self.limit.capacity() {
            return Wait::Never;
        }
        let owed = self.after + n * self.limit.token_units();
        match owed.checked_sub(self.limit.capacity_units()) {
            None | Some(0) if self.held == 0 || self.has_room_for(n) => Wait::None,
            None | Some(0) => Wait::Us(HELD_RETRY_US),
            Some(over) => Wait::Us(self.us_until_restored(over)),
        }
    }

    /// Microseconds until the same command would pass; `None` if it passed, or never will.
    pub fn retry_after_us(&self) -> Option<u64> {
        match self.wait() {
            Wait::Us(us) => Some(us),
            Wait::None | Wait::Never => None,
        }
    }

    /// [`retry_after_us`](Decision::retry_after_us) as a duration.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us().map(Duration::from_micros)
    }

    /// Microseconds until the bucket holds one whole token more than after the command, or until
    /// the window ends; `None` if the bucket is full.
    ///
    /// ```
    /// use balde_core::{Command, Limit};
    ///
    /// let limit: Limit = "2/min burst 100".parse()?;
    /// let in_debt = limit.apply(None, Command::Charge { n: 115 }, 0);
    /// assert_eq!((in_debt.level(), in_debt.next_token_us()), (-15, Some(30_000_000)));
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn next_token_us(&self) -> Option<u64> {
        if self.after == 0 {
            return None;
        }
        // What is owed beyond a whole number of tokens, or else one token.
        let token = self.limit.token_units();
        let part = self.after % token;
        Some(self.us_until_restored(if part == 0 { token } else { part }))
    }

    /// Microseconds until the bucket is full, or the window ends, if no other command changes it.
    pub fn full_after_us(&self) -> u64 {
        if self.after == 0 {
            return 0;
        }
        self.us_until_restored(self.after)
    }

    /// [`full_after_us`](Decision::full_after_us) as a duration.
    pub fn full_after(&self) -> Duration {
        Duration::from_micros(self.full_after_us())
    }

    /// The state to store; `None` for a bucket that can be removed, because it equals one that was
    /// never used.
    pub const fn state(&self) -> Option<State> {
        match self.limit.start() {
            Start::Full if self.after == 0 => None,
            _ => Some(State::new(self.after, self.at_us)),
        }
    }

    /// The bucket before the command.
    pub const fn snapshot_before(&self) -> Snapshot {
        Snapshot {
            owed: self.before,
            at_us: match self.limit.strategy() {
                Strategy::FixedWindow if self.before == 0 => 0,
                _ => self.at_us,
            },
            now_us: self.now_us,
        }
    }

    /// Returns whether a store without state for this bucket must store it now. Never after a peek;
    /// after a refusal only if buckets start empty, because the bucket starts to refill.
    pub const fn must_be_kept(&self) -> bool {
        self.command.is_write() && self.state().is_some()
    }

    /// The bucket's deficit after the command: how many units it is below full. For a fixed window,
    /// the tokens used.
    #[inline]
    pub const fn owed(&self) -> u64 {
        self.after
    }

    /// The bucket's deficit before the command, in units; for a fixed window, the tokens used.
    #[inline]
    pub const fn owed_before(&self) -> u64 {
        self.before
    }

    /// The time as of which [`owed`](Decision::owed) holds: the bucket refills from then on. For a
    /// fixed window, the end of the window.
    #[inline]
    pub const fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The same decision on a bucket of which `held` tokens are held after `command`.
    pub(crate) const fn with_held(mut self, command: Command, held: u64) -> Self {
        self.command = command;
        self.held = held;
        self
    }

    fn level_of(&self, owed: u64) -> i64 {
        // Both are at most EXACT_MAX, so neither the casts nor the difference can wrap.
        let units = self.limit.capacity_units().cast_signed() - owed.cast_signed();
        let token = self.limit.token_units().cast_signed();
        // After most refusals there is less than one token, and a comparison is cheaper than a division.
        if (0..token).contains(&units) {
            return 0;
        }
        units.div_euclid(token)
    }

    /// Microseconds until `units` are refilled.
    fn us_until_restored(&self, units: u64) -> u64 {
        let limit = &self.limit;
        let at_us = match limit.strategy() {
            Strategy::Continuous => self
                .at_us
                .saturating_add(units.div_ceil(limit.refill_units())),
            Strategy::Stepwise => {
                let step = limit.period_us().saturating_mul(limit.refill_units());
                let steps = units.div_ceil(step);
                self.at_us
                    .saturating_add(steps.saturating_mul(limit.period_us()))
            }
            Strategy::FixedWindow => self.at_us,
        };
        at_us.saturating_sub(self.now_us)
    }
}
