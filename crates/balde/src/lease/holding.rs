//! What a process holds of one key: tokens taken ahead, and what it remembers of the last answer.
//! Pure: time comes in, and nobody is asked.

use std::sync::Arc;

use balde_core::{Command, Decision, Limit, Snapshot, State, Strategy};

use super::flight::Flight;

/// Asking twice within this time makes the next block larger.
const OFTEN_US: u64 = 50_000;

/// Not asking for this long makes the next block smaller, and what is left goes back.
pub(super) const SELDOM_US: u64 = 500_000;

/// A refusal is remembered for at least this long, which is what makes a flood of refused requests
/// reach the store at most twenty times a second.
const REFUSAL_MIN_US: u64 = 50_000;

/// And for at most this long, because a credit or another limit may come from elsewhere.
const REFUSAL_MAX_US: u64 = 1_000_000;

/// What can be said without asking.
#[derive(Debug)]
pub(super) enum Said {
    Granted(Decision),
    /// Refused before, and nothing can have changed for so long.
    Refused {
        decision: Decision,
        wait_us: u64,
    },
    /// The store has to be asked.
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Tokens taken from the store and not spent.
    tokens: u64,
    /// How many to hold; grows and shrinks with the demand.
    block: u64,
    seen: Option<Seen>,
    /// Until then the store has no more to give than it gave, or is not asked for it.
    short_until_us: u64,
    asked_us: u64,
    spent_us: u64,
    /// The question that is under way.
    pub(super) flight: Option<Arc<Flight>>,
}

/// How the bucket stood when the store was last asked.
#[derive(Debug)]
struct Seen {
    decision: Decision,
    here_us: u64,
}

impl Holding {
    /// Spends `n` held tokens, or says what is remembered.
    pub(super) fn take(&mut self, n: u64, now_us: u64) -> Said {
        self.forget_what_ended(now_us);
        let Some(seen) = &self.seen else {
            return Said::Nothing;
        };
        if self.tokens >= n {
            let decision = seen.grant(n, self.tokens, now_us);
            self.tokens -= n;
            self.spent_us = now_us;
            return Said::Granted(decision);
        }
        if self.short_until_us <= now_us {
            return Said::Nothing;
        }
        let decision = seen.refuse(n - self.tokens);
        // It may take longer than until the store is asked again, but never less.
        let comes_us = decision.retry_after_us().unwrap_or(0) + seen.here_us;
        Said::Refused {
            decision,
            wait_us: comes_us.max(self.short_until_us) - now_us,
        }
    }

    /// Whether it is time to ask for more, before there is none left.
    pub(super) fn is_low(&self, now_us: u64) -> bool {
        self.tokens < self.block / 2 && self.flight.is_none() && self.short_until_us <= now_us
    }

    /// How much to ask the store for, for somebody who wants `n` more than is held (or nobody).
    /// Together with what is held it is never more than `most`, unless one request alone is.
    pub(super) fn ask_for(&mut self, n: u64, most: u64, now_us: u64) -> u64 {
        let since_us = now_us.saturating_sub(self.asked_us);
        if self.asked_us == 0 || since_us > SELDOM_US {
            self.block /= 2;
        } else if since_us < OFTEN_US {
            self.block = self.block * 2 + 1;
        }
        self.block = self.block.min(most);
        self.asked_us = now_us;
        let missing = n.saturating_sub(self.tokens);
        let ahead = self.block.max(self.tokens) - self.tokens;
        missing.max(ahead.min(most.saturating_sub(self.tokens)))
    }

