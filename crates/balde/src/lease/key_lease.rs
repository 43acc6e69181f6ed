//! The lease of one key: tokens taken ahead of use, and the last answer of the store. Pure: time is
//! an argument, and nothing here calls the store.

use std::sync::Arc;

use balde_core::{Command, Decision, Limit, Snapshot, State, Strategy};

use super::in_flight::InFlightRequest;

/// Two requests for a block within this time make the next block larger.
const BUSY_US: u64 = 50_000;

/// A lease that is not used for this long is returned, and its next block is smaller.
pub(super) const IDLE_US: u64 = 500_000;

/// A refusal is cached for at least this long, so that a flood of refused checks reaches the store
/// at most twenty times a second.
const REFUSAL_MIN_US: u64 = 50_000;

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
    /// How many tokens to hold; grows and shrinks with the demand.
    block: u64,
    seen: Option<Seen>,
    /// Until then refusals are cached: the store had fewer tokens than were requested.
    short_until_us: u64,
    requested_us: u64,
    spent_us: u64,
    /// The request for a block that is in flight.
    pub(super) request: Option<Arc<InFlightRequest>>,
}

/// The last decision of the store, and the local time at which it arrived.
#[derive(Debug)]
struct Seen {
    decision: Decision,
    here_us: u64,
}

