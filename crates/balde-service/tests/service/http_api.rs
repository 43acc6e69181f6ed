//! JSON over HTTP.

use std::time::Duration;

use balde_service::OPENAPI;
use serde_json::{Value, json};

use crate::running::{ADMIN, CHECKER, Running, answer, eventually};

/// Nothing refills while a test runs.
const LIMITS: &str = r#"
[limits.users]
limit = "10/day"
[limits.users.tiers]
gold = "100/day"

[limits.tenants]
limit = "5/day"

[limits.fast]
limit = "20/s burst 1"
"#;

fn bucket(limit: &str, key: &str) -> Value {
    json!({"limit": limit, "key": key})
}

fn tokens(limit: &str, key: &str, tokens: u64) -> Value {
    json!({"limit": limit, "key": key, "tokens": tokens})
}

#[tokio::test]
async fn a_check_takes_tokens_until_there_are_none_and_says_when_there_will_be() {
    let service = Running::start(LIMITS).await;
    let (status, verdict) = service
        .post("/v1/check", &tokens("users", "alice", 9))
        .await;
    assert_eq!(status, 200);
    assert_eq!(verdict["allowed"], true);
    assert_eq!(verdict["reason"], "granted");
    assert_eq!(verdict["remaining"], 1);
    assert_eq!(verdict["capacity"], 10);
    assert_eq!(verdict["retry_after_us"], Value::Null);
    assert!(verdict["full_after_us"].as_u64().unwrap() > 9 * 8_000_000_000);
    // One, if nothing is said.
    service.post("/v1/check", &bucket("users", "alice")).await;
    let (status, verdict) = service.post("/v1/check", &bucket("users", "alice")).await;
    assert_eq!((status, &verdict["allowed"]), (200, &json!(false)));
    assert_eq!(verdict["reason"], "over_limit");
    let retry_us = verdict["retry_after_us"].as_u64().unwrap();
    assert!(
        (8_000_000_000..=8_640_000_000).contains(&retry_us),
        "{retry_us}"
    );
    let (_, verdict) = service.post("/v1/check", &tokens("users", "bob", 11)).await;
    assert_eq!(verdict["reason"], "over_capacity");
    assert_eq!(verdict["retry_after_us"], Value::Null);
    assert_eq!(service.level("users", "bob").await, 10);
    service.stop().await;
}

#[tokio::test]
async fn several_buckets_are_taken_from_or_none() {
    let service = Running::start(LIMITS).await;
    let both = |n: u64| json!({"requests": [tokens("users", "a", n), tokens("tenants", "t", n)]});
    let (_, verdict) = service.post("/v1/check-all", &both(3)).await;
    assert_eq!(verdict["allowed"], true);
    assert_eq!(verdict["buckets"][1]["remaining"], 2);
    let (_, verdict) = service.post("/v1/check-all", &both(3)).await;
    assert_eq!(verdict["allowed"], false);
    assert_eq!(verdict["refused"], 1);
    assert_eq!(service.level("users", "a").await, 7);
    let (status, problem) = service
        .post("/v1/check-all", &json!({"requests": []}))
        .await;
    assert_eq!((status, &problem["code"]), (400, &json!("invalid")));
    service.stop().await;
}

#[tokio::test]
async fn a_hold_is_settled_once_or_expires_as_its_caller_said() {
    let service = Running::start(LIMITS).await;
    let hold = |ttl_ms: u64, if_expired: &str| {
        let requests = [tokens("users", "a", 2), tokens("tenants", "t", 1)];
        json!({"requests": requests, "ttl_ms": ttl_ms, "if_expired": if_expired})
    };
    let (_, held) = service.post("/v1/hold", &hold(60_000, "charge")).await;
    let settle = json!({"hold": held["hold"], "tokens": 5});
    let (status, settled) = service.post("/v1/settle", &settle).await;
    assert_eq!(status, 200);
    assert_eq!(settled["buckets"][0]["level"], 5);
    assert_eq!(settled["buckets"][1]["level"], 0);
    let (status, problem) = service.post("/v1/settle", &settle).await;
    assert_eq!((status, &problem["code"]), (404, &json!("unknown_hold")));
    // Both are refused together: the tenant has no token left.
    let (status, refused) = service.post("/v1/hold", &hold(60_000, "charge")).await;
    assert_eq!((status, &refused["refused"]), (200, &json!(1)));
    service
        .admin("/v1/admin/reset", &bucket("tenants", "t"))
        .await;
    for (if_expired, level) in [("give_back", 5), ("charge", 3)] {
        let (_, held) = service.post("/v1/hold", &hold(50, if_expired)).await;
        assert_eq!(service.level("users", "a").await, 3, "{held}");
        eventually("the hold expires", async || {
            let (status, _) = service
                .post("/v1/settle", &json!({"hold": "0", "tokens": 0}))
                .await;
            assert_eq!(status, 404);
            service.metric("balde_service_open_holds") == Some(0)
        })
        .await;
        assert_eq!(service.level("users", "a").await, level, "{if_expired}");
    }
    service.stop().await;
}

