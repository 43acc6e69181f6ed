//! One suite of stories for every store, with the core as oracle: what a limiter answers in memory
//! it answers in Redis, step by step.
//!
//! `BALDE_SEED` repeats a run.

use std::time::Duration;

use crate::redis_oracle::{Kept, Step};
use crate::redis_server::RedisServer;
use crate::{chance, redis_oracle};
use balde::store::redis::script::Holder;
use balde::{
    Clock, Decision, Hold, Holds, Limit, ManualClock, OnExpiry, OnFailure, OpId, RateLimiter,
    RateLimiterBuilder, Reason, RedisStore, check_all,
};
use balde_core::Command;
use fastrand::Rng;

const START_US: u64 = 1_800_000_000_000_000;
const KEYS: [&str; 3] = ["alice", "b}o{b:!%", "\u{0}\u{7f}é"];
const STEPS: usize = 20_000;

/// Where limiters are made.
struct Backend {
    store: Option<RedisStore>,
    clock: ManualClock,
}

impl Backend {
    fn limiter(&self, name: &str, limit: impl Into<Limit>) -> RateLimiter {
        self.builder(name, limit.into()).build().unwrap()
    }

    fn holding_limiter(&self, name: &str, limit: Limit) -> RateLimiter {
        let holds = Holds::new().ttl(Duration::from_secs(24 * 3_600));
        self.builder(name, limit).holds(holds).build().unwrap()
    }

    fn builder(&self, name: &str, limit: Limit) -> RateLimiterBuilder {
        let builder = RateLimiter::builder()
            .name(name)
            .limit(limit)
            .clock(Clock::manual(&self.clock));
        match &self.store {
            None => builder,
            Some(store) => builder.redis(store, OnFailure::Deny),
        }
    }

    fn at(&self, text: &str) -> RateLimiter {
        self.limiter(text, limit(text))
    }

