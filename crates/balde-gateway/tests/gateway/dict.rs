//! In front of DICT.

use balde::{Clock, ManualClock};
use serde_json::json;
use tokio::net::TcpListener;

use crate::backend::Backend;
use crate::running::{Running, parse};
use crate::simulated::{
    Dict, MINUTE, PARTICIPANT, PAYER, PSP_POLICY, START_US, USER_POLICY, configuration, exact, key,
    no_key, order,
};

#[tokio::test]
async fn bodies_paths_and_the_host_reach_dict_as_they_are_signed() {
    let backend = Backend::start().await;
    let gateway = Running::start(&configuration(
        backend.address,
        "reconcile_every = '0 ms'",
        "",
    ))
    .await;
    let body = "<?xml version=\"1.0\"?>\n<UpdateEntryRequest  a='1'>\r\n\t<Signature>AbC=</Signature>\
                <Key>+5511987654321</Key><Account><Participant>12345678</Participant></Account>\
                <!-- ação --></UpdateEntryRequest>\n\n";
    let url = gateway.url("/api/v2/entries/%2B5511987654321?x=%20");
    let request = gateway
        .client
        .put(url)
        .header("content-type", "application/xml");
    let response = request.body(body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.text().await.unwrap(), body);
    let received = backend.only();
    assert_eq!(received.body, body);
    assert_eq!(received.parts.uri, "/api/v2/entries/%2B5511987654321?x=%20");
    let headers = received.parts.headers;
    assert_eq!(headers["host"], backend.address.to_string());
    assert!(!headers.contains_key("x-forwarded-for"), "{headers:?}");
    let bucket = gateway.bucket("ENTRIES_UPDATE", None).await;
    assert!(bucket["certain_level"].as_i64() < bucket["level"].as_i64());
}

#[tokio::test]
async fn its_own_429_names_the_policy_in_xml_and_dict_never_sees_the_request() {
    let dict = Dict::start('H').await;
    let gateway = dict.exact_gateway('H').await;
    let mut passed = 0;
    let refused = loop {
        let response = gateway.ask("/cids/files/1").await;
        if response.status() == 429 {
            break response;
        }
        passed += 1;
    };
    assert_eq!(passed, 50);
    assert_eq!(refused.headers()["content-type"], "application/problem+xml");
    assert_eq!(refused.headers()["retry-after"], "6");
    let body = refused.text().await.unwrap();
    for part in [
        "<problem xmlns=\"urn:ietf:rfc:7807\">",
        "/error/RateLimited</type>",
        "<status>429</status>",
        "CIDS_FILES_READ",
    ] {
        assert!(body.contains(part), "{body}");
    }
    assert_eq!(dict.refusals().await, 0);
    // As soon as DICT has a token again, so has the gateway.
    dict.clock.advance(MINUTE / 10);
    assert_ne!(gateway.ask("/cids/files/1").await.status(), 429);
    assert_eq!(gateway.dict_refusals(), 0);
}

#[tokio::test]
async fn a_429_of_dict_is_passed_on_counted_and_empties_the_mirrored_bucket() {
    let dict = Dict::start('A').await;
    let gateway = dict.exact_gateway('A').await;
    dict.set_level("CLAIMS_READ", None, 0).await;
    let passed_on = gateway.ask("/claims/x").await;
    assert_eq!(passed_on.status(), 429);
    let body = passed_on.text().await.unwrap();
    assert!(!body.contains("CLAIMS_READ"), "DICT's own: {body}");
    assert_eq!(gateway.dict_refusals(), 1);
    assert_eq!(gateway.mirrored("CLAIMS_READ", None).await, 0);
    let own = gateway.ask("/claims/x").await;
    assert_eq!(own.status(), 429);
    assert!(own.text().await.unwrap().contains("CLAIMS_READ"));
    assert_eq!(gateway.dict_refusals(), 1);
    // Until DICT's own refill: ten tokens a second.
    dict.clock.advance(MINUTE / 600);
    assert_ne!(gateway.ask("/claims/x").await.status(), 429);
}