impl KeyLease {
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
        if self.short_until_us <= now_us {
            return LeaseDecision::Unknown;
        }
        let decision = seen.refuse(n - self.tokens);
        // The tokens may arrive after the store is called again, but never before.
        let comes_us = decision.retry_after_us().unwrap_or(0) + seen.here_us;
        LeaseDecision::Refused {
            decision,
            wait_us: comes_us.max(self.short_until_us) - now_us,
        }
    }

    /// Returns whether it is time to request more, before the lease runs out.
    pub(super) fn is_low(&self, now_us: u64) -> bool {
        self.tokens < self.block / 2 && self.request.is_none() && self.short_until_us <= now_us
    }

    /// Returns how many tokens to request from the store for a check of `n` tokens (zero to refill
    /// ahead of use). Together with the tokens held this is at most `block_max`, unless one check
    /// alone needs more.
    pub(super) fn request_size(&mut self, n: u64, block_max: u64, now_us: u64) -> u64 {
        let since_us = now_us.saturating_sub(self.requested_us);
        if self.requested_us == 0 || since_us > IDLE_US {
            self.block /= 2;
        } else if since_us < BUSY_US {
            self.block = self.block * 2 + 1;
        }
        self.block = self.block.min(block_max);
        self.requested_us = now_us;
        let missing = n.saturating_sub(self.tokens);
        let ahead = self.block.max(self.tokens) - self.tokens;
        missing.max(ahead.min(block_max.saturating_sub(self.tokens)))
    }

    /// Adds the tokens that the store granted.
    pub(super) fn add(&mut self, decision: Decision, now_us: u64) {
        self.tokens += decision.moved();
        let seen = Seen {
            decision,
            here_us: now_us,
        };
        let is_short = match decision.command() {
            Command::TakeUpTo { n } => decision.moved() < n,
            _ => false,
        };
        if is_short {
            // The bucket is empty, so the answer can change when it has one token.
            let wait_us = seen.refuse(1).retry_after_us().unwrap_or(0);
            self.short_until_us = now_us + wait_us.clamp(REFUSAL_MIN_US, REFUSAL_MAX_US);
        }
        self.seen = Some(seen);
        self.spent_us = self.spent_us.max(now_us);
    }

    /// Takes out the tokens of a lease that has been idle, to return them.
    pub(super) fn take_idle(&mut self, now_us: u64) -> u64 {
        self.drop_ended_window(now_us);
        if now_us.saturating_sub(self.spent_us) < IDLE_US || self.request.is_some() {
            return 0;
        }
        self.take_all()
    }

    /// Takes everything out.
    pub(super) fn take_all(&mut self) -> u64 {
        self.block = 0;
        std::mem::take(&mut self.tokens)
    }

    /// Drops the cached refusal, because the bucket was changed.
    pub(super) fn forget_refusal(&mut self) {
        self.short_until_us = 0;
    }

    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns whether it can be dropped and the size of its block forgotten.
    pub(super) fn is_idle(&self, now_us: u64) -> bool {
        self.is_empty(now_us) && now_us.saturating_sub(self.requested_us) >= IDLE_US
    }

    /// Returns whether it can be dropped without losing tokens.
    pub(super) fn is_empty(&self, now_us: u64) -> bool {
        self.tokens == 0 && self.short_until_us <= now_us && self.request.is_none()
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
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    /// A store of one bucket, and a process that leases from it.
    struct Simulation {
        limit: Limit,
        state: Option<State>,
        lease: KeyLease,
        requests: u64,
        now_us: u64,
    }

    impl Simulation {
        fn new(limit: &str) -> Self {
            Self {
                limit: limit.parse().unwrap(),
                state: None,
                lease: KeyLease::default(),
                requests: 0,
                now_us: 1_000_000,
            }
        }

        fn block_max(&self) -> u64 {
            (self.limit.capacity() / 10).max(1)
        }

        fn request(&mut self, wanted: u64) {
            let n = self
                .lease
                .request_size(wanted, self.block_max(), self.now_us);
            let command = Command::TakeUpTo { n };
            let decision = self.limit.apply(self.state, command, self.now_us);
            self.state = decision.state();
            self.requests += 1;
            self.lease.add(decision, self.now_us);
        }

        fn take(&mut self, n: u64) -> bool {
            for _ in 0..2 {
                match self.lease.take(n, self.now_us) {
                    LeaseDecision::Granted(decision) => {
                        assert!(decision.is_allowed());
                        assert_eq!(decision.moved(), n);
                        return true;
                    }
                    LeaseDecision::Refused { wait_us, .. } => {
                        assert!(wait_us > 0);
                        return false;
                    }
                    LeaseDecision::Unknown => self.request(n),
                }
            }
            false
        }
    }

    #[test]
    fn a_key_checked_once_takes_nothing_ahead() {
        let mut sim = Simulation::new("10/s burst 1000");
        assert!(sim.take(1));
        assert_eq!(sim.lease.tokens(), 0);
        assert_eq!(
            sim.limit
                .apply(sim.state, Command::Peek, sim.now_us)
                .level(),
            999
        );
    }

    #[test]
    fn a_hot_key_calls_the_store_seldom_and_holds_no_more_than_its_share() {
        let mut sim = Simulation::new("100000/s burst 100000");
        for _ in 0..10_000 {
            assert!(sim.take(1));
            assert!(sim.lease.tokens() <= sim.block_max());
            sim.now_us += 10;
        }
        assert!(
            sim.requests * 1_000 <= 20 * 10_000,
            "{} requests",
            sim.requests
        );
    }

    #[test]
    fn a_flood_of_refusals_calls_the_store_twenty_times_a_second_at_most() {
        let mut sim = Simulation::new("100/s burst 100");
        let mut granted = 0;
        for _ in 0..10_000 {
            granted += u64::from(sim.take(1));
            sim.now_us += MS;
        }
        // Ten seconds: every refilled token was granted, with few calls to the store.
        assert!((1_050..=1_100).contains(&granted), "{granted}");
        assert!(sim.requests <= 10 * 20 + 20, "{} requests", sim.requests);
    }

    #[test]
    fn nothing_is_granted_that_the_store_did_not_give() {
        for limit in ["7/s burst 50", "3/s burst 30 stepwise", "40/s window"] {
            let mut sim = Simulation::new(limit);
            let start_us = sim.now_us;
            let mut granted = 0;
            let mut seed = 1_u64;
            for _ in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let n = 1 + (seed >> 60) % 3;
                if sim.take(n) {
                    granted += n;
                }
                sim.now_us += (seed >> 33) % (5 * MS);
                if seed.is_multiple_of(97) {
                    let idle = sim.lease.take_all();
                    let credit = Command::Credit { n: idle };
                    sim.state = sim.limit.apply(sim.state, credit, sim.now_us).state();
                }
                let elapsed_us = sim.now_us - start_us;
                let periods = elapsed_us / sim.limit.period_us() + 1;
                let most = sim.limit.capacity() + sim.limit.refill_tokens() * periods;
                assert!(granted <= most, "{limit}: {granted} of {most}");
            }
            assert!(granted > 0);
        }
    }

    #[test]
    fn the_tokens_of_a_window_go_with_it() {
        let mut sim = Simulation::new("1000/s window");
        for _ in 0..20 {
            assert!(sim.take(1));
        }
        assert!(sim.lease.tokens() > 0);
        sim.now_us += 1_000_000;
        assert!(matches!(
            sim.lease.take(1, sim.now_us),
            LeaseDecision::Unknown
        ));
        assert_eq!(sim.lease.tokens(), 0);
    }

    #[test]
    fn idle_tokens_are_returned() {
        let mut sim = Simulation::new("100/s burst 1000");
        for _ in 0..20 {
            assert!(sim.take(1));
        }
        let held = sim.lease.tokens();
        assert!(held > 0);
        assert_eq!(sim.lease.take_idle(sim.now_us + IDLE_US - 1), 0);
        assert_eq!(sim.lease.take_idle(sim.now_us + IDLE_US), held);
        assert_eq!(sim.lease.tokens(), 0);
    }

    #[test]
    fn a_cached_refusal_of_many_tokens_does_not_refuse_few() {
        let mut sim = Simulation::new("1/s burst 10");
        assert!(sim.take(8));
        assert!(!sim.take(5));
        assert!(sim.take(1));
        // A credit from this process drops the cached refusal.
        assert!(!sim.take(5));
        sim.state = None;
        assert!(!sim.take(5));
        sim.lease.forget_refusal();
        assert!(sim.take(5));
    }
}
