//! Two gateways over one Redis.

use std::sync::Arc;

use balde::Clock;
use serde_json::json;

use crate::promise::requests;
use crate::redis_server::RedisServer;
use crate::running::{PATIENCE, Running, parse};
use crate::simulated::{
    Dict, PARTICIPANT, PAYER, PSP_POLICY, USER_POLICY, configuration, key, look_up, no_key, order,
};

async fn two_gateways(dict: &Dict, redis: &RedisServer, of_dict: &str) -> [Arc<Running>; 2] {
    two_gateways_at(dict, redis, of_dict, "").await
}

async fn two_gateways_at(
    dict: &Dict,
    redis: &RedisServer,
    of_dict: &str,
    of_redis: &str,
) -> [Arc<Running>; 2] {
    let more = format!(
        "[limiting]\nstorage = \"redis\"\n[redis]\naddress = \"{}\"\ntimeout = '100 ms'\n{of_redis}",
        redis.addr()
    );
    let regularly = if of_dict.contains("reconcile_every") {
        ""
    } else {
        "reconcile_every = '0 ms'\n"
    };
    let of_dict = format!("refill = \"profile\"\n{regularly}{of_dict}");
    let config = parse(&configuration(dict.address, &of_dict, &more));
    let clock = Clock::manual(&dict.clock);
    [
        Arc::new(Running::start_with(&config, clock.clone()).await),
        Arc::new(Running::start_with(&config, clock).await),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_over_one_redis_keep_the_promise() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = Dict::start_in_real_time('F').await;
    let gateways = two_gateways(&dict, &redis, "category = \"F\"").await;
    let each = requests() / 64;
    let mut callers = Vec::new();
    for caller in 0..8_usize {
        let gateway = Arc::clone(&gateways[caller % 2]);
        callers.push(tokio::spawn(async move {
            let mut refused = 0;
            for number in 0..each {
                let payer = format!("111222333{:02}", number % 10);
                let key = if number % 5 == 0 {
                    no_key(number)
                } else {
                    key(1 + number % 20)
                };
                let order = order(caller * 10_000 + number);
                let response =
                    look_up(&gateway.client, gateway.address, &key, &payer, &order).await;
                refused += usize::from(response.status() == 429);
            }
            refused
        }));
    }
    let mut refused = 0;
    for caller in callers {
        refused += caller.await.unwrap();
    }
    println!(
        "{} requests of two gateways, {refused} refused by them",
        8 * each
    );
    assert!(refused > 0, "the buckets ran dry");
    assert_eq!(dict.refusals().await, 0, "and DICT refused nothing");
    // Both see the same buckets, which refill from one reading to the next, and are never above
    // DICT's.
    for policy in [PSP_POLICY, USER_POLICY] {
        let payer = (policy == USER_POLICY).then_some("11122233301");
        let certain = async |gateway: &Running| {
            let bucket = gateway.bucket(policy, payer).await;
            bucket["certain_level"].as_i64().unwrap()
        };
        let levels = [
            certain(&gateways[0]).await,
            certain(&gateways[1]).await,
            dict.level(policy, payer).await,
        ];
        assert!(levels.is_sorted(), "{policy}: {levels:?}");
    }
}

/// Lookups of keys that do not exist, by eight callers and a payer each: the participant's bucket runs
/// dry. Returns the statuses.
async fn storm(gateways: &[Arc<Running>; 2], first: usize, count: usize) -> Vec<u16> {
    let callers = (0..8_usize).map(|caller| {
        let gateway = Arc::clone(&gateways[caller % 2]);
        tokio::spawn(async move {
            let mut statuses = Vec::new();
            for number in (first + caller..first + count).step_by(8) {
                statuses.push(look_up_nobody(&gateway, number).await);
            }
            statuses
        })
    });
    let mut statuses = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        statuses.extend(caller.await.unwrap());
    }
    statuses
}

