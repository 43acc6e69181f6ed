//! One world: its nodes, its clients, what goes wrong, and the laws.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use balde::{
    Clock, Decision, Hold, Holds, Leases, Limit, ManualClock, OnFailure, RateLimiter, RedisStore,
};
use balde_policy::{Engine, Outcome, Profile, Request};
use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::store::{Store, Weather};

const TIMEOUT: Duration = Duration::from_millis(50);
/// How long clients arrive, how long faults may begin, and how long all is calm at the end.
const CLIENTS_FOR: Duration = Duration::from_millis(2_500);
const FAULTS_FOR: Duration = Duration::from_secs(2);
const CALM_FOR: Duration = Duration::from_secs(10);
const CALM_TICK: Duration = Duration::from_millis(250);
const HOLD_TTL: Duration = Duration::from_secs(2);
const HELD: u64 = 5;

/// Limits of the same name that nodes have at different times.
const PLAIN: [&str; 2] = ["10/s burst 8", "4/s burst 16"];
const LEASED: &str = "20/s burst 20";
/// They hardly refill, so that every token can be accounted for.
const SLOW: &str = "1/h burst 4000";
const PROFILE: &str = r#"
profile = "simulated"
[[policy]]
name = "engine"
scope = "user"
limit = "1/h burst 4000"
costs = { 200 = 1, 404 = 5, unanswered = 5, default = 1 }
on_failure = "deny"
"#;
const PRICE_MAX: u64 = 5;
const USER: &str = "ana";

/// What happened in one world, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    granted: u64,
    refused: u64,
    fallbacks: u64,
    leased: u64,
    settled: u64,
    crashes: u64,
    failovers: u64,
    outages: u64,
    calls: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, other) in self.fields().into_iter().zip(other.named()) {
            *mine += other.1;
        }
    }

    fn fields(&mut self) -> [&mut u64; 9] {
        [
            &mut self.granted,
            &mut self.refused,
            &mut self.fallbacks,
            &mut self.leased,
            &mut self.settled,
            &mut self.crashes,
            &mut self.failovers,
            &mut self.outages,
            &mut self.calls,
        ]
    }

    pub(crate) fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("granted", self.granted),
            ("refused", self.refused),
            ("fallbacks", self.fallbacks),
            ("granted from leases", self.leased),
            ("holds and tickets settled", self.settled),
            ("crashes", self.crashes),
            ("failovers", self.failovers),
            ("outages", self.outages),
            ("calls", self.calls),
        ]
    }
}

/// What clients know.
#[derive(Default)]
struct Ledger {
    summary: Summary,
    /// Tokens granted by Redis or from leases, by limiter and key.
    granted: BTreeMap<(&'static str, &'static str), u64>,
    /// Tokens of holds and tickets whose end is known, and the most that the others may have cost.
    known: BTreeMap<&'static str, u64>,
    unknown: BTreeMap<&'static str, u64>,
}

impl Ledger {
    fn may_cost(&mut self, name: &'static str, most: u64) {
        *self.unknown.entry(name).or_default() += most;
    }

    /// The end of what [`may_cost`](Ledger::may_cost) so much. Where it is not exact, a hold may have expired
    /// before it was settled, and then has cost all of its tokens.
    fn has_cost(&mut self, name: &'static str, most: u64, price: u64, is_exact: bool) {
        *self.known.entry(name).or_default() += price;
        let known = if is_exact { most } else { price };
        *self.unknown.entry(name).or_default() -= known;
        self.summary.settled += 1;
    }
}

type SharedLedger = Arc<Mutex<Ledger>>;

