//! A bucket in one 64-bit word: the time at which it is full again.
//!
//! For a token bucket the word is `clock × refill_units + owed`, so that time passing is a
//! subtraction and nothing needs to be written. Where refill is stepwise the clock counts steps,
//! and a step that refills more than a bucket can owe counts as exactly that much. For a fixed
//! window the upper bits hold the end of the window and the lower bits the count. Both count modulo
//! 2^64 and are read as a signed distance from now, which is right as long as each word is rewritten
//! within [`Packing::span_us`]; the table does that.

use balde_core::{Decision, Limit, Snapshot, State, Strategy};

/// Units that a word may be behind the clock before it must be rewritten: a quarter of the signed
/// range. The rest is for what a bucket can owe, and for a late sweep.
const SPAN_UNITS: u64 = 1 << 61;

/// How the buckets of one limit are packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    pub(super) limit: Limit,
    /// Units per microsecond, or per step.
    scale: u64,
}

impl Packing {
    #[inline]
    pub(super) fn new(limit: Limit) -> Self {
        let scale = match limit.strategy() {
            // The count needs the bits of the largest count; the limit has made sure that the
            // window fits into the others.
            Strategy::FixedWindow => (limit.owed_max() + 1).next_power_of_two(),
            Strategy::Stepwise => {
                let step = limit.period_us().saturating_mul(limit.refill_units());
                step.min(limit.owed_max())
            }
            Strategy::Continuous => limit.refill_units(),
        };
        Self { limit, scale }
    }

    /// The word of the state after a decision.
    #[inline]
    pub(super) fn pack(&self, decision: &Decision) -> u64 {
        match self.limit.strategy() {
            Strategy::FixedWindow if decision.owed() == 0 => self.full(decision.now_us()),
            _ => self.word(decision.owed(), decision.at_us()),
        }
    }

    /// The word of a state.
    pub(super) fn pack_state(&self, state: State) -> u64 {
        self.word(state.owed(), state.at_us())
    }

    /// The bucket at `now_us`.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the packing stays in registers if this is inlined"
    )]
    pub(super) fn snapshot(&self, word: u64, now_us: u64) -> Snapshot {
        let ahead = self.ahead(word, now_us);
        if self.limit.strategy() == Strategy::FixedWindow {
            let state = self.window(ahead, now_us);
            return Snapshot::of_window(&self.limit, state.owed(), state.at_us(), now_us);
        }
        let owed = ahead.max(0).unsigned_abs();
        if owed <= self.limit.owed_max() {
            Snapshot::of_bucket(&self.limit, owed, now_us)
        } else {
            self.snapshot_ahead(owed, now_us)
        }
    }

    /// The snapshot of a bucket that a thread whose clock is ahead of ours has charged to its largest
    /// debt: its state is in the future. Clamping it to the largest debt now would lose the
    /// difference.
    ///
    /// Takes `self` by value, so that the caller can keep the packing in registers.
    #[cold]
    fn snapshot_ahead(self, owed: u64, now_us: u64) -> Snapshot {
        let state = self.state_ahead(owed, now_us);
        Snapshot::of_bucket_at(&self.limit, state.owed(), state.at_us(), now_us)
    }

    fn state_ahead(&self, owed: u64, now_us: u64) -> State {
        let beyond = owed.saturating_sub(self.limit.owed_max());
        let ticks = beyond.div_ceil(self.scale);
        let tick_us = match self.limit.strategy() {
            Strategy::Stepwise => self.limit.period_us(),
            _ => 1,
        };
        let at_us = self
            .limit
            .tick(now_us)
            .saturating_add(ticks.saturating_mul(tick_us));
        State::new(owed.saturating_sub(ticks.saturating_mul(self.scale)), at_us)
    }

    /// The state that a word encodes.
    pub(super) fn state(&self, word: u64, now_us: u64) -> State {
        let ahead = self.ahead(word, now_us);
        match self.limit.strategy() {
            Strategy::FixedWindow => self.window(ahead, now_us),
            _ => self.state_ahead(ahead.max(0).unsigned_abs(), now_us),
        }
    }

    /// The word of a bucket that is full, or removed, at `now_us`.
    #[inline]
    pub(super) fn full(&self, now_us: u64) -> u64 {
        self.clock(now_us).wrapping_mul(self.scale)
    }

    /// How far the bucket is from being full, in units; zero or less if it is full.
    pub(super) fn ahead(&self, word: u64, now_us: u64) -> i64 {
        word.wrapping_sub(self.full(now_us)).cast_signed()
    }

    /// How long until the bucket is full, in microseconds or, for stepwise limits, the time of as many
    /// steps; zero if it is full. Unlike [`ahead`](Packing::ahead), it can be compared between limits.
    pub(super) fn us_ahead(&self, word: u64, now_us: u64) -> u64 {
        let ahead = self.ahead(word, now_us).max(0).unsigned_abs();
        let ticks = ahead.div_ceil(self.scale);
        match self.limit.strategy() {
            Strategy::Stepwise => ticks.saturating_mul(self.limit.period_us()),
            _ => ticks,
        }
    }

    /// How long a word stays valid without being rewritten.
    pub(super) fn span_us(&self) -> u64 {
        let ticks = SPAN_UNITS / self.scale;
        match self.limit.strategy() {
            Strategy::Stepwise => ticks.saturating_mul(self.limit.period_us()),
            _ => ticks,
        }
    }

    #[inline]
    fn window(&self, ahead: i64, now_us: u64) -> State {
        if ahead <= 0 {
            return State::new(0, 0);
        }
        let ahead = ahead.unsigned_abs();
        // The scale of a window is a power of two.
        let count = ahead & (self.scale - 1);
        State::new(count, now_us + (ahead >> self.scale.trailing_zeros()))
    }

    #[inline]
    fn word(&self, owed: u64, at_us: u64) -> u64 {
        self.clock(at_us)
            .wrapping_mul(self.scale)
            .wrapping_add(owed)
    }

    /// The time in the unit of the scale: microseconds, or steps.
    #[inline]
    fn clock(&self, now_us: u64) -> u64 {
        match self.limit.strategy() {
            Strategy::Stepwise => now_us / self.limit.period_us(),
            _ => now_us,
        }
    }
}
