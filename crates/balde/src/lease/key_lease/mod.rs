//! The lease of one key: tokens taken ahead of use, and the last answer of the store. Pure: time is
//! an argument, and nothing here calls the store.

use std::sync::Arc;

use balde_core::{Command, Decision, Limit, Snapshot, State, Strategy, Wait};

use super::in_flight::{InFlightRequest, Supply};
use crate::store::TierId;

/// Two requests for a block within this time make the next block larger.
const BUSY_US: u64 = 50_000;

/// A lease that is not used for this long is returned, and its next block is smaller.
pub(super) const IDLE_US: u64 = 500_000;

/// A refusal is cached for longer than until the next token, up to this, so that a flood of refused
/// checks reaches the store seldom.
const REFUSAL_MIN_US: u64 = 50_000;

/// The part of its capacity (one in so many) that a bucket may refill to while a refusal is cached
/// for longer than until its next token. The tokens of that time are granted after it; if the demand
/// ends before, no more than they are lost.
const REFUSAL_REFILL_ONE_IN: u64 = 20;

/// A refusal is cached for at most this long, because another process may credit the bucket or
/// change its limit.
const REFUSAL_MAX_US: u64 = 1_000_000;

/// What the lease decides without the store.
#[derive(Debug)]
pub(super) enum LeaseDecision {
    Granted(Decision),
    /// A cached refusal, which holds for `wait_us` at least.
    Refused {
        decision: Decision,
        wait_us: u64,
    },
    /// The store has to decide.
    Unknown,
}

/// The lease of one key.
#[derive(Debug, Default)]
pub(super) struct KeyLease {
    /// Tokens taken from the store and not spent.
    tokens: u64,
    /// Tokens that callers are waiting for.
    waiting: u64,
    /// How many tokens to hold beyond those; grows and shrinks with the demand.
    block: u64,
    seen: Option<Seen>,
    refusal: Option<Refusal>,
    requested_us: u64,
    /// How long the last request took.
    trip_us: u64,
    spent_us: u64,
    /// The request for a block that is in flight.
    pub(super) request: Option<Arc<InFlightRequest>>,
    /// The tier that the tokens were taken in, if the callers know it.
    pub(super) tier: Option<TierId>,
}

/// The last decision of the store, and the local time at which it arrived.
#[derive(Debug)]
struct Seen {
    decision: Decision,
    here_us: u64,
}

/// Until then the store would refuse to give so many tokens, or more.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    least: u64,
    until_us: u64,
}

impl KeyLease {
    pub(super) fn in_tier(tier: Option<TierId>) -> Self {
        Self {
            tier,
            ..Self::default()
        }
    }

    /// Spends `n` held tokens, or returns the cached refusal.
    pub(super) fn take(&mut self, n: u64, now_us: u64) -> LeaseDecision {
        self.drop_ended_window(now_us);
        let Some(seen) = &self.seen else {
            return LeaseDecision::Unknown;
        };
        if self.tokens >= n {
            let decision = seen.grant(n, self.tokens, now_us);
            self.tokens -= n;
            self.spent_us = now_us;
            return LeaseDecision::Granted(decision);
        }
        if self.refusal_of(n - self.tokens, now_us).is_some() {
            return self.refuse(n, now_us);
        }
        LeaseDecision::Unknown
    }

    /// [`take`](KeyLease::take) for a caller whose request has been answered with too few tokens: it
    /// is refused even if more may have arrived since.
    pub(super) fn take_after_short(&mut self, n: u64, now_us: u64) -> LeaseDecision {
        match self.take(n, now_us) {
            LeaseDecision::Unknown => self.refuse(n, now_us),
            decided => decided,
        }
    }

    fn refuse(&self, n: u64, now_us: u64) -> LeaseDecision {
        let Some(seen) = &self.seen else {
            return LeaseDecision::Unknown;
        };
        let decision = seen.refuse(n - self.tokens);
        if decision.is_allowed() {
            return LeaseDecision::Unknown;
        }
        // The tokens may arrive after the store is called again, but never before.
        let comes_us = decision.retry_after_us().unwrap_or(0) + seen.here_us;
        let until_us = self.refusal.map_or(0, |refusal| refusal.until_us);
        LeaseDecision::Refused {
            decision,
            wait_us: comes_us.max(until_us).saturating_sub(now_us).max(1),
        }
    }

