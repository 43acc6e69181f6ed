//! Random requests, outcomes, credits, assignments and profiles, against a model that is simple
//! enough to be obviously right; and the same in memory and in Redis.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use balde::{Clock, ManualClock, OpId, RedisStore};
use balde_policy::{AdmitError, Engine, Outcome, Subject, Ticket};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::fixture::{get, level, parsed};
use crate::redis_server::RedisServer;

const USERS: [&str; 3] = ["ana", "bob", "eve"];
const PLANS: [&str; 2] = ["small", "large"];
const OUTCOMES: [(Outcome, i64); 5] = [
    (Outcome::Status(200), 1),
    (Outcome::Status(404), 5),
    (Outcome::Status(500), 0),
    (Outcome::Failed, 2),
    (Outcome::Abandoned, 2),
];
const CREDIT: i64 = 3;

/// Whole tokens a second and whole seconds, so that no part of a token is ever in question.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    refill: i64,
    capacity: i64,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    plans: [Numbers; 2],
    overall: Numbers,
}

#[derive(Clone, Debug)]
enum Step {
    Admit { user: usize },
    Settle { ticket: usize, outcome: usize },
    Drop { ticket: usize },
    Credit { user: usize, id: u8 },
    Assign { user: usize, plan: usize },
    Replace { limits: Limits },
    Advance { seconds: u64 },
}

fn numbers() -> impl Strategy<Value = Numbers> {
    (1..4_i64, 5..40_i64).prop_map(|(refill, capacity)| Numbers { refill, capacity })
}

fn limits() -> impl Strategy<Value = Limits> {
    ([numbers(), numbers()], numbers()).prop_map(|(plans, overall)| Limits { plans, overall })
}

fn step(replaces: bool) -> impl Strategy<Value = Step> {
    let user = 0..USERS.len();
    prop_oneof![
        8 => user.clone().prop_map(|user| Step::Admit { user }),
        5 => (0..8_usize, 0..OUTCOMES.len())
            .prop_map(|(ticket, outcome)| Step::Settle { ticket, outcome }),
        1 => (0..8_usize).prop_map(|ticket| Step::Drop { ticket }),
        2 => (user.clone(), 0..4_u8).prop_map(|(user, id)| Step::Credit { user, id }),
        2 => (user, 0..PLANS.len()).prop_map(|(user, plan)| Step::Assign { user, plan }),
        1 => limits().prop_map(move |limits| if replaces {
            Step::Replace { limits }
        } else {
            Step::Advance { seconds: 1 }
        }),
        2 => (0..6_u64).prop_map(|seconds| Step::Advance { seconds }),
    ]
}

fn profile(limits: &Limits) -> String {
    let text = |n: Numbers| format!("{}/s burst {}", n.refill, n.capacity);
    let [small, large] = limits.plans.map(text);
    let overall = text(limits.overall);
    format!(
        r#"
profile = "p"
[variants]
plan = {{ part = "user", assigned = ["small", "large"] }}
[[policy]]
name = "lookups"
scope = "user"
limits = {{ by = "plan", small = "{small}", large = "{large}" }}
costs = {{ 200 = 1, 404 = 5, 500 = 0, unanswered = 2, default = 1 }}
credits = {{ order = {CREDIT} }}
[[policy]]
name = "overall"
limit = "{overall}"
costs = {{ 200 = 1, 404 = 5, 500 = 0, unanswered = 2, default = 1 }}
"#
    )
}

#[derive(Debug)]
struct Bucket {
    level: i64,
    numbers: Numbers,
}

impl Bucket {
    fn full(numbers: Numbers) -> Self {
        let level = numbers.capacity;
        Self { level, numbers }
    }

    fn add(&mut self, tokens: i64) {
        self.level = (self.level + tokens).min(self.numbers.capacity);
    }

    /// Keeps what it is below full; has no debt that it did not have.
    fn change(&mut self, numbers: Numbers) {
        let below_full = self.numbers.capacity - self.level;
        self.level = (numbers.capacity - below_full).max(self.level.min(0));
        self.numbers = numbers;
    }
}

struct Model {
    limits: Limits,
    plans: HashMap<usize, usize>,
    users: HashMap<usize, Bucket>,
    overall: Bucket,
    credited: HashSet<(usize, u8)>,
}

impl Model {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            plans: HashMap::new(),
            users: HashMap::new(),
            overall: Bucket::full(limits.overall),
            credited: HashSet::new(),
        }
    }

    fn user(&mut self, user: usize) -> &mut Bucket {
        let plan = self.plans.get(&user).copied().unwrap_or(0);
        let numbers = self.limits.plans[plan];
        let bucket = self.users.entry(user);
        bucket.or_insert_with(|| Bucket::full(numbers))
    }

    fn admit(&mut self, user: usize) -> bool {
        if self.user(user).level < 1 || self.overall.level < 1 {
            return false;
        }
        self.user(user).add(-1);
        self.overall.add(-1);
        true
    }

    fn settle(&mut self, user: usize, cost: i64) {
        self.user(user).add(1 - cost);
        self.overall.add(1 - cost);
    }

    fn assign(&mut self, user: usize, plan: usize) {
        self.user(user);
        self.plans.insert(user, plan);
        let numbers = self.limits.plans[plan];
        self.user(user).change(numbers);
    }

    fn replace(&mut self, limits: Limits) {
        for user in 0..USERS.len() {
            self.user(user);
        }
        self.limits = limits;
        self.overall.change(limits.overall);
        for (user, bucket) in &mut self.users {
            let plan = self.plans.get(user).copied().unwrap_or(0);
            bucket.change(limits.plans[plan]);
        }
    }

    fn advance(&mut self, seconds: i64) {
        let refill = |bucket: &mut Bucket| bucket.add(bucket.numbers.refill * seconds);
        refill(&mut self.overall);
        self.users.values_mut().for_each(refill);
    }
}

