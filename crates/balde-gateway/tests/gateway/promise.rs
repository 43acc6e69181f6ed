//! The promise: DICT never refuses what the gateway forwards, and the gateway refuses nothing that
//! DICT would have admitted by more than the calls in flight.
//!
//! `BALDE_GATEWAY_REQUESTS` sets how many requests the first story sends; by default few enough for
//! an unoptimised build.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use balde::ManualClock;
use parking_lot::Mutex;

use crate::running::Running;
use crate::simulated::{
    Dict, MINUTE, PARTICIPANT, PSP_POLICY, START_US, USER_POLICY, key, no_key, order,
};

/// Callers at a time.
const CALLERS: usize = 16;

fn requests() -> usize {
    let asked = std::env::var("BALDE_GATEWAY_REQUESTS").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(4_000)
}

/// What callers saw.
#[derive(Debug, Default)]
struct Seen {
    statuses: Mutex<HashMap<u16, usize>>,
}

impl Seen {
    fn count(&self, status: u16) {
        *self.statuses.lock().entry(status).or_default() += 1;
    }

    fn of(&self, status: u16) -> usize {
        self.statuses.lock().get(&status).copied().unwrap_or(0)
    }

    fn all(&self) -> usize {
        self.statuses.lock().values().sum()
    }
}

/// One of many kinds of request; the number decides which.
async fn send(gateway: &Running, number: usize, random: &mut fastrand::Rng) -> reqwest::Response {
    let payers = [
        "11122233300",
        "22233344400",
        "33344455500",
        "11222333000181",
    ];
    let payer = payers[random.usize(..payers.len())];
    let lists = format!("Participant={PARTICIPANT}");
    match random.u32(..100) {
        0..45 => {
            let key = key(1 + random.usize(..40));
            gateway.look_up(&key, payer, &order(number)).await
        }
        45..55 => {
            gateway
                .look_up(&no_key(number), payer, &order(number))
                .await
        }
        55..65 => {
            gateway
                .ask(&format!("/entries/{}/statistics", key(1)))
                .await
        }
        65..75 => {
            gateway
                .ask("/claims/8f6d1b1e-0000-4000-8000-000000000000")
                .await
        }
        75..80 => gateway.ask(&format!("/claims/?{lists}")).await,
        80..85 => gateway.ask(&format!("/claims/?{lists}&IsDonor=true")).await,
        85..90 => {
            gateway
                .ask(&format!("/cids/events?{lists}&KeyType=EMAIL"))
                .await
        }
        90..95 => {
            let body = "<CheckKeysRequest><Keys><Key>a@b.br</Key></Keys></CheckKeysRequest>";
            let request = gateway.client.post(gateway.url("/api-np/v2/keys/check"));
            let request = request
                .header("content-type", "application/xml")
                .header("PI-RequestingParticipant", PARTICIPANT);
            request.body(body).send().await.unwrap()
        }
        _ => gateway.ask("/policies/KEYS_CHECK").await,
    }
}

/// Sends requests from many callers while the clocks run on.
async fn storm(gateway: &Arc<Running>, clocks: &[ManualClock], count: usize, seed: u64) -> Seen {
    let seen = Arc::new(Seen::default());
    let next = Arc::new(AtomicUsize::new(0));
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (gateway, seen, next) = (gateway.clone(), seen.clone(), next.clone());
        let clocks = clocks.to_vec();
        callers.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed + caller as u64);
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= count {
                    return;
                }
                // About a minute in a thousand requests, in uneven steps and while calls are in
                // flight. All clocks run at the same pace.
                if random.u32(..10) == 0 {
                    let step = Duration::from_millis(random.u64(..1_200));
                    for clock in &clocks {
                        clock.advance(step);
                    }
                }
                let response = send(&gateway, number, &mut random).await;
                seen.count(response.status().as_u16());
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    Arc::try_unwrap(seen).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dict_never_refuses_what_the_gateway_forwards() {
    let dict = Dict::start('F').await;
    let gateway = dict
        .gateway(
            "refill = \"profile\"\ncategory = \"F\"\nreconcile_seconds = 0",
            "",
        )
        .await;
    let gateway = Arc::new(gateway);
    let seed = 20_261_115;
    let count = requests();
    let seen = storm(&gateway, std::slice::from_ref(&dict.clock), count, seed).await;
    println!("seed {seed}: {count} requests, {:?}", seen.statuses.lock());
    assert_eq!(seen.all(), count);
    assert!(seen.of(429) > count / 20, "buckets ran dry: {seen:?}");
    assert!(seen.of(200) > count / 20, "{seen:?}");
    assert_eq!(gateway.dict_refusals(), 0, "DICT refused nothing");
    assert_eq!(dict.refusals().await, 0);
    // With nothing in flight, both have the same tokens.
    let states = gateway.states(&format!("participant={PARTICIPANT}")).await;
    for bucket in states["policies"].as_array().unwrap() {
        let policy = bucket["policy"].as_str().unwrap();
        assert_eq!(bucket["in_flight"], 0, "{policy}");
        let (own, of_dict) = (
            bucket["level"].as_i64().unwrap(),
            dict.level(policy, None).await,
        );
        assert!(own <= of_dict, "{policy}: {own} of {of_dict}");
        // Only a call in flight may have been counted a moment later here than there.
        let calls = i64::try_from(CALLERS).unwrap();
        assert!(of_dict - own <= calls, "{policy}: {own} of {of_dict}");
    }
}