async fn look_up_nobody(gateway: &Running, number: usize) -> u16 {
    let payer = format!("{:011}", 10_000_000_000 + number);
    let (key, order) = (no_key(number), order(number));
    let response = gateway.look_up(&key, &payer, &order).await;
    response.status().as_u16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciliation_allows_for_the_calls_of_other_gateways() {
    // Three tokens each, within a tenth of the capacity.
    const IN_FLIGHT: usize = 16;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = Dict::start_in_real_time('F').await;
    let gateways = two_gateways(&dict, &redis, "category = \"F\"").await;
    // Somebody else has spent 400 tokens, and one gateway has calls in flight, whose price DICT has
    // not counted yet.
    dict.set_level(PSP_POLICY, None, 100).await;
    let fault = json!({"operation": "getEntry", "latency_ms": 1_000});
    dict.put("faults", &fault).await;
    let calls: Vec<_> = (0..IN_FLIGHT)
        .map(|number| {
            let gateway = Arc::clone(&gateways[1]);
            tokio::spawn(async move { look_up_nobody(&gateway, number).await })
        })
        .collect();
    let counted = async {
        // A few tokens are refilled meanwhile.
        while dict.level(PSP_POLICY, None).await > 100 - 10 {}
    };
    tokio::time::timeout(PATIENCE, counted).await.unwrap();
    gateways[0].gateway.reconcile().await;
    for call in calls {
        assert_eq!(call.await.unwrap(), 404);
    }
    dict.client
        .delete(format!("http://{}/sim/faults", dict.address))
        .send()
        .await
        .unwrap();
    let own = gateways[0].bucket(PSP_POLICY, None).await["certain_level"].clone();
    let of_dict = dict.level(PSP_POLICY, None).await;
    assert!(own.as_i64().unwrap() <= of_dict, "{own} of {of_dict}");
    let statuses = storm(&gateways, 1_000, 80).await;
    assert!(statuses.contains(&429), "the bucket runs dry: {statuses:?}");
    assert_eq!(dict.refusals().await, 0);
}

/// Lookups until every caller was refused; time stands still. Returns what is left of DICT's bucket.
async fn exhausted(storage: &str, redis: &RedisServer, of_two: bool) -> i64 {
    let dict = Dict::start('F').await;
    let prefix = format!("prefix = \"{storage}\"\n");
    let [one, other] = two_gateways_at(&dict, redis, "category = \"F\"", &prefix).await;
    let other = if of_two { other } else { Arc::clone(&one) };
    let statuses = storm(&[one, other], 0, 400).await;
    assert!(statuses.contains(&429), "the bucket runs dry: {statuses:?}");
    assert_eq!(dict.refusals().await, 0, "and DICT refused nothing");
    dict.level(PSP_POLICY, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_get_as_much_out_of_a_bucket_as_one() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    // Of 500 tokens, each of which one of both can use.
    let left_by_one = exhausted("one", &redis, false).await;
    let left_by_two = exhausted("two", &redis, true).await;
    println!("one leaves {left_by_one} of 500 tokens, two leave {left_by_two}");
    assert!((500 - left_by_two) * 100 >= (500 - left_by_one) * 98);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_sees_what_the_calls_of_another_hold() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = Dict::start('F').await;
    let gateways = two_gateways(&dict, &redis, "category = \"F\"").await;
    let fault = json!({"operation": "getEntry", "latency_ms": 60_000});
    dict.put("faults", &fault).await;
    // 500 tokens are enough for 166 lookups at three tokens each, which one gateway has in flight, and
    // two are left.
    dict.set_level(PSP_POLICY, None, 500).await;
    let calls: Vec<_> = (0..166)
        .map(|number| {
            let gateway = Arc::clone(&gateways[0]);
            tokio::spawn(async move { look_up_nobody(&gateway, number).await })
        })
        .collect();
    let held = async {
        while gateways[1].bucket(PSP_POLICY, None).await["in_flight"] != 498 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap();
    // A lookup needs one token, and holds three.
    let gateway = Arc::clone(&gateways[1]);
    let last = tokio::spawn(async move { look_up_nobody(&gateway, 1_000).await });
    let held = async {
        while gateways[0].bucket(PSP_POLICY, None).await["in_flight"] != 501 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap();
    assert_eq!(look_up_nobody(&gateways[1], 1_001).await, 429);
    assert_eq!(look_up_nobody(&gateways[0], 1_002).await, 429);
    for call in calls {
        call.abort();
    }
    last.abort();
    assert_eq!(dict.refusals().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_beside_another_spender_keep_the_promise_after_a_reconciliation() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = Arc::new(Dict::start_in_real_time('F').await);
    let gateways = two_gateways(&dict, &redis, "category = \"F\"").await;
    let spending = dict.spend(|_| key(1), |number| number % 20 == 5);
    storm(&gateways, 0, 160).await;
    spending.end().await;
    let by_then = dict.refusals().await;
    println!("beside the other spender, DICT refused {by_then}");
    // It is gone. One of the two reconciles, for both.
    dict.set_level(PSP_POLICY, None, 200).await;
    gateways[0].gateway.reconcile().await;
    let statuses = storm(&gateways, 1_000, 160).await;
    assert!(statuses.contains(&404), "{statuses:?}");
    assert!(statuses.contains(&429), "the bucket runs dry: {statuses:?}");
    assert_eq!(dict.refusals().await, by_then, "DICT refused nothing more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_beside_another_spender_are_seldom_refused() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = Arc::new(Dict::start_in_real_time('F').await);
    let of_dict = "category = \"F\"\nreconcile_every = '5 s'";
    let gateways = two_gateways(&dict, &redis, of_dict).await;
    for gateway in &gateways {
        gateway.gateway.reconcile().await;
    }
    // It takes every token, all the time.
    let spending = dict.spend(|_| key(1), |_| false);
    let count = requests() / 4;
    let statuses = storm(&gateways, 0, count).await;
    let spent = spending.end().await;
    let refused = gateways[0].dict_refusals() + gateways[1].dict_refusals();
    println!("{count} requests beside {spent} of another: DICT refused {refused}");
    assert!(statuses.contains(&429), "the bucket runs dry: {statuses:?}");
    // At first, the calls in flight of both gateways. It weighs less in a long campaign.
    if count >= 25_000 {
        assert!(refused * 1_000 < count as u64, "{refused} of {count}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_under_load_loses_nothing_after_a_reconciliation() {
    // Without persistence: it comes back empty, and so with full buckets.
    let Some(mut redis) = RedisServer::start() else {
        return;
    };
    let dict = Dict::start_in_real_time('F').await;
    let gateways = two_gateways(&dict, &redis, "category = \"F\"").await;
    storm(&gateways, 0, 80).await;
    let (statuses, ()) = tokio::join!(storm(&gateways, 1_000, 400), async {
        tokio::task::yield_now().await;
        redis.kill();
    });
    assert!(statuses.contains(&503), "an outage is denied: {statuses:?}");
    redis.restart();
    let back = async {
        for gateway in &gateways {
            while gateway.ask("/policies/KEYS_CHECK").await.status() == 503 {}
            gateway.gateway.reconcile().await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    let before = dict.refusals().await;
    let statuses = storm(&gateways, 2_000, 400).await;
    assert!(statuses.contains(&429), "the bucket runs dry: {statuses:?}");
    assert_eq!(dict.refusals().await, before, "DICT refused nothing more");
    let own = gateways[0].bucket(PSP_POLICY, None).await["certain_level"].clone();
    let of_dict = dict.level(PSP_POLICY, None).await;
    assert!(own.as_i64().unwrap() <= of_dict, "{own} of {of_dict}");
}

#[tokio::test]
async fn payers_buckets_survive_a_restart_in_redis_and_an_outage_of_redis_is_denied() {
    let Some(mut redis) = RedisServer::start() else {
        return;
    };
    let dict = Dict::start('A').await;
    let [first, second] = two_gateways(&dict, &redis, "category = \"A\"").await;
    for number in 0..4 {
        assert_eq!(
            first
                .look_up(&no_key(number), PAYER, &order(number))
                .await
                .status(),
            404
        );
    }
    assert_eq!(first.mirrored(USER_POLICY, Some(PAYER)).await, 20);
    drop(first);
    assert_eq!(second.mirrored(USER_POLICY, Some(PAYER)).await, 20);
    let states = second.states(&format!("participant={PARTICIPANT}")).await;
    assert_eq!(states["category"], "A");
    redis.kill();
    let response = second.look_up(&key(1), PAYER, &order(10)).await;
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+xml"
    );
    redis.restart();
    let back = async { while second.look_up(&key(1), PAYER, &order(11)).await.status() != 200 {} };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    assert_eq!(dict.refusals().await, 0);
}