fn locked<T>(ledger: &SharedLedger, change: impl FnOnce(&mut Ledger) -> T) -> T {
    change(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A process. Its socket and its clients end with it.
struct Node {
    plain: RateLimiter,
    leased: RateLimiter,
    held: RateLimiter,
    engine: Engine,
    clock: ManualClock,
    server: JoinSet<()>,
    clients: JoinSet<()>,
}

pub(crate) struct World {
    seed: u64,
    random: Rng,
    store: Store,
    ledger: SharedLedger,
    nodes: Vec<Node>,
    /// Nodes ever started.
    started: usize,
    kind: Kind,
}

/// What may go wrong in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Calm,
    /// Requests and replies are late, clocks step, the script is forgotten, but nothing is lost: every token can
    /// be accounted for.
    Late,
    Rough,
}

impl World {
    pub(crate) fn new(seed: u64, folder: &Path) -> Self {
        let mut random = Rng::with_seed(seed);
        let store = Store::new(folder, random.fork());
        let kind = match seed % 5 {
            0 => Kind::Calm,
            1 => Kind::Late,
            _ => Kind::Rough,
        };
        let mut world = Self {
            seed,
            store,
            ledger: SharedLedger::default(),
            nodes: Vec::new(),
            started: 0,
            kind,
            random,
        };
        for _ in 0..world.random.usize(2..=3) {
            let node = world.start_node();
            world.nodes.push(node);
        }
        world
    }

    fn start_node(&mut self) -> Node {
        let (address, server) = self.store.listen(self.started);
        self.started += 1;
        let store = RedisStore::builder()
            .address(address)
            .timeout(TIMEOUT)
            .build()
            .expect("a store");
        // Its own idea of the time, up to an hour off.
        let clock = ManualClock::at_us(1_800_000_000_000_000 + self.random.u64(..3_600_000_000));
        let builder = |name: &str, limit: &str| {
            RateLimiter::builder()
                .name(name)
                .limit(limit.parse::<Limit>().expect("a limit"))
                .clock(Clock::manual(&clock))
                .redis(&store, OnFailure::Deny)
        };
        let profile = Profile::parse(PROFILE).expect("a profile");
        Node {
            plain: builder("plain", PLAIN[0]).build().expect("a limiter"),
            leased: builder("leased", LEASED)
                .leases(Leases::new())
                .build()
                .expect("a limiter"),
            held: builder("held", SLOW)
                .holds(Holds::new().ttl(HOLD_TTL))
                .build()
                .expect("a limiter"),
            engine: Engine::builder(profile)
                .redis(&store)
                .clock(Clock::manual(&clock))
                .build()
                .expect("an engine"),
            clock,
            server,
            clients: JoinSet::new(),
        }
    }

    pub(crate) async fn run(mut self) -> Summary {
        let begun = Instant::now();
        let mut plan = self.plan();
        plan.sort_by_key(|(at, _)| *at);
        for (at, event) in plan {
            sleep_until(begun + at).await;
            self.happen(event);
        }
        // All is well again: everything that is owed to the store arrives, and what was left behind expires.
        sleep_until(begun + CLIENTS_FOR).await;
        self.store.set_weather(fair());
        let mut calm = Instant::now();
        let end = calm + CALM_FOR;
        while calm < end {
            calm += CALM_TICK;
            self.advance_clocks(CALM_TICK);
            sleep_until(calm).await;
        }
        for node in &mut self.nodes {
            while let Some(ended) = node.clients.join_next().await {
                ended.expect("a client that ends well");
            }
        }
        self.check_end().await;
        let mut summary = locked(&self.ledger, |ledger| ledger.summary);
        summary.calls = self.store.calls();
        summary
    }

    fn advance_clocks(&mut self, by: Duration) {
        for node in &self.nodes {
            // Up to a tenth too fast or too slow.
            let percent = self.random.u32(90..=110);
            node.clock.advance(by * percent / 100);
        }
    }

    /// Everything that will happen, and when.
    fn plan(&mut self) -> Vec<(Duration, Event)> {
        let mut plan = Vec::new();
        let end_ms = u64::try_from(CLIENTS_FOR.as_millis()).expect("short");
        // A Poisson process, and bursts.
        let mut at_us = 0;
        while at_us < end_ms * 1_000 {
            at_us += self.exponential_us(20_000);
            plan.push((Duration::from_micros(at_us), Event::Arrivals(1)));
        }
        for _ in 0..self.random.u32(2..5) {
            let at = Duration::from_millis(self.random.u64(..end_ms));
            plan.push((at, Event::Arrivals(self.random.usize(8..25))));
        }
        for tick in 0..end_ms / 20 {
            plan.push((Duration::from_millis(tick * 20), Event::Tick));
        }
        let at = Duration::from_millis(self.random.u64(..end_ms));
        plan.push((at, Event::ChangeLimit));
        if self.kind == Kind::Calm {
            return plan;
        }
        let faults_ms = u64::try_from(FAULTS_FOR.as_millis()).expect("short");
        for _ in 0..self.random.u32(2..6) {
            let at_ms = self.random.u64(200..faults_ms);
            let for_ms = self.random.u64(20..600);
            let at = Duration::from_millis(at_ms);
            let until = Duration::from_millis(at_ms + for_ms);
            let fault = match self.kind {
                Kind::Late => [2, 2, 6, 7][self.random.usize(..4)],
                _ => self.random.u32(..9),
            };
            match fault {
                0 => plan.extend([(at, Event::Down), (until, Event::Up)]),
                1 => plan.extend([(at, Event::Down), (until, Event::FailOver)]),
                2 => plan.extend([(at, Event::Slow), (until, Event::Fair)]),
                3 => plan.extend([(at, Event::LoseReplies), (until, Event::Fair)]),
                4 => plan.push((at, Event::BreakConnections)),
                5 => plan.push((at, Event::Crash)),
                6 => plan.push((at, Event::StepClock)),
                7 => plan.push((at, Event::FlushScript)),
                _ => plan.push((at, Event::FailOver)),
            }
        }
        plan
    }

    fn exponential_us(&mut self, mean_us: u32) -> u64 {
        let drawn = -(1.0 - self.random.f64()).ln() * f64::from(mean_us);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number of microseconds"
        )]
        let us = drawn as u64;
        us.max(1)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrivals(count) => {
                for _ in 0..count {
                    self.arrive();
                }
            }
            Event::Tick => {
                self.advance_clocks(Duration::from_millis(20));
                // The replica lags behind by up to a tick.
                if self.random.bool() {
                    self.store.replicate();
                }
            }
            Event::ChangeLimit => {
                // Not at all of them: the others follow when they are started anew, or never.
                for node in &self.nodes {
                    if self.random.bool() {
                        let limit: Limit = PLAIN[1].parse().expect("a limit");
                        node.plain.set_limit(limit).expect("a limit");
                    }
                }
            }
            Event::Down => {
                let mut weather = self.store.weather();
                weather.is_down = true;
                self.store.set_weather(weather);
                self.store.break_connections();
                locked(&self.ledger, |ledger| ledger.summary.outages += 1);
            }
            Event::Up => {
                let mut weather = self.store.weather();
                weather.is_down = false;
                self.store.set_weather(weather);
            }
            Event::FailOver => {
                self.store.fail_over();
                self.store.break_connections();
                locked(&self.ledger, |ledger| ledger.summary.failovers += 1);
            }
            Event::Slow => self.change_weather(Duration::from_millis(120), 0),
            Event::LoseReplies => self.change_weather(Duration::from_millis(5), 4),
            Event::Fair => self.change_weather(fair().delay_max, 0),
            Event::BreakConnections => self.store.break_connections(),
            Event::FlushScript => self.store.flush_script(),
            Event::StepClock => {
                let index = self.random.usize(..self.nodes.len());
                let by = Duration::from_millis(self.random.u64(..5_000));
                self.nodes[index].clock.advance(by);
            }
            Event::Crash => {
                let index = self.random.usize(..self.nodes.len());
                let next = self.start_node();
                let mut dead = std::mem::replace(&mut self.nodes[index], next);
                // Nothing that it still does reaches the server.
                dead.server.abort_all();
                dead.clients.abort_all();
                locked(&self.ledger, |ledger| ledger.summary.crashes += 1);
            }
        }
    }

    fn change_weather(&mut self, delay_max: Duration, lose_one_in: u32) {
        let is_down = self.store.weather().is_down;
        self.store.set_weather(Weather {
            delay_max,
            lose_one_in,
            is_down,
        });
    }

    /// One client comes to one of the nodes.
    fn arrive(&mut self) {
        let index = self.random.usize(..self.nodes.len());
        let key = ["k0", "k1", "k2"][self.random.usize(..3)];
        let kind = self.random.u32(..10);
        let random = self.random.fork();
        let (store, ledger) = (self.store.clone(), Arc::clone(&self.ledger));
        let is_exact = self.is_exact();
        let node = &mut self.nodes[index];
        match kind {
            0..4 => {
                let limiter = node.plain.clone();
                let checking = check(limiter, "plain", key, store, ledger);
                node.clients.spawn(checking);
            }
            4..8 => {
                let limiter = node.leased.clone();
                let checking = check(limiter, "leased", key, store, ledger);
                node.clients.spawn(checking);
            }
            8 => {
                let holding = hold(node.held.clone(), random, ledger, is_exact);
                node.clients.spawn(holding);
            }
            _ => {
                let admitting = admit(node.engine.clone(), random, ledger, is_exact);
                node.clients.spawn(admitting);
            }
        }
    }

    fn is_exact(&self) -> bool {
        self.kind != Kind::Rough
    }

    /// Where nothing is lost, what was taken was granted or has been returned. Leases are returned in one
    /// attempt: what was not returned in time is missing until the bucket has refilled.
    fn check_tokens(&self) {
        let names: &[&str] = match self.kind {
            Kind::Calm => &["plain", "leased"],
            _ => &["plain"],
        };
        for name in names {
            for key in ["k0", "k1", "k2"] {
                let granted = locked(&self.ledger, |ledger| {
                    ledger
                        .granted
                        .get(&(name, key))
                        .copied()
                        .unwrap_or_default()
                });
                let (counts, _) = self.store.counts(name, key);
                assert_eq!(
                    granted + counts.returned,
                    counts.taken,
                    "seed {}, {name} {key}: {granted} granted, {counts:?}",
                    self.seed
                );
            }
        }
    }

    async fn check_end(&mut self) {
        let seed = self.seed;
        for node in &self.nodes {
            node.held.settled().await;
            node.engine.settled().await;
            node.leased.release_leases().await;
            // The store decides again.
            let decision = node.plain.check("k0").await;
            assert!(!decision.is_fallback(), "seed {seed}: {decision:?}");
            locked(&self.ledger, |ledger| {
                count(ledger, "plain", "k0", &decision);
            });
            assert_eq!(node.leased.lease_stats().tokens_out, 0, "seed {seed}");
        }
        for (name, key) in [("held", USER), ("engine", USER)] {
            let (owed, forgiven) = self.store.owed(name, key);
            let (known, unknown) = locked(&self.ledger, |ledger| {
                let of = |map: &BTreeMap<&str, u64>| map.get(name).copied().unwrap_or_default();
                (of(&ledger.known), of(&ledger.unknown))
            });
            let what = format!(
                "seed {seed}, {name}: {owed} owed, {known} settled, at most {unknown} more, {forgiven} forgiven"
            );
            // The settlements of a crashed node that were not made are those of expired holds: each is charged
            // what was held, which may be less than its price.
            let crashes = locked(&self.ledger, |ledger| ledger.summary.crashes);
            let least = if crashes > 0 { known * HELD / 8 } else { known };
            assert!(owed + forgiven >= least, "too little: {what}");
            assert!(owed <= known + unknown, "too much: {what}");
            assert!(!self.is_exact() || unknown == 0, "{what}");
        }
        if self.is_exact() {
            self.check_tokens();
        }
    }
}