#[tokio::test]
async fn without_calls_in_flight_the_gateway_refuses_exactly_what_dict_would() {
    let dict = Dict::start('H').await;
    let gateway = dict
        .gateway(
            "refill = \"profile\"\ncategory = \"H\"\nreconcile_seconds = 0",
            "",
        )
        .await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut refused = 0;
    for number in 0..400 {
        if random.u32(..8) == 0 {
            dict.clock
                .advance(Duration::from_millis(random.u64(..4_000)));
        }
        let response = send(&gateway, number, &mut random).await;
        if response.status() != 429 {
            continue;
        }
        refused += 1;
        let body = response.text().await.unwrap();
        let (_, rest) = body.split_once("<detail>").unwrap();
        let (policy, _) = rest.split_once(':').unwrap();
        // The gateway says which bucket is empty, and in DICT it is.
        let is_payers = policy.starts_with(USER_POLICY);
        let mut levels = Vec::new();
        if is_payers {
            for payer in [
                "11122233300",
                "22233344400",
                "33344455500",
                "11222333000181",
            ] {
                levels.push(dict.level(policy, Some(payer)).await);
            }
        } else {
            levels.push(dict.level(policy, None).await);
        }
        assert!(
            levels.iter().any(|level| *level < 1),
            "{policy}: {levels:?}"
        );
    }
    assert!(refused > 20, "{refused}");
    assert_eq!(gateway.dict_refusals(), 0);
}