    /// Takes back tokens that were spent for nothing.
    pub(super) fn put_back(&mut self, n: u64) {
        self.tokens += n;
    }

    /// Counts a caller that waits for `n` tokens.
    pub(super) fn begin_wait(&mut self, n: u64) {
        self.waiting += n;
    }

    /// Ends the wait of a caller for `n` tokens, whether it got them or not.
    pub(super) fn end_wait(&mut self, n: u64) {
        self.waiting = self.waiting.saturating_sub(n);
    }

    /// Returns whether a bucket of `limit` refills so fast that one request after the other could not
    /// take its tokens before they overflow. Plain checks can: many of them are in flight at once.
    pub(super) fn is_outpaced_by(&self, limit: &Limit) -> bool {
        self.trip_us > limit.fill_us() / 2
    }

    /// Returns whether it is time to request more, before the lease runs out.
    pub(super) fn is_low(&self, now_us: u64) -> bool {
        self.tokens < self.block / 2
            && self.request.is_none()
            && self.refusal_of(1, now_us).is_none()
    }

    /// Returns how many tokens to request from the store: those that callers wait for, and a block
    /// of at most `block_max`.
    pub(super) fn request_size(&mut self, block_max: u64, now_us: u64) -> u64 {
        let since_us = now_us.saturating_sub(self.requested_us);
        if self.requested_us == 0 || since_us > IDLE_US {
            self.block /= 2;
        } else if since_us < BUSY_US {
            self.block = self.block * 2 + 1;
        }
        self.block = self.block.min(block_max);
        self.requested_us = now_us;
        (self.waiting + self.block).saturating_sub(self.tokens)
    }

    /// Adds the tokens that the store granted to the last request.
    pub(super) fn add(&mut self, decision: Decision, now_us: u64) -> Supply {
        self.tokens += decision.moved();
        self.spent_us = self.spent_us.max(now_us);
        self.trip_us = now_us.saturating_sub(self.requested_us);
        let is_short = match decision.command() {
            Command::TakeUpTo { n } => decision.moved() < n,
            _ => false,
        };
        if is_short {
            // The bucket is empty, so the answer changes when it has one token. A small part of the
            // capacity may gather before the store is asked again.
            let some = (decision.limit().capacity() / REFUSAL_REFILL_ONE_IN).max(1);
            let some_us = wait_us(&decision, some).min(REFUSAL_MIN_US);
            let for_us = some_us.max(wait_us(&decision, 1)).min(REFUSAL_MAX_US);
            // The store decided between the request and now. If it was later than the request, the
            // next one is a little early; counted from now it would be late, and tokens might be
            // lost.
            let until_us = self.requested_us + for_us;
            self.refusal = Some(Refusal { least: 1, until_us });
        }
        self.see(decision, now_us);
        if is_short {
            Supply::Short
        } else {
            Supply::Enough
        }
    }

    /// Remembers that the store refused to give `n` tokens at once, when asked at `asked_us`.
    pub(super) fn add_refusal(&mut self, decision: Decision, n: u64, asked_us: u64, now_us: u64) {
        let until_us = asked_us + wait_us(&decision, n).min(REFUSAL_MAX_US);
        let is_covered = |refusal: Refusal| refusal.until_us >= until_us;
        if !self.refusal_of(n, now_us).is_some_and(is_covered) {
            let least = n;
            self.refusal = Some(Refusal { least, until_us });
        }
        self.see(decision, now_us);
    }

    /// Takes out the tokens of a lease that has been idle, to return them.
    pub(super) fn take_idle(&mut self, now_us: u64) -> u64 {
        self.drop_ended_window(now_us);
        if now_us.saturating_sub(self.spent_us) < IDLE_US || self.is_in_use() {
            return 0;
        }
        self.take_all()
    }