    /// What the store said to that.
    pub(super) fn landed(&mut self, decision: Decision, now_us: u64) {
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
            // There is nothing left, so the answer can change when one token has come in.
            let wait_us = seen.refuse(1).retry_after_us().unwrap_or(0);
            self.short_until_us = now_us + wait_us.clamp(REFUSAL_MIN_US, REFUSAL_MAX_US);
        }
        self.seen = Some(seen);
        self.spent_us = self.spent_us.max(now_us);
    }

    /// Takes out what nobody has spent for a while, to be given back.
    pub(super) fn take_idle(&mut self, now_us: u64) -> u64 {
        self.forget_what_ended(now_us);
        if now_us.saturating_sub(self.spent_us) < SELDOM_US || self.flight.is_some() {
            return 0;
        }
        self.take_all()
    }

    /// Takes everything out.
    pub(super) fn take_all(&mut self) -> u64 {
        self.block = 0;
        std::mem::take(&mut self.tokens)
    }

    /// Somebody changed the bucket: what is remembered of it may not be true any more.
    pub(super) fn forget_refusal(&mut self) {
        self.short_until_us = 0;
    }

    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Whether it can be dropped, and nobody will miss the size of its block.
    pub(super) fn is_idle(&self, now_us: u64) -> bool {
        self.is_empty(now_us) && now_us.saturating_sub(self.asked_us) >= SELDOM_US
    }

    /// Whether it can be dropped without losing tokens.
    pub(super) fn is_empty(&self, now_us: u64) -> bool {
        self.tokens == 0 && self.short_until_us <= now_us && self.flight.is_none()
    }

    fn forget_what_ended(&mut self, now_us: u64) {
        // The tokens of a window go with it: the next one has its own.
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
    /// The store's clock, as far as it can be known here.
    fn now_there_us(&self, now_us: u64) -> u64 {
        self.decision.now_us() + now_us.saturating_sub(self.here_us)
    }

    /// The decision on `n` of the `tokens` held: as if those were still in the bucket.
    fn grant(&self, n: u64, tokens: u64, now_us: u64) -> Decision {
        let limit: &Limit = self.decision.limit();
        let there_us = self.now_there_us(now_us);
        let state = State::new(self.decision.owed(), self.decision.at_us());
        let owed = limit.snapshot(Some(state), there_us).owed();
        let held = tokens.min(limit.capacity()) * limit.token_units();
        let owed = owed.min(limit.capacity_units()).saturating_sub(held);
        let standing = match limit.strategy() {
            Strategy::FixedWindow => {
                Snapshot::of_window(limit, owed, self.decision.at_us(), there_us)
            }
            _ => Snapshot::of_bucket(limit, owed, there_us),
        };
        limit.decide(standing, Command::Take { n })
    }

    /// The decision on `n` more than are held: as the bucket stood when it was asked.
    fn refuse(&self, n: u64) -> Decision {
        let limit = self.decision.limit();
        let standing = limit.snapshot(self.decision.state(), self.decision.now_us());
        limit.decide(standing, Command::Take { n })
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

    /// A store of one bucket, and the process that leases from it.
    struct World {
        limit: Limit,
        state: Option<State>,
        holding: Holding,
        asks: u64,
        now_us: u64,
    }

    impl World {
        fn new(limit: &str) -> Self {
            Self {
                limit: limit.parse().unwrap(),
                state: None,
                holding: Holding::default(),
                asks: 0,
                now_us: 1_000_000,
            }
        }

        fn most(&self) -> u64 {
            (self.limit.capacity() / 10).max(1)
        }

        fn request(&mut self, wanted: u64) {
            let n = self.holding.ask_for(wanted, self.most(), self.now_us);
            let command = Command::TakeUpTo { n };
            let decision = self.limit.apply(self.state, command, self.now_us);
            self.state = decision.state();
            self.asks += 1;
            self.holding.landed(decision, self.now_us);
        }

        fn take(&mut self, n: u64) -> bool {
            for _ in 0..2 {
                match self.holding.take(n, self.now_us) {
                    Said::Granted(decision) => {
                        assert!(decision.is_allowed());
                        assert_eq!(decision.moved(), n);
                        return true;
                    }
                    Said::Refused { wait_us, .. } => {
                        assert!(wait_us > 0);
                        return false;
                    }
                    Said::Nothing => self.request(n),
                }
            }
            false
        }
    }

    #[test]
    fn a_key_asked_once_takes_nothing_ahead() {
        let mut world = World::new("10/s burst 1000");
        assert!(world.take(1));
        assert_eq!(world.holding.tokens(), 0);
        assert_eq!(
            world
                .limit
                .apply(world.state, Command::Peek, world.now_us)
                .level(),
            999
        );
    }

    #[test]
    fn a_hot_key_asks_seldom_and_holds_no_more_than_its_share() {
        let mut world = World::new("100000/s burst 100000");
        for _ in 0..10_000 {
            assert!(world.take(1));
            assert!(world.holding.tokens() <= world.most());
            world.now_us += 10;
        }
        assert!(world.asks * 1_000 <= 20 * 10_000, "{} asks", world.asks);
    }

    #[test]
    fn a_flood_of_refusals_asks_twenty_times_a_second_at_most() {
        let mut world = World::new("100/s burst 100");
        let mut granted = 0;
        for _ in 0..10_000 {
            granted += u64::from(world.take(1));
            world.now_us += MS;
        }
        // Ten seconds: everything that came in was granted, and the store was hardly asked.
        assert!((1_050..=1_100).contains(&granted), "{granted}");
        assert!(world.asks <= 10 * 20 + 20, "{} asks", world.asks);
    }

    #[test]
    fn nothing_is_granted_that_the_store_did_not_give() {
        for limit in ["7/s burst 50", "3/s burst 30 stepwise", "40/s window"] {
            let mut world = World::new(limit);
            let start_us = world.now_us;
            let mut granted = 0;
            let mut seed = 1_u64;
            for _ in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let n = 1 + (seed >> 60) % 3;
                if world.take(n) {
                    granted += n;
                }
                world.now_us += (seed >> 33) % (5 * MS);
                if seed.is_multiple_of(97) {
                    let idle = world.holding.take_all();
                    let credit = Command::Credit { n: idle };
                    world.state = world.limit.apply(world.state, credit, world.now_us).state();
                }
                let elapsed_us = world.now_us - start_us;
                let periods = elapsed_us / world.limit.period_us() + 1;
                let most = world.limit.capacity() + world.limit.refill_tokens() * periods;
                assert!(granted <= most, "{limit}: {granted} of {most}");
            }
            assert!(granted > 0);
        }
    }

    #[test]
    fn the_tokens_of_a_window_go_with_it() {
        let mut world = World::new("1000/s window");
        for _ in 0..20 {
            assert!(world.take(1));
        }
        assert!(world.holding.tokens() > 0);
        world.now_us += 1_000_000;
        assert!(matches!(world.holding.take(1, world.now_us), Said::Nothing));
        assert_eq!(world.holding.tokens(), 0);
    }

    #[test]
    fn what_nobody_spends_goes_back() {
        let mut world = World::new("100/s burst 1000");
        for _ in 0..20 {
            assert!(world.take(1));
        }
        let held = world.holding.tokens();
        assert!(held > 0);
        assert_eq!(world.holding.take_idle(world.now_us + SELDOM_US - 1), 0);
        assert_eq!(world.holding.take_idle(world.now_us + SELDOM_US), held);
        assert_eq!(world.holding.tokens(), 0);
    }

    #[test]
    fn a_refusal_of_many_is_none_of_few() {
        let mut world = World::new("1/s burst 10");
        assert!(world.take(8));
        assert!(!world.take(5));
        assert!(world.take(1));
        // A credit from this process makes it ask again.
        assert!(!world.take(5));
        world.state = None;
        assert!(!world.take(5));
        world.holding.forget_refusal();
        assert!(world.take(5));
    }
}