/// The bucket that a refusal of the gateway names.
async fn refusing_policy(response: reqwest::Response) -> String {
    let body = response.text().await.unwrap();
    let (_, rest) = body.split_once("<detail>").unwrap();
    rest.split_once(':').unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_explain_every_refusal() {
    // As few as this, so that what they hold is less than a bucket.
    const CALLERS: usize = 4;
    const EACH: usize = 250;
    let dict = Arc::new(Dict::start('H').await);
    let gateway = dict
        .gateway(
            "refill = \"profile\"\ncategory = \"H\"\nreconcile_seconds = 0",
            "",
        )
        .await;
    let gateway = Arc::new(gateway);
    let callers = (0..CALLERS).map(|caller| {
        let (dict, gateway) = (dict.clone(), gateway.clone());
        tokio::spawn(async move {
            let mut refused = 0;
            for number in 0..EACH {
                // One payer for each caller: only its own calls draw on the payer's bucket.
                let payer = format!("1112223330{caller}");
                let number = caller * EACH + number;
                let key = match number % 4 {
                    0 => no_key(number),
                    _ => key(1 + number % 40),
                };
                let response = gateway.look_up(&key, &payer, &order(number)).await;
                if response.status() != 429 {
                    continue;
                }
                refused += 1;
                let policy = refusing_policy(response).await;
                let (level, in_flight) = if policy == USER_POLICY {
                    (dict.level(&policy, Some(&payer)).await, 0)
                } else {
                    // Each of the others holds at most the price of a key that is not found.
                    let others = i64::try_from(CALLERS - 1).unwrap() * 3;
                    (dict.level(&policy, None).await, others)
                };
                assert!(level < 1 + in_flight, "{policy}: DICT has {level}");
            }
            refused
        })
    });
    let mut refused = 0;
    for caller in callers.collect::<Vec<_>>() {
        refused += caller.await.unwrap();
    }
    assert!(refused > 100, "{refused}");
    assert_eq!(dict.refusals().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_spender_is_noticed_and_the_refusals_stop() {
    let dict = Arc::new(Dict::start('F').await);
    let gateway = dict
        .gateway(
            "refill = \"profile\"\ncategory = \"F\"\nreconcile_seconds = 3600",
            "",
        )
        .await;
    let gateway = Arc::new(gateway);
    gateway.gateway.reconcile().await;
    let is_over = Arc::new(AtomicBool::new(false));
    // Somebody else spends the same participant's tokens, and knows nothing of the gateway.
    let spending = {
        let (dict, is_over) = (dict.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut number = 0;
            while !is_over.load(Ordering::SeqCst) {
                number += 1;
                let payer = format!("9{:010}", number % 1_000);
                dict.look_up(&key(1), &payer, &order(500_000 + number))
                    .await;
                // Now and then it takes everything at once.
                if number % 1_000 == 20 {
                    dict.set_level(PSP_POLICY, None, 0).await;
                }
            }
            number
        })
    };
    let count = requests() / 4;
    let seen = storm(&gateway, std::slice::from_ref(&dict.clock), count, 99).await;
    is_over.store(true, Ordering::SeqCst);
    let spent = spending.await.unwrap();
    let refused = gateway.dict_refusals();
    println!("{count} requests beside {spent} of another: DICT refused {refused}, {seen:?}");
    let reconciled = gateway.counter("gateway_dict_reconciliations_total{result=\"ok\"}");
    // One when it started, one above.
    assert!(
        refused == 0 || reconciled > 2,
        "refusals lead to reconciliations"
    );
    // What is in flight when a bucket is drained is refused, whatever the gateway does: the share is
    // that of a long campaign.
    if count >= 25_000 {
        let count = u64::try_from(count).unwrap();
        assert!(refused * 1_000 < count, "{refused} of {count}");
    }
    // The other one is gone. After the next reconciliation, DICT refuses nothing any more.
    gateway.gateway.reconcile().await;
    let before = gateway.dict_refusals();
    storm(&gateway, std::slice::from_ref(&dict.clock), count, 123).await;
    assert_eq!(gateway.dict_refusals(), before);
    let own = gateway.mirrored(PSP_POLICY, None).await;
    let of_dict = dict.level(PSP_POLICY, None).await;
    assert!(own <= of_dict, "{own} of {of_dict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_an_unknown_phase_and_a_clock_that_is_off_do_not_matter() {
    for (round, phase) in [2_000_000, 17_300_000, 59_999_999].into_iter().enumerate() {
        // DICT's clock is two seconds and a phase ahead, and it refills in steps.
        let dict = Dict::start_with('F', &[("refill", "stepwise")], START_US + phase).await;
        let own = ManualClock::at_us(START_US);
        let gateway = dict
            .gateway_with("category = \"F\"\nreconcile_seconds = 0", "", &own)
            .await;
        let gateway = Arc::new(gateway);
        let clocks = [dict.clock.clone(), own];
        let count = requests() / 8;
        let seen = storm(&gateway, &clocks, count, 5 + round as u64).await;
        assert!(seen.of(429) > 0, "{seen:?}");
        assert_eq!(gateway.dict_refusals(), 0, "phase {phase}: {seen:?}");
    }
}

#[tokio::test]
async fn an_unknown_refill_leaves_at_most_one_step_unused_per_minute() {
    const MINUTES: u64 = 10;
    for (path, policy) in [
        ("/cids/files/1", "CIDS_FILES_READ"),
        ("/policies/EVENT_LIST", "POLICIES_READ"),
    ] {
        let dict = Dict::start_with('A', &[("refill", "stepwise")], START_US + 23_000_000).await;
        let own = ManualClock::at_us(START_US);
        let gateway = dict
            .gateway_with("category = \"A\"\nreconcile_seconds = 0", "", &own)
            .await;
        let bucket = gateway.bucket(policy, None).await;
        let capacity = bucket["capacity"].as_u64().unwrap();
        let step = bucket["refill_tokens"].as_u64().unwrap();
        let mut granted = 0;
        // As many as it lets through, all the time.
        for _ in 0..MINUTES * 12 {
            while gateway.ask(path).await.status() != 429 {
                granted += 1;
            }
            dict.clock.advance(MINUTE / 12);
            own.advance(MINUTE / 12);
        }
        assert_eq!(gateway.dict_refusals(), 0);
        // What DICT would have granted in the same time.
        let most = capacity + MINUTES * step;
        let unused = most - granted;
        println!("{policy}: {granted} of {most}, {unused} unused in {MINUTES} minutes");
        assert!(unused <= step * 2, "{policy}: {granted} of {most}");
    }
}