#[tokio::test]
async fn one_payers_429_does_not_empty_the_participants_bucket() {
    let dict = Dict::start('A').await;
    let gateway = dict.exact_gateway('A').await;
    dict.set_level(USER_POLICY, Some(PAYER), 0).await;
    assert_eq!(
        gateway.look_up(&key(1), PAYER, &order(1)).await.status(),
        429
    );
    assert_eq!(gateway.mirrored(USER_POLICY, Some(PAYER)).await, 0);
    assert_eq!(gateway.mirrored(PSP_POLICY, None).await, 50_000);
    let other = "22233344400";
    assert_eq!(
        gateway.look_up(&key(1), other, &order(2)).await.status(),
        200
    );
    // Two payers in a row: it is the participant's.
    dict.set_level(PSP_POLICY, None, 0).await;
    assert_eq!(
        gateway.look_up(&key(1), other, &order(3)).await.status(),
        429
    );
    assert_eq!(gateway.mirrored(PSP_POLICY, None).await, 0);
}

#[tokio::test]
async fn lookups_in_flight_count_at_their_highest_price() {
    let dict = Dict::start('A').await;
    let gateway = dict.exact_gateway('A').await;
    dict.put(
        "faults",
        &json!({"operation": "getEntry", "latency_ms": 300}),
    )
    .await;
    // Four lookups that find nothing, at the same time. DICT has six tokens, which the gateway cannot
    // know: the first refusal tells it.
    dict.set_level(USER_POLICY, Some(PAYER), 6).await;
    let asking: Vec<_> = (0..4)
        .map(|number| {
            let (client, address) = (gateway.client.clone(), gateway.address);
            tokio::spawn(async move {
                let key = no_key(number);
                let order = order(100 + number);
                let response =
                    crate::simulated::look_up(&client, address, &key, PAYER, &order).await;
                response.status().as_u16()
            })
        })
        .collect();
    let mut statuses = Vec::new();
    for one in asking {
        statuses.push(one.await.unwrap());
    }
    assert!(statuses.contains(&404), "{statuses:?}");
    // Each lookup was held at twenty, so the level is exactly what four cost.
    let not_found = statuses.iter().filter(|status| **status == 404).count();
    let level = gateway.mirrored(USER_POLICY, Some(PAYER)).await;
    let emptied = statuses.contains(&429);
    assert!(
        emptied || level == 100 - 20 * i64::try_from(not_found).unwrap(),
        "{level}"
    );
    let held = gateway.bucket(USER_POLICY, Some(PAYER)).await["in_flight"].clone();
    assert_eq!(held, 0);
}

#[tokio::test]
async fn an_unknown_outcome_costs_the_highest_price_until_a_reconciliation() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = configuration(silent.local_addr().unwrap(), &exact('A'), "");
    let config = parse(&text.replace("response_timeout = '20 s'", "response_timeout = '300 ms'"));
    let clock = ManualClock::at_us(START_US);
    let gateway = Running::start_with(&config, Clock::manual(&clock)).await;
    assert_eq!(
        gateway.look_up(&key(1), PAYER, &order(1)).await.status(),
        504
    );
    assert_eq!(gateway.mirrored(USER_POLICY, Some(PAYER)).await, 80);
    assert_eq!(gateway.mirrored(PSP_POLICY, None).await, 49_997);
    assert_eq!(gateway.counter("gateway_dict_unknown_outcomes_total"), 1);
    // What was never sent costs nothing.
    drop(silent);
    assert_eq!(
        gateway.look_up(&key(1), PAYER, &order(2)).await.status(),
        502
    );
    assert_eq!(gateway.mirrored(PSP_POLICY, None).await, 49_997);
    // DICT has not seen it: the next reconciliation gives it back.
    let dict = Dict::start('A').await;
    let config = parse(&configuration(dict.address, &exact('A'), ""));
    gateway.gateway.reload(&config).unwrap();
    gateway.gateway.reconcile().await;
    assert_eq!(gateway.mirrored(PSP_POLICY, None).await, 50_000);
    assert_eq!(gateway.bucket(PSP_POLICY, None).await["drift"], -3);
}

