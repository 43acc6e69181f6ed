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
    fn run(&mut self, limit: &Limit, state: &mut Option<State>, now_us: u64, trip_us: u64) -> u64 {
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