    fn wait(&self, duration: Duration) {
        self.clock.advance(duration);
    }
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// Runs a scenario in memory and in Redis.
async fn on_both_stores(scenario: impl AsyncFn(&Backend)) {
    let backend = |store| Backend {
        store,
        clock: ManualClock::at_us(START_US),
    };
    scenario(&backend(None)).await;
    let Some(server) = RedisServer::start() else {
        return;
    };
    // A loaded machine must not fail these scenarios.
    let builder = RedisStore::builder().address(server.url());
    let store = builder.timeout(Duration::from_millis(100)).build().unwrap();
    scenario(&backend(Some(store))).await;
}

/// A hold that is not settled, and its bucket.
type Unsettled = (usize, u64, Hold);

async fn run(
    limiter: &RateLimiter,
    bucket: usize,
    command: Command,
    unsettled: &mut Vec<Unsettled>,
) -> Decision {
    let key = KEYS[bucket];
    match command {
        Command::TakeIf { n, needed } => {
            let request = limiter.request_n(key, n).needing(needed);
            check_all(&[request]).await.parts()[0]
        }
        Command::Hold { n, needed } => {
            let request = limiter.request_n(key, n).needing(needed);
            match Hold::take(&[request]).await {
                Ok(hold) => {
                    let decision = *hold.decisions().next().unwrap();
                    unsettled.push((bucket, n, hold));
                    decision
                }
                Err(refused) => refused.parts()[0],
            }
        }
        Command::Settle { held, price } => {
            let is_meant = |(of, n, _): &Unsettled| *of == bucket && *n == held;
            let at = unsettled.iter().position(is_meant).unwrap();
            unsettled.remove(at).2.settle(price).await[0]
        }
        Command::Peek => limiter.peek(key).await.unwrap(),
        Command::Take { n } => limiter.check_n(key, n).await,
        Command::TakeUpTo { n } => limiter.take_up_to(key, n).await,
        Command::Charge { n } => limiter.charge(key, n).await.unwrap(),
        Command::Credit { n } => limiter.credit(key, n).await.unwrap(),
        Command::SetLevel { level } => limiter.set_level(key, level).await.unwrap(),
    }
}

fn assert_same(decision: &Decision, expected: &balde_core::Decision, context: &str) {
    assert!(!decision.is_fallback(), "{context}: {decision:?}");
    let found = (
        decision.is_allowed(),
        decision.held(),
        decision.level_before(),
        decision.level(),
        decision.moved(),
        decision.wait(),
        decision.full_after(),
    );
    let wanted = (
        expected.is_allowed(),
        expected.held(),
        expected.level_before(),
        expected.level(),
        expected.moved(),
        expected.wait(),
        expected.full_after(),
    );
    assert_eq!(found, wanted, "{context}");
}

#[tokio::test]
async fn a_bucket_gives_refuses_promises_and_keeps_its_promise() {
    on_both_stores(async |backend| {
        let limiter = backend.at("10/s burst 20");
        let first = limiter.check_n("alice", 20).await;
        assert!(first.is_allowed());
        assert_eq!((first.remaining(), first.reason()), (0, Reason::Granted));

        let refused = limiter.check("alice").await;
        assert_eq!(refused.reason(), Reason::OverLimit);
        assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
        backend.wait(Duration::from_micros(99_999));
        assert!(!limiter.check("alice").await.is_allowed());
        backend.wait(Duration::from_micros(1));
        assert!(limiter.check("alice").await.is_allowed());

        assert_eq!(limiter.check("bob").await.remaining(), 19);
        let never = limiter.check_n("bob", 21).await;
        assert_eq!(never.reason(), Reason::OverCapacity);
        assert_eq!(limiter.check("").await.retry_after(), None);
        assert!(limiter.peek([0; 5_000]).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn windows_empty_starts_and_debts_are_the_same_everywhere() {
    on_both_stores(async |backend| {
        let window = backend.at("3/min window");
        assert_eq!(window.take_up_to("k", 9).await.moved(), 3);
        backend.wait(Duration::from_secs(59));
        assert!(!window.check("k").await.is_allowed());
        backend.wait(Duration::from_secs(1));
        assert_eq!(window.check("k").await.remaining(), 2);

        let empty = backend.at("1/s burst 5 empty");
        assert!(!empty.check("k").await.is_allowed());
        backend.wait(Duration::from_secs(2));
        assert_eq!(empty.check("k").await.remaining(), 1);

        let debt = backend.at("10/s burst 10 debt 30");
        assert_eq!(debt.charge("k", 25).await.unwrap().level(), -15);
        assert_eq!(debt.charge("k", 999).await.unwrap().level(), -30);
        assert_eq!(debt.credit("k", 7).await.unwrap().level(), -23);
        assert_eq!(debt.check("k").await.remaining(), 0);
        assert_eq!(debt.set_level("k", 4).await.unwrap().level(), 4);
        assert_eq!(debt.peek("k").await.unwrap().level(), 4);
    })
    .await;
}

#[tokio::test]
async fn an_operation_with_an_id_happens_once() {
    on_both_stores(async |backend| {
        let limiter = backend.at("10/s burst 100");
        let id = OpId::new("request 7}{!").unwrap();
        let first = limiter.charge_once("alice", 19, &id).await.unwrap();
        let again = limiter.charge_once("alice", 50, &id).await.unwrap();
        assert_eq!((first.moved(), again.moved()), (19, 19));
        assert_eq!(again.level(), 81);
        assert_eq!(limiter.peek("alice").await.unwrap().level(), 81);

        // Another kind, another key and another id are other operations.
        limiter.credit_once("alice", 9, &id).await.unwrap();
        limiter.credit_once("alice", 9, &id).await.unwrap();
        assert_eq!(limiter.peek("alice").await.unwrap().level(), 90);
        limiter.charge_once("bob", 1, &id).await.unwrap();
        let other = OpId::random();
        limiter.charge_once("alice", 1, &other).await.unwrap();
        assert_eq!(limiter.peek("bob").await.unwrap().level(), 99);
        assert_eq!(limiter.peek("alice").await.unwrap().level(), 89);

        // Without an id each is one of its own.
        limiter.charge("alice", 1).await.unwrap();
        limiter.charge("alice", 1).await.unwrap();
        assert_eq!(limiter.peek("alice").await.unwrap().level(), 87);
    })
    .await;
}

#[tokio::test]
async fn a_changed_limit_keeps_what_is_missing() {
    on_both_stores(async |backend| {
        let limiter = backend.at("10/s burst 100");
        limiter.check_n("alice", 30).await;
        limiter.set_limit("20/s burst 50").unwrap();
        assert_eq!(limiter.limit().capacity(), 50);
        assert_eq!(limiter.peek("alice").await.unwrap().level(), 20);
        // From when it is next taken from it fills at the new rate, wherever it is.
        assert_eq!(limiter.check("alice").await.remaining(), 19);
        backend.wait(Duration::from_millis(500));
        assert_eq!(limiter.check("alice").await.remaining(), 28);
    })
    .await;
}

#[tokio::test]
async fn several_buckets_all_give_or_none_does() {
    on_both_stores(async |backend| {
        let user = backend.at("100/min");
        let overall = backend.at("2/s burst 5");
        let requests = [
            user.request("alice"),
            overall.request_n("all", 2),
            overall.request_n("all", 2),
        ];
        let granted = check_all(&requests).await;
        assert!(granted.is_allowed());
        let levels: Vec<_> = granted.parts().iter().map(Decision::level).collect();
        assert_eq!(levels, [99, 3, 1]);

        let refused = check_all(&requests).await;
        assert_eq!(refused.refused_index(), Some(1));
        assert_eq!(refused.refused_by(), Some("2/s burst 5"));
        // The bucket has to give four in all, and has one.
        assert_eq!(refused.retry_after(), Some(Duration::from_millis(1_500)));
        assert_eq!(refused.parts()[0].level(), 99);
        assert_eq!(refused.parts()[0].moved(), 0);
        assert_eq!(user.peek("alice").await.unwrap().level(), 99);
        assert_eq!(overall.peek("all").await.unwrap().level(), 1);

        // The first of two takes would have passed, and says how the bucket stands untouched.
        backend.wait(Duration::from_millis(500));
        let refused = check_all(&requests).await;
        let levels: Vec<_> = refused.parts().iter().map(Decision::level).collect();
        assert_eq!((refused.refused_index(), levels), (Some(2), vec![99, 2, 2]));
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
        backend.wait(Duration::from_micros(999_999));
        assert!(!check_all(&requests).await.is_allowed());
        backend.wait(Duration::from_micros(1));
        assert!(check_all(&requests).await.is_allowed());

        let bad = [user.request("alice"), overall.request("")];
        let refused = check_all(&bad).await;
        assert!(matches!(refused.reason(), Reason::BadKey(_)));
        assert_eq!(user.peek("alice").await.unwrap().level(), 99);
    })
    .await;
}

#[tokio::test]
async fn whatever_is_asked_the_answers_are_the_cores() {
    let seed = std::env::var("BALDE_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("BALDE_SEED={seed}");
    on_both_stores(async |backend| {
        let mut random = Rng::with_seed(seed);
        for round in 0..STEPS / 40 {
            let mut limit = chance::limit(&mut random);
            let limiter = backend.holding_limiter(&format!("round {round}"), limit);
            let mut kept: [Kept; KEYS.len()] = Default::default();
            let mut unsettled = Vec::new();
            // In memory holds do not expire, and in Redis not within a round.
            let holder = Holder {
                id: [1; 8],
                ttl_us: 24 * 3_600_000_000,
                on_expiry: OnExpiry::Charge,
            };
            for step in 0..40 {
                if random.u8(..12) == 0 {
                    let other = chance::another_limit(&mut random, &limit);
                    limiter.set_limit(other).unwrap();
                    // Memory converts all buckets now, the script each when it is next touched; only
                    // where nothing happened in between are the two one.
                    for (bucket, key) in KEYS.into_iter().enumerate() {
                        let step = Step {
                            bucket,
                            limit: other,
                            command: Command::Take { n: 0 },
                            holder: None,
                        };
                        redis_oracle::decide(&mut kept, &[step], backend.clock.now_us());
                        limiter.check_n(key, 0).await;
                    }
                    limit = other;
                }
                let mut bucket = random.usize(..KEYS.len());
                let mut command = chance::command(&mut random, &limit);
                if let Command::Hold { n, .. } = &mut command {
                    // The sum must stay below the largest number that is counted.
                    *n = (*n).min(1 << 44);
                }
                if let Command::Settle { price, .. } = command {
                    let hold: Option<&Unsettled> = random.choice(&unsettled);
                    command = Command::Charge { n: price };
                    if let Some((of, held, _)) = hold {
                        bucket = *of;
                        command = Command::Settle { held: *held, price };
                    }
                }
                let now_us = backend.clock.now_us();
                let steps = [Step {
                    bucket,
                    limit,
                    command,
                    holder: Some(holder),
                }];
                let expected = redis_oracle::decide(&mut kept, &steps, now_us)[0];
                let found = run(&limiter, bucket, command, &mut unsettled).await;
                let context =
                    format!("seed {seed}, round {round}, step {step}: {command:?} {limit}");
                assert_same(&found, &expected, &context);
                let next_us = chance::moment(&mut random, now_us, Some(&expected));
                // No more than half an hour at once, so that no round runs out of time.
                backend
                    .clock
                    .set_us(next_us.min(now_us.saturating_add(1_800_000_000)));
            }
        }
    })
    .await;
}

/// Under a clock that stands still, every token is granted once, so what remains counts down: each number
/// appears once among all tasks, and in the answers of one task it only falls.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn remaining_of_concurrent_checks_counts_down_once_each() {
    const CAPACITY: u64 = 1_200;
    on_both_stores(async |backend| {
        for text in ["1200/h", "1200/h window"] {
            let limiter = backend.at(text);
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let limiter = limiter.clone();
                    tokio::spawn(async move {
                        let mut granted = Vec::new();
                        for _ in 0..200 {
                            let decision = limiter.check("everyone").await;
                            assert!(!decision.is_fallback(), "{decision:?}");
                            if decision.is_allowed() {
                                granted.push(decision.remaining());
                            } else {
                                assert_eq!(decision.remaining(), 0);
                            }
                        }
                        granted
                    })
                })
                .collect();
            let mut all = Vec::new();
            for task in tasks {
                let granted = task.await.unwrap();
                assert!(granted.is_sorted_by(|a, b| a > b), "{text}: {granted:?}");
                all.extend(granted);
            }
            all.sort_unstable();
            assert_eq!(all, (0..CAPACITY).collect::<Vec<_>>(), "{text}");
        }
    })
    .await;
}