fn fair() -> Weather {
    Weather {
        delay_max: Duration::from_millis(2),
        lose_one_in: 0,
        is_down: false,
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrivals(usize),
    Tick,
    ChangeLimit,
    Down,
    Up,
    FailOver,
    Slow,
    Fair,
    LoseReplies,
    BreakConnections,
    FlushScript,
    StepClock,
    Crash,
}

/// Checks one token, and then the laws of its key.
async fn check(
    limiter: RateLimiter,
    name: &'static str,
    key: &'static str,
    store: Store,
    ledger: SharedLedger,
) {
    let asked = Instant::now();
    let decision = limiter.check(key).await;
    let took = asked.elapsed();
    assert!(
        took <= TIMEOUT + Duration::from_millis(2),
        "it took {took:?}"
    );
    locked(&ledger, |ledger| count(ledger, name, key, &decision));
    check_laws(&limiter, name, key, &store, &ledger);
}

fn count(ledger: &mut Ledger, name: &'static str, key: &'static str, decision: &Decision) {
    if decision.is_fallback() {
        assert!(!decision.is_allowed(), "the policy is to deny");
        ledger.summary.fallbacks += 1;
    } else if decision.is_allowed() {
        *ledger.granted.entry((name, key)).or_default() += 1;
        ledger.summary.granted += 1;
        ledger.summary.leased += u64::from(name == "leased");
    } else {
        assert!(decision.retry_after().is_some(), "{decision:?}");
        ledger.summary.refused += 1;
    }
}

fn check_laws(
    limiter: &RateLimiter,
    name: &'static str,
    key: &'static str,
    store: &Store,
    ledger: &SharedLedger,
) {
    let granted = locked(ledger, |ledger| {
        ledger
            .granted
            .get(&(name, key))
            .copied()
            .unwrap_or_default()
    });
    let (now, lost) = store.counts(name, key);
    // What was granted has been taken from the bucket, and was not returned.
    assert!(
        granted + now.returned <= now.taken + lost.taken,
        "{name} {key}: {granted} granted, {now:?}, forgotten {lost:?}"
    );
    // No more than one bucket allows, and what a failover forgot.
    let limits: &[&str] = if name == "plain" { &PLAIN } else { &[LEASED] };
    let (mut capacity, mut refilled) = (0, 0);
    for text in limits {
        // While nodes disagree, the bucket goes back and forth: it never has more than the larger capacity, and
        // never refills faster than the faster limit.
        let limit: Limit = text.parse().expect("a limit");
        capacity = limit.capacity().max(capacity);
        let since = limit.refill_units() * store.elapsed_us() / limit.token_units();
        refilled = since.max(refilled);
    }
    let most = capacity + refilled;
    assert!(
        granted <= most + lost.taken,
        "{name} {key}: {granted} of {most}, forgotten {lost:?}"
    );
    // The bound of leases.
    let stats = limiter.lease_stats();
    assert!(
        stats.tokens_out <= stats.block_max * stats.keys,
        "{stats:?}"
    );
}

/// Holds tokens, works, and settles them at a price, or forgets them.
async fn hold(limiter: RateLimiter, mut random: Rng, ledger: SharedLedger, is_exact: bool) {
    let price = random.u64(..8);
    let most = price.max(HELD);
    // Until its end is known, it may cost this much: the node may crash at any moment.
    locked(&ledger, |ledger| ledger.may_cost("held", most));
    let requests = [limiter.request_n(USER, HELD)];
    let hold = match Hold::take(&requests).await {
        Ok(hold) => hold,
        Err(refused) => {
            // A refusal costs nothing, and neither does a late reply; one that was lost may.
            if is_exact || !refused.parts().iter().any(Decision::is_fallback) {
                locked(&ledger, |ledger| ledger.has_cost("held", most, 0, is_exact));
            }
            return;
        }
    };
    sleep(Duration::from_micros(random.u64(..300_000))).await;
    if random.u32(..5) == 0 {
        drop(hold);
        // Nobody is told whether this has reached the store.
        if is_exact {
            locked(&ledger, |ledger| ledger.has_cost("held", most, HELD, true));
        }
        return;
    }
    let decisions = hold.settle(price).await;
    if !decisions.iter().any(Decision::is_fallback) {
        locked(&ledger, |ledger| {
            ledger.has_cost("held", most, price, is_exact);
        });
    }
}

/// Admits a request, works, and settles it by its outcome.
async fn admit(engine: Engine, mut random: Rng, ledger: SharedLedger, is_exact: bool) {
    locked(&ledger, |ledger| ledger.may_cost("engine", PRICE_MAX));
    let mut request = Request::new("GET", "/items/1", "");
    request.user = Some(USER);
    let Ok(ticket) = engine.admit(&request).await else {
        // Refused, or the store does not answer, and the policy is to deny.
        if is_exact {
            locked(&ledger, |ledger| {
                ledger.has_cost("engine", PRICE_MAX, 0, true);
            });
        }
        return;
    };
    sleep(Duration::from_micros(random.u64(..200_000))).await;
    let (outcome, price) = match random.u32(..3) {
        0 => (Outcome::Status(200), 1),
        1 => (Outcome::Status(404), PRICE_MAX),
        _ => (Outcome::Abandoned, PRICE_MAX),
    };
    ticket.settle(outcome).await;
    if is_exact {
        locked(&ledger, |ledger| {
            ledger.has_cost("engine", PRICE_MAX, price, true);
        });
    }
}
