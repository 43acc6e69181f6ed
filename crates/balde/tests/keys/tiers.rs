//! A limit per key: keys in tiers, moved and forgotten while they are used, with the core as oracle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use balde::{
    BuildError, Clock, Decision, Leases, Limit, ManualClock, OnFailure, RateLimiter, RedisStore,
    Share, TierError, check_all, check_all_blocking,
};
use balde_core::{Command, State};
use fastrand::Rng;

use crate::redis_server::RedisServer;

const START_US: u64 = 1_800_000_000_000_000;
/// The limit of keys without a tier, and those of two tiers.
const LIMITS: [&str; 3] = [
    "10/s burst 20",
    "50/s burst 100",
    "1200/min burst 300 stepwise",
];
const NAMES: [Option<&str>; 3] = [None, Some("silver"), Some("gold")];

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn builder(clock: &ManualClock) -> balde::RateLimiterBuilder {
    RateLimiter::builder()
        .limit(LIMITS[0])
        .tier("silver", LIMITS[1])
        .tier("gold", LIMITS[2])
        .clock(Clock::manual(clock))
}

/// What the core says about one key.
#[derive(Clone, Copy)]
struct Model {
    tier: usize,
    state: Option<State>,
}

impl Model {
    const NEW: Self = Self {
        tier: 0,
        state: None,
    };

    fn run(&mut self, limits: &[Limit; 3], command: Command, now_us: u64) -> balde_core::Decision {
        let decision = limits[self.tier].apply(self.state, command, now_us);
        self.state = decision.state();
        decision
    }

    fn move_to(&mut self, limits: &[Limit; 3], tier: usize, now_us: u64) {
        self.state = limits[self.tier].change_to(&limits[tier], self.state, now_us);
        self.tier = tier;
    }
}

fn assert_same(ours: &Decision, right: &balde_core::Decision, story: impl FnOnce() -> String) {
    let ours = (ours.is_allowed(), ours.level(), ours.wait(), ours.limit());
    let right = (
        right.is_allowed(),
        right.level(),
        right.wait(),
        right.limit(),
    );
    assert!(ours == right, "{}: {ours:?} and not {right:?}", story());
}

fn set_tier(limiter: &RateLimiter, key: &[u8], tier: usize) {
    let limiter = limiter.blocking();
    match NAMES[tier] {
        None => limiter.clear_tier(key).unwrap(),
        Some(name) => limiter.set_tier(key, name).unwrap(),
    }
}

#[test]
fn a_million_keys_of_which_one_percent_moves_every_second_for_a_minute() {
    const KEYS: usize = 1_000_000;
    let clock = ManualClock::at_us(START_US);
    let limiter = builder(&clock).keys_max(KEYS).build().unwrap();
    let limits = LIMITS.map(limit);
    let mut rng = Rng::with_seed(13);
    let mut models = vec![Model::NEW; KEYS];
    let name = |key: usize| (key as u64).to_le_bytes();
    for (key, model) in models.iter_mut().enumerate() {
        model.tier = key % 3;
        set_tier(&limiter, &name(key), model.tier);
    }
    let (mut moves, mut takes, mut granted) = (0_u64, 0_u64, 0_u64);
    for _second in 0..60 {
        for step in 0..30_000_u64 {
            // A third of the steps moves a key: ten thousand a second.
            let key = rng.usize(..KEYS);
            let now_us = START_US + clock.now_us() - START_US;
            if step % 3 == 0 {
                let tier = (models[key].tier + rng.usize(1..3)) % 3;
                models[key].move_to(&limits, tier, now_us);
                set_tier(&limiter, &name(key), tier);
                moves += 1;
            } else {
                let n = rng.u64(1..=limits[models[key].tier].capacity());
                let right = models[key].run(&limits, Command::Take { n }, now_us);
                let ours = limiter.blocking().check_n(name(key), n);
                assert_same(&ours, &right, || format!("key {key} takes {n}"));
                takes += 1;
                granted += ours.moved();
            }
            if step % 30 == 0 {
                clock.advance(Duration::from_millis(1));
            }
        }
    }
    for (key, model) in models.iter_mut().enumerate() {
        let right = limits[model.tier].apply(model.state, Command::Peek, clock.now_us());
        let ours = limiter.blocking().peek(name(key)).unwrap();
        assert_same(&ours, &right, || format!("key {key} at the end"));
        assert_eq!(limiter.tier(name(key)), NAMES[model.tier]);
    }
    assert_eq!(limiter.memory_stats().evicted_total, 0);
    println!("{moves} moves, {takes} takes, {granted} tokens, all as the core decides");
}