#[tokio::test]
async fn payment_orders_give_tokens_back_once() {
    let dict = Dict::start('A').await;
    let gateway = dict
        .gateway(&exact('A'), "order_header = \"x-payment-order\"")
        .await;
    assert_eq!(
        gateway.look_up(&key(1), PAYER, &order(1)).await.status(),
        200
    );
    assert_eq!(gateway.mirrored(USER_POLICY, Some(PAYER)).await, 99);
    let credited = gateway.post_order(PAYER, &order(1)).await;
    assert_eq!(credited["credited"], true, "{credited}");
    assert_eq!(credited["buckets"].as_array().unwrap().len(), 2);
    assert_eq!(gateway.mirrored(USER_POLICY, Some(PAYER)).await, 100);
    let again = gateway.post_order(PAYER, &order(1)).await;
    assert_eq!(
        (&again["credited"], &again["reason"]),
        (&json!(false), &json!("it was credited before"))
    );
    let unknown = gateway.post_order(PAYER, &order(2)).await;
    assert_eq!(unknown["credited"], false);
    // By the header of a route, with the next request.
    for (number, sent) in [(3, None), (4, Some(order(3)))] {
        let mut request = gateway
            .client
            .get(gateway.url(&format!("/api/v2/entries/{}", key(number))))
            .header("PI-RequestingParticipant", PARTICIPANT)
            .header("PI-PayerId", PAYER)
            .header("PI-EndToEndId", order(number));
        if let Some(sent) = sent {
            request = request.header("x-payment-order", sent);
        }
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    assert_eq!(gateway.mirrored(USER_POLICY, Some(PAYER)).await, 99);
    let states = gateway.states(&format!("participant={PARTICIPANT}")).await;
    let duties = &states["duties"];
    assert_eq!(
        (&duties["lookups"], &duties["not_found"]),
        (&json!(3), &json!(0))
    );
    assert_eq!(duties["orders"], 3);
}

#[tokio::test]
async fn an_order_reported_after_a_reconciliation_does_not_count_twice() {
    let dict = Dict::start('H').await;
    let gateway = dict.exact_gateway('H').await;
    dict.set_level(PSP_POLICY, None, 10).await;
    gateway.gateway.reconcile().await;
    let look_up = async |number: usize| {
        // A whole token is refilled.
        dict.clock.advance(MINUTE / 2);
        let response = gateway.look_up(&key(1), PAYER, &order(number)).await;
        assert_eq!(response.status(), 200);
    };
    let report = async |number: usize| {
        let credited = gateway.post_order(PAYER, &order(number)).await;
        assert_eq!(credited["credited"], true, "{credited}");
        let buckets = credited["buckets"].as_array().unwrap().clone();
        let names = buckets
            .iter()
            .map(|one| one["policy"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let dict_has_more =
        async || dict.level(PSP_POLICY, None).await - gateway.mirrored(PSP_POLICY, None).await;
    // DICT has given the token back before the reconciliation, and the gateway hears of it after.
    look_up(1).await;
    dict.receive_order(PAYER, &order(1)).await;
    gateway.gateway.reconcile().await;
    assert_eq!(dict_has_more().await, 0);
    assert_eq!(report(1).await, [USER_POLICY]);
    assert_eq!(dict_has_more().await, 0);
    // DICT gives it back after the reconciliation: the next one brings it.
    look_up(2).await;
    gateway.gateway.reconcile().await;
    dict.receive_order(PAYER, &order(2)).await;
    assert_eq!(report(2).await, [USER_POLICY]);
    assert_eq!(dict_has_more().await, 1);
    gateway.gateway.reconcile().await;
    assert_eq!(dict_has_more().await, 0);
    // Without a reconciliation in between, the order gives it back at once.
    look_up(3).await;
    dict.receive_order(PAYER, &order(3)).await;
    assert_eq!(report(3).await.len(), 2);
    assert_eq!(dict_has_more().await, 0);
    assert_eq!(
        gateway.mirrored(USER_POLICY, Some(PAYER)).await,
        dict.level(USER_POLICY, Some(PAYER)).await
    );
}

#[tokio::test]
async fn what_others_use_is_withheld_shown_and_given_back() {
    let dict = Dict::start('F').await;
    let of_dict = "refill = \"profile\"\ncategory = \"F\"\nreconcile_every = '1 min'";
    let gateway = dict.gateway(of_dict, "").await;
    gateway.gateway.reconcile().await;
    let shown = async || {
        let bucket = gateway.bucket("CLAIMS_LIST_WITH_ROLE", None).await;
        ["level", "certain_level", "withheld_for_others", "drift"]
            .map(|name| bucket[name].as_i64().unwrap())
    };
    assert_eq!(shown().await, [200, 200, 0, 0]);
    // Somebody else uses thirty tokens of two hundred. DICT refills forty in a minute.
    for minute in 1..=3 {
        dict.clock.advance(MINUTE);
        dict.set_level("CLAIMS_LIST_WITH_ROLE", None, 170).await;
        gateway.gateway.reconcile().await;
        assert_eq!(shown().await, [170, 137, 33, 30], "{minute}");
        let metrics = gateway.metrics();
        let line = "gateway_dict_withheld_tokens{participant=\"12345678\",policy=\"CLAIMS_LIST_WITH_ROLE\"} 33";
        assert!(metrics.contains(line), "{metrics}");
    }
    // It has gone: the reserve stays for five minutes after its last use.
    for minute in 1..=5 {
        dict.clock.advance(MINUTE);
        gateway.gateway.reconcile().await;
        let for_others = if minute < 5 { 33 } else { 0 };
        assert_eq!(
            shown().await,
            [200, 200 - for_others, for_others, 0],
            "{minute}"
        );
    }
}

#[tokio::test]
async fn a_payer_that_dict_refuses_again_and_again_waits_longer_each_time() {
    let dict = Dict::start('A').await;
    let gateway = dict.exact_gateway('A').await;
    let look_up = async |number: usize| {
        let response = gateway.look_up(&key(1), PAYER, &order(number)).await;
        response.status().as_u16()
    };
    // Somebody else takes every token that DICT refills, one each thirty seconds.
    let mut refused_after = Vec::new();
    for half_minute in 0..32 {
        dict.set_level(USER_POLICY, Some(PAYER), 0).await;
        let before = gateway.dict_refusals();
        assert_eq!(look_up(half_minute).await, 429);
        if gateway.dict_refusals() > before {
            refused_after.push(half_minute);
        }
        dict.clock.advance(MINUTE / 2);
    }
    assert_eq!(refused_after, [0, 1, 3, 6, 11, 20]);
    // It ends. After one success, the next refusal is again the first.
    dict.set_level(USER_POLICY, Some(PAYER), 100).await;
    while look_up(100).await != 200 {
        dict.clock.advance(MINUTE / 2);
    }
    dict.clock.advance(MINUTE / 2);
    dict.set_level(USER_POLICY, Some(PAYER), 0).await;
    let before = gateway.dict_refusals();
    assert_eq!(look_up(101).await, 429);
    assert_eq!(gateway.dict_refusals(), before + 1);
    dict.clock.advance(MINUTE / 2);
    assert_eq!(look_up(102).await, 200);
    // The participant's bucket is not concerned.
    let own = gateway.mirrored(PSP_POLICY, None).await;
    assert_eq!(own, dict.level(PSP_POLICY, None).await);
}

#[tokio::test]
async fn categories_limits_and_levels_of_dict_are_applied_live() {
    let dict = Dict::start('F').await;
    let gateway = dict
        .gateway("refill = \"profile\"\nreconcile_every = '0 s'", "")
        .await;
    // The smallest category until DICT says otherwise.
    assert_eq!(gateway.bucket(PSP_POLICY, None).await["capacity"], 50);
    gateway.gateway.reconcile().await;
    let states = gateway.states(&format!("participant={PARTICIPANT}")).await;
    assert_eq!(states["category"], "F");
    assert_eq!(gateway.bucket(PSP_POLICY, None).await["capacity"], 500);
    assert_eq!(gateway.mirrored(PSP_POLICY, None).await, 500);
    dict.put(
        "participants",
        &json!({"participant": PARTICIPANT, "category": "E"}),
    )
    .await;
    dict.put(
        "limits",
        &json!({"policy": "KEYS_CHECK", "limit": "35/min burst 40"}),
    )
    .await;
    dict.set_level("CLAIMS_READ", None, -7).await;
    gateway.gateway.reconcile().await;
    assert_eq!(gateway.bucket(PSP_POLICY, None).await["capacity"], 5_000);
    let keys = gateway.bucket("KEYS_CHECK", None).await;
    assert_eq!(
        (&keys["capacity"], &keys["refill_tokens"]),
        (&json!(40), &json!(35))
    );
    assert_eq!(keys["level"], 40);
    let claims = gateway.bucket("CLAIMS_READ", None).await;
    assert_eq!(
        (&claims["level"], &claims["drift"]),
        (&json!(-7), &json!(18_007))
    );
    // Both reconciliations came out of the budget that a monitor uses.
    assert_eq!(dict.level("POLICIES_LIST", None).await, 18);
    assert_eq!(gateway.mirrored("POLICIES_LIST", None).await, 18);
    for policy in ["POLICIES_READ", "POLICIES_LIST"] {
        let own = gateway.mirrored(policy, None).await;
        assert_eq!(own, dict.level(policy, None).await, "{policy}");
    }
    let metrics = gateway.metrics();
    let line = "gateway_dict_drift_tokens{participant=\"12345678\",policy=\"CLAIMS_READ\",direction=\"missing\"} 18007";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn payers_start_as_configured_and_refill_with_time() {
    let dict = Dict::start('A').await;
    for (start, expected) in [("full", 100), ("empty", 0), ("25%", 25)] {
        let of_dict = format!("{}\nuser_start = \"{start}\"", exact('A'));
        let gateway = dict.gateway(&of_dict, "").await;
        let status = gateway.look_up(&key(1), PAYER, &order(1)).await.status();
        assert_eq!(status == 200, expected > 0, "{start}");
        let level = gateway.mirrored(USER_POLICY, Some(PAYER)).await;
        assert_eq!(level, (expected - 1).max(0), "{start}");
        // Another payer, ten minutes later, has twenty tokens more.
        dict.clock.advance(10 * MINUTE);
        let other = "22233344400";
        assert_eq!(
            gateway.look_up(&key(1), other, &order(2)).await.status(),
            200
        );
        let level = gateway.mirrored(USER_POLICY, Some(other)).await;
        assert_eq!(level, (expected + 20).min(100) - 1, "{start}");
    }
}

#[tokio::test]
async fn requests_of_others_and_of_nobody_are_not_forwarded() {
    let backend = Backend::start().await;
    let gateway = Running::start(&configuration(
        backend.address,
        "reconcile_every = '0 ms'",
        "",
    ))
    .await;
    let url = gateway.url("/api/v2/claims/1");
    let other = gateway
        .client
        .get(&url)
        .header("PI-RequestingParticipant", "99999999");
    let other = other.send().await.unwrap();
    assert_eq!(other.status(), 403);
    assert_eq!(other.headers()["content-type"], "application/problem+xml");
    assert_eq!(gateway.client.get(&url).send().await.unwrap().status(), 400);
    assert!(backend.received().is_empty());
    // What is none of DICT's operations does not pass, because nobody would count it.
    assert_eq!(gateway.status("/api/v2/unknown").await, 404);
    assert!(backend.received().is_empty());
}

#[tokio::test]
async fn a_reserve_keeps_a_batch_from_starving_live_payments() {
    let dict = Dict::start('H').await;
    let more = "\n[[class]]\nname = \"live\"\nheader = \"x-class\"\nvalue = \"live\"\n\
                networks = [\"127.0.0.0/8\"]\n[limiting]\n[[limiting.reserve]]\n\
                policy = \"CIDS_EVENTS_LIST\"\nclass = \"live\"\nshare = '20%'\n";
    let gateway = dict.gateway(&exact('H'), more).await;
    let path = format!("/api/v2/cids/events?Participant={PARTICIPANT}&KeyType=CPF");
    let ask = async |class: &str| {
        let request = gateway
            .client
            .get(gateway.url(&path))
            .header("x-class", class);
        request.send().await.unwrap().status().as_u16()
    };
    let mut batch = 0;
    while ask("batch").await == 200 {
        batch += 1;
    }
    assert_eq!(batch, 80);
    let mut live = 0;
    while ask("live").await == 200 {
        live += 1;
    }
    assert_eq!(live, 20);
    assert_eq!(gateway.dict_refusals(), 0);
}

#[tokio::test]
async fn clients_that_list_policies_leave_tokens_for_reconciliations() {
    for (reserve, listed) in [("", 15), ("reconcile_reserve = \"50%\"\n", 10)] {
        let dict = Dict::start('H').await;
        let of_dict = format!("refill = \"profile\"\nreconcile_every = '1 h'\n{reserve}");
        let gateway = dict.gateway(&of_dict, "").await;
        // The first reconciliation, when it starts, must not be between two requests.
        let first = async {
            while gateway.counter(RECONCILED) == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(crate::running::PATIENCE, first)
            .await
            .unwrap();
        dict.clock.advance(10 * MINUTE);
        let mut passed = 0;
        while gateway.ask("/policies/").await.status() == 200 {
            passed += 1;
        }
        assert_eq!(passed, listed, "{reserve}");
        for _ in 0..3 {
            gateway.gateway.reconcile().await;
        }
        assert_eq!(gateway.counter(RECONCILED), 4, "{reserve}");
        assert_eq!(gateway.counter(NOT_RECONCILED), 0, "{reserve}");
        // Single buckets can be read up to the same share.
        let mut read = 0;
        while gateway.ask("/policies/CLAIMS_READ").await.status() == 200 {
            read += 1;
        }
        assert!((90..200).contains(&read), "{read}");
        gateway.gateway.reconcile().await;
        assert_eq!(gateway.counter(RECONCILED), 5, "{reserve}");
        assert_eq!(dict.refusals().await, 0);
    }
}

const RECONCILED: &str = "gateway_dict_reconciliations_total{result=\"ok\"}";
const NOT_RECONCILED: &str = "gateway_dict_reconciliations_total{result=\"failed\"}";