    /// Takes out the tokens beyond `block_max` for which no caller waits any more.
    pub(super) fn take_surplus(&mut self, block_max: u64) -> u64 {
        let kept = self.tokens.min(self.waiting + block_max);
        let surplus = self.tokens - kept;
        self.tokens = kept;
        surplus
    }

    /// Takes everything out.
    pub(super) fn take_all(&mut self) -> u64 {
        self.block = 0;
        std::mem::take(&mut self.tokens)
    }

    /// Drops the cached refusal, because the bucket was changed.
    pub(super) fn forget_refusal(&mut self) {
        self.refusal = None;
    }

    /// Tokens held ahead of use: those that callers wait for do not count.
    pub(super) const fn tokens_ahead(&self) -> u64 {
        self.tokens.saturating_sub(self.waiting)
    }

    /// Returns whether callers wait for tokens, or more are under way.
    pub(super) fn is_in_use(&self) -> bool {
        self.waiting > 0 || self.request.is_some()
    }

    /// Returns whether it can be dropped and the size of its block forgotten.
    pub(super) fn is_idle(&self, now_us: u64) -> bool {
        self.is_empty(now_us) && now_us.saturating_sub(self.requested_us) >= IDLE_US
    }

    /// Returns whether it can be dropped without losing tokens.
    pub(super) fn is_empty(&self, now_us: u64) -> bool {
        let is_refusing = self
            .refusal
            .is_some_and(|refusal| refusal.until_us > now_us);
        self.tokens == 0 && !is_refusing && !self.is_in_use()
    }

    /// The cached refusal, if it holds for `n` tokens more than are held.
    fn refusal_of(&self, n: u64, now_us: u64) -> Option<Refusal> {
        let holds = |refusal: &Refusal| refusal.least <= n && refusal.until_us > now_us;
        self.refusal.filter(holds)
    }

    fn see(&mut self, decision: Decision, now_us: u64) {
        self.seen = Some(Seen {
            decision,
            here_us: now_us,
        });
    }

    fn drop_ended_window(&mut self, now_us: u64) {
        // The tokens of a window end with it: the next window has its own.
        if self
            .seen
            .as_ref()
            .is_some_and(|seen| seen.has_ended(now_us))
        {
            self.tokens = 0;
        }
    }
}

/// How long until the bucket that the decision left behind has `n` tokens.
fn wait_us(decision: &Decision, n: u64) -> u64 {
    match decision.wait_for(n) {
        Wait::None => 0,
        Wait::Us(us) => us,
        Wait::Never => REFUSAL_MAX_US,
    }
}

impl Seen {
    /// The store's time, estimated from the local clock.
    fn now_there_us(&self, now_us: u64) -> u64 {
        self.decision.now_us() + now_us.saturating_sub(self.here_us)
    }

    /// The decision to grant `n` of the `tokens` held, as if those were still in the bucket.
    fn grant(&self, n: u64, tokens: u64, now_us: u64) -> Decision {
        let limit: &Limit = self.decision.limit();
        let there_us = self.now_there_us(now_us);
        let state = State::new(self.decision.owed(), self.decision.at_us());
        let owed = limit.snapshot(Some(state), there_us).owed();
        let held = tokens.min(limit.capacity()) * limit.token_units();
        let owed = owed.min(limit.capacity_units()).saturating_sub(held);
        let snapshot = match limit.strategy() {
            Strategy::FixedWindow => {
                Snapshot::of_window(limit, owed, self.decision.at_us(), there_us)
            }
            _ => Snapshot::of_bucket(limit, owed, there_us),
        };
        limit.decide(snapshot, Command::Take { n })
    }

    /// The refusal of `n` tokens more than are held, by the bucket as the store saw it last.
    fn refuse(&self, n: u64) -> Decision {
        let limit = self.decision.limit();
        let snapshot = limit.snapshot(self.decision.state(), self.decision.now_us());
        limit.decide(snapshot, Command::Take { n })
    }

    fn has_ended(&self, now_us: u64) -> bool {
        self.decision.limit().strategy() == Strategy::FixedWindow
            && self.decision.at_us() <= self.now_there_us(now_us)
    }
}

#[cfg(test)]
mod tests;