#[tokio::test]
async fn charges_go_into_debt_and_credits_stop_at_the_capacity() {
    let service = Running::start(LIMITS).await;
    let (_, charged) = service.post("/v1/charge", &tokens("users", "a", 15)).await;
    assert_eq!(charged["level"], -5);
    let (_, credited) = service.post("/v1/credit", &tokens("users", "a", 100)).await;
    assert_eq!(credited["level"], 10);
    service.stop().await;
}

#[tokio::test]
async fn requests_wait_for_tokens_in_their_order_and_leave_with_their_callers() {
    let service = Running::start(LIMITS).await;
    let wait = |key: &str, within_ms: u64| json!({"limit": "fast", "key": key, "tokens": 1, "within_ms": within_ms});
    for _ in 0..5 {
        let (status, verdict) = service.post("/v1/wait", &wait("a", 30_000)).await;
        assert_eq!((status, &verdict["allowed"]), (200, &json!(true)));
    }
    let never = json!({"limit": "users", "key": "w", "tokens": 1, "within_ms": 30_000});
    service.post("/v1/check", &tokens("users", "w", 10)).await;
    // It is certain that no token comes in time, so there is no wait.
    let (status, verdict) = service.post("/v1/wait", &never).await;
    assert_eq!((status, &verdict["reason"]), (200, &json!("over_limit")));
    service
        .admin(
            "/v1/admin/set-level",
            &json!({"limit": "fast", "key": "b", "level": -100}),
        )
        .await;
    let abandoned = service.request("/v1/wait").json(&wait("b", 30_000));
    let abandoned = tokio::spawn(abandoned.send());
    let waiting = async || {
        let answered = service
            .client
            .get(format!("http://{}/v1/limits", service.address("http")));
        let (_, state) = answer(answered).await;
        state["limits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["waiting"].as_u64().unwrap())
            .sum::<u64>()
    };
    eventually("it waits", async || waiting().await == 1).await;
    abandoned.abort();
    eventually("it is gone", async || waiting().await == 0).await;
    service.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_makes_a_repetition_free() {
    let service = Running::start(LIMITS).await;
    let send = async |path: &str, key: &str, body: &Value| {
        answer(
            service
                .request(path)
                .header("idempotency-key", key)
                .json(body),
        )
        .await
    };
    let first = send("/v1/check", "one", &tokens("users", "a", 3)).await;
    assert_eq!(
        send("/v1/check", "one", &tokens("users", "a", 3)).await,
        first
    );
    assert_eq!(service.level("users", "a").await, 7);
    let (status, problem) = send("/v1/check", "one", &tokens("users", "a", 4)).await;
    assert_eq!(
        (status, &problem["code"]),
        (409, &json!("idempotency_key_reused"))
    );
    for _ in 0..2 {
        send("/v1/charge", "\"two\"", &tokens("users", "a", 3)).await;
    }
    assert_eq!(service.level("users", "a").await, 4);
    let long = "x".repeat(129);
    let (status, _) = send("/v1/check", &long, &tokens("users", "a", 1)).await;
    assert_eq!(status, 400);
    service.stop().await;
}

#[tokio::test]
async fn operators_change_buckets_tiers_and_blocks() {
    let service = Running::start(LIMITS).await;
    service.post("/v1/check", &tokens("users", "a", 4)).await;
    let tier = |tier: Value| json!({"limit": "users", "key": "a", "tier": tier});
    let (status, _) = service
        .admin("/v1/admin/move-to-tier", &tier(json!("gold")))
        .await;
    assert_eq!(status, 200);
    assert_eq!(service.level("users", "a").await, 96);
    let (status, problem) = service
        .admin("/v1/admin/move-to-tier", &tier(json!("tin")))
        .await;
    assert_eq!((status, &problem["code"]), (404, &json!("unknown_tier")));
    service
        .admin("/v1/admin/move-to-tier", &tier(Value::Null))
        .await;
    assert_eq!(service.level("users", "a").await, 6);
    let (_, set) = service
        .admin(
            "/v1/admin/set-level",
            &json!({"limit": "users", "key": "a", "level": -2}),
        )
        .await;
    assert_eq!(set["level"], -2);
    service
        .admin("/v1/admin/reset", &bucket("users", "a"))
        .await;
    assert_eq!(service.level("users", "a").await, 10);
    let block = json!({"limit": "users", "key": "a", "for_ms": 3_600_000});
    service.admin("/v1/admin/block", &block).await;
    let (_, verdict) = service.post("/v1/check", &bucket("users", "a")).await;
    assert_eq!(
        (&verdict["allowed"], &verdict["reason"]),
        (&json!(false), &json!("blocked"))
    );
    assert!(verdict["retry_after_us"].as_u64().unwrap() <= 3_600_000_000);
    let all = json!({"requests": [tokens("tenants", "t", 1), tokens("users", "a", 1)]});
    let (_, verdict) = service.post("/v1/check-all", &all).await;
    assert_eq!(verdict["refused"], 1);
    assert_eq!(service.level("tenants", "t").await, 5);
    service
        .admin("/v1/admin/unblock", &bucket("users", "a"))
        .await;
    let (_, verdict) = service.post("/v1/check", &bucket("users", "a")).await;
    assert_eq!(verdict["remaining"], 9);
    service.stop().await;
}

#[tokio::test]
async fn rights_decide_who_may_do_what() {
    let service = Running::start(LIMITS).await;
    let body = bucket("users", "a");
    let (status, problem) = service.post("/v1/admin/reset", &body).await;
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")));
    let checker = async |path: &str| {
        answer(service.request(path).bearer_auth(CHECKER).json(&body))
            .await
            .0
    };
    assert_eq!(checker("/v1/check").await, 200);
    assert_eq!(checker("/v1/charge").await, 403);
    assert_eq!(checker("/v1/admin/unblock").await, 403);
    let (status, problem) = answer(
        service
            .request("/v1/check")
            .bearer_auth("no-such-token")
            .json(&body),
    )
    .await;
    assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")));
    assert_eq!(
        answer(
            service
                .request("/v1/admin/reset")
                .bearer_auth(ADMIN)
                .json(&body)
        )
        .await
        .0,
        200
    );
    service.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_said_as_a_problem_document() {
    let service = Running::start(LIMITS).await;
    let (status, problem) = service.post("/v1/check", &bucket("nobody", "a")).await;
    assert_eq!((status, &problem["code"]), (404, &json!("unknown_limit")));
    assert_eq!(problem["status"], 404);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("[limits.nobody]"),
        "{problem}"
    );
    for (body, status, code) in [
        ("{", 400, "invalid"),
        (r#"{"limit":"users","key":"a","token":1}"#, 400, "invalid"),
        (r#"{"limit":"users","key":"a","tokens":-1}"#, 400, "invalid"),
        (r#"{"limit":"users","key":""}"#, 400, "bad_key"),
        (
            &format!(r#"{{"limit":"users","key":"{}"}}"#, "k".repeat(5_000)),
            400,
            "bad_key",
        ),
        (&"x".repeat(70_000), 413, "body"),
    ] {
        let request = service
            .request("/v1/check")
            .header("content-type", "application/json");
        let (given, problem) = answer(request.body(body.to_owned())).await;
        assert_eq!(
            (given, problem["code"].as_str().unwrap()),
            (status, code),
            "{body:.80}"
        );
    }
    let (status, _) = answer(
        service
            .request("/v1/check")
            .body("a=b")
            .header("content-type", "text/plain"),
    )
    .await;
    assert_eq!(status, 415);
    let (status, _) = answer(service.request("/v1/nothing").json(&json!({}))).await;
    assert_eq!(status, 404);
    let get = service
        .client
        .get(format!("http://{}/v1/check", service.address("http")));
    let response = get.send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );
    service.stop().await;
}

#[tokio::test]
async fn the_published_description_is_the_one_that_is_served_and_names_every_resource() {
    let published = include_str!("../../../../docs/service-openapi.json");
    assert_eq!(
        published, OPENAPI,
        "docs/service-openapi.json is a link to src/http/openapi.json"
    );
    let service = Running::start(LIMITS).await;
    let get = async |path: &str| {
        answer(
            service
                .client
                .get(format!("http://{}{path}", service.address("http"))),
        )
        .await
    };
    let (_, served) = get("/openapi.json").await;
    assert_eq!(served, serde_json::from_str::<Value>(OPENAPI).unwrap());
    let paths = served["paths"].as_object().unwrap();
    for (path, operations) in paths {
        for method in operations.as_object().unwrap().keys() {
            let status = match method.as_str() {
                "get" => get(path).await.0,
                _ => service.admin(path, &json!({"unknown": true})).await.0,
            };
            assert_eq!(
                status,
                if method == "get" { 200 } else { 400 },
                "{method} {path}"
            );
        }
    }
    assert_eq!(paths.len(), 17);
    service.stop().await;
}

#[tokio::test]
async fn overload_is_answered_at_once() {
    let text = format!("{LIMITS}\n[server]\nin_flight_max = 1\nholds_max = 1\n");
    let service = Running::start(&text).await;
    let hold = json!({"requests": [tokens("users", "a", 1)]});
    assert_eq!(service.post("/v1/hold", &hold).await.0, 200);
    let response = service
        .request("/v1/hold")
        .json(&hold)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["code"], "full");
    assert_eq!(
        service.level("users", "a").await,
        9,
        "nothing was taken for the second"
    );
    tokio::time::timeout(Duration::from_secs(30), service.stop())
        .await
        .unwrap();
}
