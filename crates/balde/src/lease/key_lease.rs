//! The lease of one key: tokens taken ahead of use, and the last answer of the store. Pure: time is
//! an argument, and nothing here calls the store.

use std::sync::Arc;

use balde_core::{Command, Decision, Limit, Snapshot, State, Strategy, Wait};

use super::in_flight::{InFlightRequest, Supply};

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

    /// Takes out the tokens beyond `block_max` that nobody waits for: those of callers that gave up.
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

        fn request(&mut self) {
            let n = self.lease.request_size(self.block_max(), self.now_us);
            let command = Command::TakeUpTo { n };
            let decision = self.limit.apply(self.state, command, self.now_us);
            self.state = decision.state();
            self.requests += 1;
            self.lease.add(decision, self.now_us);
        }

        fn take(&mut self, n: u64) -> bool {
            self.lease.begin_wait(n);
            let mut is_granted = None;
            for _ in 0..2 {
                match self.lease.take(n, self.now_us) {
                    LeaseDecision::Granted(decision) => {
                        assert!(decision.is_allowed());
                        assert_eq!(decision.moved(), n);
                        is_granted = Some(true);
                        break;
                    }
                    LeaseDecision::Refused { wait_us, .. } => {
                        assert!(wait_us > 0);
                        is_granted = Some(false);
                        break;
                    }
                    LeaseDecision::Unknown => self.request(),
                }
            }
            self.lease.end_wait(n);
            is_granted.unwrap_or(false)
        }
    }

    #[test]
    fn a_key_checked_once_takes_nothing_ahead() {
        let mut sim = Simulation::new("10/s burst 1000");
        assert!(sim.take(1));
        assert_eq!(sim.lease.tokens_ahead(), 0);
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
            assert!(sim.lease.tokens_ahead() <= sim.block_max());
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
        assert!(sim.lease.tokens_ahead() > 0);
        sim.now_us += 1_000_000;
        assert!(matches!(
            sim.lease.take(1, sim.now_us),
            LeaseDecision::Unknown
        ));
        assert_eq!(sim.lease.tokens_ahead(), 0);
    }

    #[test]
    fn idle_tokens_are_returned() {
        let mut sim = Simulation::new("100/s burst 1000");
        for _ in 0..20 {
            assert!(sim.take(1));
        }
        let held = sim.lease.tokens_ahead();
        assert!(held > 0);
        assert_eq!(sim.lease.take_idle(sim.now_us + IDLE_US - 1), 0);
        assert_eq!(sim.lease.take_idle(sim.now_us + IDLE_US), held);
        assert_eq!(sim.lease.tokens_ahead(), 0);
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

    /// Callers of one process, who reach the store after half a round trip.
    #[derive(Default)]
    struct Process {
        lease: KeyLease,
        callers: u64,
        asked: Option<(u64, u64)>,
        asked_for: u64,
        answered: Option<(u64, Decision)>,
        /// Callers that have waited for an answer which brought too few tokens.
        disappointed: u64,
    }

    impl Process {
        fn is_waiting(&self) -> bool {
            self.asked.is_some() || self.answered.is_some()
        }

        /// Returns how many of the callers were granted a token.
        fn run(
            &mut self,
            limit: &Limit,
            state: &mut Option<State>,
            now_us: u64,
            trip_us: u64,
        ) -> u64 {
            if let Some((at_us, n)) = self.asked
                && at_us <= now_us
            {
                let decision = limit.apply(*state, Command::TakeUpTo { n }, now_us);
                *state = decision.state();
                self.asked = None;
                self.answered = Some((now_us + trip_us, decision));
            }
            if let Some((at_us, decision)) = self.answered
                && at_us <= now_us
            {
                self.answered = None;
                self.disappointed = match self.lease.add(decision, now_us) {
                    Supply::Short => self.asked_for,
                    Supply::Enough => 0,
                };
            }
            let mut granted = 0;
            while self.callers > 0 && !self.is_waiting() {
                let decided = if self.disappointed > 0 {
                    self.lease.take_after_short(1, now_us)
                } else {
                    self.lease.take(1, now_us)
                };
                match decided {
                    LeaseDecision::Granted(_) => granted += 1,
                    LeaseDecision::Refused { .. } => {}
                    LeaseDecision::Unknown if self.lease.is_outpaced_by(limit) => {
                        let there_us = now_us + trip_us;
                        let decision = limit.apply(*state, Command::Take { n: 1 }, there_us);
                        *state = decision.state();
                        granted += u64::from(decision.is_allowed());
                    }
                    LeaseDecision::Unknown => {
                        let block_max = (limit.capacity() / 10).max(1);
                        let n = self.lease.request_size(block_max, now_us);
                        self.asked = Some((now_us + trip_us, n.min(limit.capacity())));
                        self.asked_for = self.callers;
                        break;
                    }
                }
                self.callers -= 1;
                self.disappointed = self.disappointed.saturating_sub(1);
                self.lease.end_wait(1);
            }
            granted
        }

        fn arrive(&mut self) {
            self.callers += 1;
            self.lease.begin_wait(1);
        }
    }

    /// Tokens granted to `processes` by plain checks and on leases, under the same demand. Both are
    /// checked against the bound on what a bucket may grant.
    fn plain_and_leased(
        limit: &Limit,
        processes: usize,
        demand_us: u64,
        on_us: Option<u64>,
        trip_us: u64,
    ) -> (u64, u64) {
        const STEP_US: u64 = 50;
        const START_US: u64 = 1_000_000;
        const FOR_US: u64 = 2_000_000;
        let mut nodes: Vec<Process> = (0..processes).map(|_| Process::default()).collect();
        let (mut plain_state, mut leased_state) = (None, None);
        let (mut plain, mut leased) = (0, 0);
        let mut demand_due_us = START_US;
        let mut turn = 0;
        for now_us in (START_US..START_US + FOR_US).step_by(50) {
            while demand_due_us <= now_us {
                demand_due_us += demand_us;
                if on_us.is_some_and(|on_us| (now_us - START_US) % (5 * on_us) >= on_us) {
                    continue;
                }
                turn += 1;
                nodes[turn % processes].arrive();
                let there_us = now_us + trip_us;
                let decision = limit.apply(plain_state, Command::Take { n: 1 }, there_us);
                plain_state = decision.state();
                plain += u64::from(decision.is_allowed());
            }
            for node in &mut nodes {
                leased += node.run(limit, &mut leased_state, now_us, trip_us);
            }
            let elapsed_us = now_us + trip_us + STEP_US - START_US;
            let periods = match limit.strategy() {
                Strategy::Continuous => 0,
                _ => elapsed_us / limit.period_us() + 1,
            };
            let refilled = elapsed_us * limit.refill_units() / limit.token_units();
            let refilled = refilled.max(periods * limit.refill_tokens());
            let most = limit.capacity() + refilled;
            assert!(leased <= most, "{limit}: {leased} of {most}");
        }
        (plain, leased)
    }

    #[test]
    fn leased_and_plain_admit_the_same_whatever_the_limit() {
        let limits = [
            "1000/s burst 5",
            "1000/s burst 10",
            "1000/s burst 20",
            "1000/s burst 50",
            "1000/s burst 100",
            "1000/s burst 1000",
            "50000/s burst 10",
            "50/s burst 1",
            "7/s burst 3",
            "100/s burst 100",
            "1000/s window",
            "100/100ms window",
            "20/100ms burst 40 stepwise",
        ];
        for text in limits {
            let limit: Limit = text.parse().unwrap();
            let token_us = (limit.period_us() / limit.refill_tokens()).max(2);
            for processes in [1, 2] {
                for (demand_us, on_us) in [
                    (token_us / 2, None),
                    (token_us, None),
                    (token_us.div_ceil(8), None),
                    (token_us.div_ceil(8), Some(10 * MS)),
                    (token_us.div_ceil(8), Some(40 * MS)),
                ] {
                    // A burst of demand that lasts only a few round trips is over before leases are
                    // as quick as plain checks.
                    let trips: &[u64] = match on_us {
                        None => &[100, 1_000],
                        Some(_) => &[100],
                    };
                    for &trip_us in trips {
                        let (plain, leased) =
                            plain_and_leased(&limit, processes, demand_us, on_us, trip_us);
                        assert!(
                            leased * 100 >= plain * 95,
                            "{text}, {processes} processes, one check per {demand_us} µs, on for \
                             {on_us:?}, {trip_us} µs to the store: {leased} leased, {plain} plain"
                        );
                    }
                }
            }
        }
    }
}