#[test]
fn keys_that_move_while_threads_take_lose_and_win_nothing() {
    // Nothing is refilled, so what was taken and what is left add up.
    const KEYS: u64 = 64;
    const CAPACITY: u64 = 30_000;
    let clock = ManualClock::at_us(START_US);
    let limiter = RateLimiter::builder()
        .limit("1/day burst 30000")
        .tier("silver", "3/5day burst 30000")
        .tier("gold", "30000/day window")
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    let taken: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (limiter, taken) = (&limiter, &taken);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                for step in 0..100_000 {
                    let key = rng.u64(..KEYS);
                    let (name, other) = (key.to_le_bytes(), ((key + 1) % KEYS).to_le_bytes());
                    let n = rng.u64(1..4);
                    if step % 50 == 0 {
                        let requests = [limiter.request_n(&name, n), limiter.request_n(&other, n)];
                        assert!(check_all_blocking(&requests).is_allowed());
                        taken[usize::try_from((key + 1) % KEYS).unwrap()]
                            .fetch_add(n, Ordering::Relaxed);
                    } else {
                        assert_eq!(limiter.blocking().check_n(name, n).moved(), n);
                    }
                    taken[usize::try_from(key).unwrap()].fetch_add(n, Ordering::Relaxed);
                }
            });
        }
        let limiter = &limiter;
        scope.spawn(move || {
            let mut rng = Rng::with_seed(99);
            for step in 0..60_000 {
                set_tier(limiter, &rng.u64(..KEYS).to_le_bytes(), rng.usize(..3));
                if step % 6_000 == 0 {
                    let faster = ["7/day burst 30000", "3/5day burst 30000"];
                    limiter
                        .set_tier_limit("silver", faster[step / 6_000 % 2])
                        .unwrap();
                }
            }
        });
    });
    for key in 0..KEYS {
        let level = limiter.blocking().peek(key.to_le_bytes()).unwrap().level();
        let taken = taken[usize::try_from(key).unwrap()].load(Ordering::Relaxed);
        assert_eq!(level.unsigned_abs() + taken, CAPACITY, "key {key}");
    }
}

/// Runs a story in memory and in Redis, with the same manual clock as time.
async fn on_both_stores(story: impl AsyncFn(&ManualClock, Option<&RedisStore>)) {
    story(&ManualClock::at_us(START_US), None).await;
    let Some(server) = RedisServer::start() else {
        return;
    };
    let builder = RedisStore::builder().address(server.url());
    let store = builder.timeout(Duration::from_millis(100)).build().unwrap();
    story(&ManualClock::at_us(START_US), Some(&store)).await;
}