/// One engine, and the requests that are in flight through it.
struct Run {
    engine: Engine,
    clock: ManualClock,
    tickets: Vec<(usize, Ticket)>,
}

impl Run {
    fn new(limits: &Limits, store: Option<&RedisStore>) -> Self {
        let clock = ManualClock::new();
        let mut engine = Engine::builder(parsed(&profile(limits)))
            .clock(Clock::manual(&clock))
            .default_value("plan", PLANS[0]);
        if let Some(store) = store {
            engine = engine.redis(store);
        }
        Self {
            engine: engine.build().unwrap(),
            clock,
            tickets: Vec::new(),
        }
    }

    async fn admit(&mut self, user: usize) -> bool {
        match self.engine.admit(&get("/items/1", USERS[user])).await {
            Ok(ticket) => {
                self.tickets.push((user, ticket));
                true
            }
            Err(AdmitError::Refused(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// A ticket, if there are any.
    fn ticket(&mut self, number: usize) -> Option<(usize, Ticket)> {
        let index = number.checked_rem(self.tickets.len())?;
        Some(self.tickets.swap_remove(index))
    }

    async fn credit(&self, user: usize, id: u8) {
        let id = OpId::new([b'o', id]).unwrap();
        let subject = Subject::user(USERS[user]);
        self.engine.credit("order", &subject, &id).await.unwrap();
    }

    async fn assign(&self, user: usize, plan: usize) {
        let assigned = self.engine.assign("plan", USERS[user], PLANS[plan]);
        assigned.await.unwrap();
    }

    async fn levels(&self) -> Vec<i64> {
        let mut levels = vec![level(&self.engine, "overall", "").await];
        for user in USERS {
            levels.push(level(&self.engine, "lookups", user).await);
        }
        levels
    }
}

async fn against_the_model(limits: Limits, steps: Vec<Step>) {
    let mut model = Model::new(limits);
    let mut run = Run::new(&limits, None);
    for step in steps {
        match step.clone() {
            Step::Admit { user } => assert_eq!(run.admit(user).await, model.admit(user)),
            Step::Settle { ticket, outcome } => {
                if let Some((user, ticket)) = run.ticket(ticket) {
                    let (outcome, cost) = OUTCOMES[outcome];
                    ticket.settle(outcome).await;
                    model.settle(user, cost);
                }
            }
            Step::Drop { ticket } => {
                if let Some((user, ticket)) = run.ticket(ticket) {
                    drop(ticket);
                    model.settle(user, 2);
                }
            }
            Step::Credit { user, id } => {
                run.credit(user, id).await;
                if model.credited.insert((user, id)) {
                    model.user(user).add(CREDIT);
                }
            }
            Step::Assign { user, plan } => {
                run.assign(user, plan).await;
                model.assign(user, plan);
            }
            Step::Replace { limits } => {
                run.engine.replace(parsed(&profile(&limits))).unwrap();
                model.replace(limits);
            }
            Step::Advance { seconds } => {
                run.clock.advance(Duration::from_secs(seconds));
                model.advance(seconds.cast_signed());
            }
        }
        let mut expected = vec![model.overall.level];
        expected.extend((0..USERS.len()).map(|user| model.user(user).level));
        assert_eq!(run.levels().await, expected, "after {step:?}");
    }
}

async fn memory_against_redis(limits: Limits, steps: Vec<Step>, store: &RedisStore) {
    let mut memory = Run::new(&limits, None);
    let mut redis = Run::new(&limits, Some(store));
    while redis.engine.states(&Subject::new()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for step in steps {
        match step.clone() {
            Step::Admit { user } => assert_eq!(memory.admit(user).await, redis.admit(user).await),
            Step::Settle { ticket, outcome } => {
                for run in [&mut memory, &mut redis] {
                    if let Some((_, ticket)) = run.ticket(ticket) {
                        ticket.settle(OUTCOMES[outcome].0).await;
                    }
                }
            }
            Step::Drop { ticket } => {
                for run in [&mut memory, &mut redis] {
                    drop(run.ticket(ticket));
                    run.engine.settled().await;
                }
            }
            Step::Credit { user, id } => {
                memory.credit(user, id).await;
                redis.credit(user, id).await;
            }
            Step::Assign { user, plan } => {
                memory.assign(user, plan).await;
                redis.assign(user, plan).await;
            }
            Step::Replace { .. } => {}
            Step::Advance { seconds } => {
                memory.clock.advance(Duration::from_secs(seconds));
                redis.clock.advance(Duration::from_secs(seconds));
            }
        }
        assert_eq!(
            redis.levels().await,
            memory.levels().await,
            "after {step:?}"
        );
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

proptest! {
    #[test]
    fn the_engine_does_what_the_model_does(
        limits in limits(),
        steps in prop::collection::vec(step(true), 1..60),
    ) {
        runtime().block_on(against_the_model(limits, steps));
    }
}

#[test]
fn memory_and_redis_give_the_same_answers() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let runtime = runtime();
    let mut runner = TestRunner::new(Config {
        cases: 24,
        ..Config::default()
    });
    let case = std::sync::atomic::AtomicU32::new(0);
    let steps = prop::collection::vec(step(false), 1..40);
    let outcome = runner.run(&(limits(), steps), |(limits, steps)| {
        let case = case.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let store = RedisStore::builder()
            .address(server.addr().to_string())
            .prefix(format!("case{case}"))
            .timeout(balde::REDIS_TIMEOUT_MAX);
        runtime.block_on(async {
            let store = store.build().unwrap();
            memory_against_redis(limits, steps, &store).await;
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