fn build(builder: balde::RateLimiterBuilder, store: Option<&RedisStore>) -> RateLimiter {
    match store {
        None => builder.build().unwrap(),
        Some(store) => builder.redis(store, OnFailure::Deny).build().unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_move_by_law_nine_in_both_stores() {
    on_both_stores(async |clock, store| {
        let limiter = build(builder(clock).name("moving"), store);
        let mut limits = LIMITS.map(limit);
        let mut models = [Model::NEW; 5];
        let mut rng = Rng::with_seed(9);
        for step in 0..6_000 {
            let key = rng.usize(..models.len());
            let (name, model) = (format!("key {key}"), &mut models[key]);
            let now_us = clock.now_us();
            let n = rng.u64(0..40);
            let story = || format!("step {step}, {name}, n {n}, {store:?}");
            match rng.u8(..20) {
                0..8 => {
                    let right = model.run(&limits, Command::Take { n }, now_us);
                    assert_same(&limiter.check_n(&name, n).await, &right, story);
                }
                8 => {
                    let right = model.run(&limits, Command::Charge { n }, now_us);
                    assert_same(&limiter.charge(&name, n).await.unwrap(), &right, story);
                }
                9 => {
                    let right = model.run(&limits, Command::Credit { n }, now_us);
                    assert_same(&limiter.credit(&name, n).await.unwrap(), &right, story);
                }
                10 => {
                    let right = limits[model.tier].apply(model.state, Command::Peek, now_us);
                    assert_same(&limiter.peek(&name).await.unwrap(), &right, story);
                }
                11..15 => {
                    let tier = rng.usize(..3);
                    model.move_to(&limits, tier, now_us);
                    match NAMES[tier] {
                        None => limiter.clear_tier(&name).await.unwrap(),
                        Some(tier) => limiter.set_tier(&name, tier).await.unwrap(),
                    }
                    assert_eq!(limiter.tier(&name), NAMES[tier]);
                }
                15 if step % 10 == 0 => {
                    *model = Model::NEW;
                    limiter.forget(&name).await.unwrap();
                }
                16 if step % 10 == 0 => {
                    let text = ["50/s burst 100", "7/s burst 31 stepwise"][step / 10 % 2];
                    let new = limit(text);
                    limiter.set_tier_limit("silver", text).unwrap();
                    assert_eq!(limiter.tier_limit("silver").unwrap(), new);
                    for (key, model) in models.iter_mut().enumerate() {
                        if model.tier == 1 {
                            model.state = limits[1].change_to(&new, model.state, now_us);
                        }
                        // In Redis the next command converts.
                        limiter.check_n(format!("key {key}"), 0).await;
                    }
                    limits[1] = new;
                }
                _ => clock.advance(Duration::from_micros(rng.u64(..700_000))),
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiers_that_a_function_looks_up_are_followed_in_both_stores() {
    on_both_stores(async |clock, store| {
        let plans: Arc<RwLock<[usize; 3]>> = Arc::default();
        let lookup = Arc::clone(&plans);
        let tier_of = move |key: &[u8]| NAMES[lookup.read().unwrap()[usize::from(key[0] - b'0')]];
        let limiter = build(builder(clock).name("looked up").tier_of(tier_of), store);
        let limits = LIMITS.map(limit);
        let mut models = [Model::NEW; 3];
        let mut rng = Rng::with_seed(4);
        for step in 0..3_000 {
            let key = rng.usize(..models.len());
            let name = format!("{key}");
            let now_us = clock.now_us();
            let n = rng.u64(0..40);
            match rng.u8(..12) {
                0..2 => plans.write().unwrap()[key] = rng.usize(..3),
                2 => {
                    let mut model = models[key];
                    let tier = plans.read().unwrap()[key];
                    model.move_to(&limits, tier, now_us);
                    let right = model.run(&limits, Command::Peek, now_us);
                    let ours = limiter.peek(&name).await.unwrap();
                    assert_same(&ours, &right, || format!("step {step}: peek {name}"));
                }
                3 => {
                    let other = (key + 1) % 3;
                    let tiers = *plans.read().unwrap();
                    let mut after = models;
                    let mut are_granted = true;
                    for key in [key, other] {
                        models[key].move_to(&limits, tiers[key], now_us);
                        after[key] = models[key];
                        let take = Command::Take { n };
                        are_granted &= after[key].run(&limits, take, now_us).is_allowed();
                    }
                    if are_granted {
                        models = after;
                    }
                    let other = format!("{other}");
                    let requests = [limiter.request_n(&name, n), limiter.request_n(&other, n)];
                    let ours = check_all(&requests).await;
                    assert_eq!(ours.is_allowed(), are_granted, "step {step}");
                }
                4..9 => {
                    let tier = plans.read().unwrap()[key];
                    models[key].move_to(&limits, tier, now_us);
                    let right = models[key].run(&limits, Command::Take { n }, now_us);
                    let ours = limiter.check_n(&name, n).await;
                    assert_same(&ours, &right, || format!("step {step}: {name} takes {n}"));
                    assert_eq!(limiter.tier(&name), NAMES[tier]);
                }
                _ => clock.advance(Duration::from_micros(rng.u64(..700_000))),
            }
        }
        let error = limiter.set_tier("0", "gold").await;
        assert_eq!(error, Err(TierError::LookedUp));
    })
    .await;
}

#[tokio::test]
async fn mistakes_are_told() {
    let two = RateLimiter::builder().limit("1/s").tier("a", "2/s");
    let twice = two.tier("a", "3/s").build().unwrap_err();
    assert!(matches!(twice, BuildError::TierTwice { .. }), "{twice}");
    let bad = RateLimiter::builder().limit("1/s").tier("a", "2/x").build();
    assert!(matches!(bad.unwrap_err(), BuildError::Limit(_)));
    let many = (0..5_000).fold(RateLimiter::builder().limit("1/s"), |builder, at| {
        builder.tier(format!("tier {at}"), "1/s")
    });
    assert!(matches!(many.build(), Err(BuildError::TooManyTiers { .. })));

    let builder = RateLimiter::builder().limit("1/s").tier("gold", "2/s");
    let limiter = builder.keys_max(2).build().unwrap();
    let unknown = limiter.set_tier("k", "golf").await.unwrap_err();
    assert!(unknown.to_string().contains("\"golf\""), "{unknown}");
    assert!(matches!(
        limiter.set_tier("", "gold").await,
        Err(TierError::BadKey(_))
    ));
    assert!(matches!(
        limiter.set_tier_limit("gold", "?"),
        Err(TierError::Limit(_))
    ));
    limiter.set_tier("a", "gold").await.unwrap();
    limiter.set_tier("b", "gold").await.unwrap();
    assert_eq!(limiter.set_tier("c", "gold").await, Err(TierError::Full));
    limiter.forget("a").await.unwrap();
    limiter.set_tier("c", "gold").await.unwrap();

    // A name that is not a tier's counts as none.
    let lookup = RateLimiter::builder().limit("1/s").tier("gold", "2/s");
    let lookup = lookup.tier_of(|_| Some("silver")).build().unwrap();
    assert_eq!(lookup.check("k").await.limit().capacity(), 1);
    assert_eq!(lookup.tier("k"), None);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_moves_too() {
    let limiter = RateLimiter::builder()
        .limit("1/min burst 10")
        .tier("fast", "10/s burst 10")
        .clock(Clock::tokio())
        .build()
        .unwrap();
    limiter.acquire("k", 10).await.unwrap();
    let start = tokio::time::Instant::now();
    let waits = limiter.acquire("k", 3);
    let moves = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        limiter.set_tier("k", "fast").await.unwrap();
    };
    let (waited, ()) = tokio::join!(waits, moves);
    assert_eq!(waited.unwrap().limit(), &limit("10/s burst 10"));
    // Three tokens at the new rate, less what had been refilled at the old one.
    assert_eq!(start.elapsed().as_millis(), 350);
    let waits = limiter.acquire("k", 10);
    let forgets = async { limiter.forget("k").await.unwrap() };
    let (waited, ()) = tokio::join!(waits, forgets);
    assert_eq!(waited.unwrap().level(), 0);
    assert_eq!(start.elapsed().as_millis(), 350);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_follow_a_key_to_its_tier_and_go_with_it() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let builder = RedisStore::builder().address(server.url());
    let store = builder.timeout(Duration::from_millis(100)).build().unwrap();
    let limiter = RateLimiter::builder()
        .name("leased")
        .limit("1/day burst 1000")
        .tier("gold", "2/day burst 3000")
        .redis(&store, OnFailure::Deny)
        .leases(Leases::new().share(Share::percent(20)))
        .build()
        .unwrap();
    let takes = async |most: u64| {
        let mut granted = 0;
        for _ in 0..most {
            granted += limiter.check("k").await.moved();
        }
        granted
    };
    assert_eq!(takes(500).await, 500);
    limiter.set_tier("k", "gold").await.unwrap();
    assert_eq!(limiter.lease_stats().tokens_out, 0);
    // The deficit is kept, and none of the tokens on lease is lost: 3000 less the 500 taken.
    assert_eq!(limiter.peek("k").await.unwrap().level(), 2_500);
    assert_eq!(takes(500).await, 500);
    limiter.release_leases().await;
    assert_eq!(limiter.peek("k").await.unwrap().level(), 2_000);
    assert_eq!(takes(500).await, 500);
    limiter.forget("k").await.unwrap();
    assert_eq!(limiter.lease_stats().tokens_out, 0);
    assert_eq!(limiter.tier("k"), None);
    let after = limiter.peek("k").await.unwrap();
    assert_eq!((after.level(), after.limit().capacity()), (1_000, 1_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_redis_keeps_the_tiers() {
    let store = RedisStore::new("127.0.0.1:1").unwrap();
    let limiter = RateLimiter::builder()
        .limit("1/h burst 100")
        .tier("gold", "1/h burst 1000")
        .redis(
            &store,
            OnFailure::Local {
                share: Share::percent(10),
            },
        )
        .build()
        .unwrap();
    assert_eq!(limiter.check_n("k", 4).await.level(), 6);
    limiter.set_tier("k", "gold").await.unwrap();
    assert_eq!(limiter.check_n("k", 4).await.level(), 92);
}
