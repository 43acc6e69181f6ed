//! Reload, drain and the endpoint for operators.

use serde_json::{Value, json};

use crate::running::{Running, STATE_TOKEN, config};

const PORTS: &str = "[http]\naddress = \"127.0.0.1:0\"\n[state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"STATE\"\n";

fn file(limit: &str, more: &str) -> String {
    format!("[limits.users]\nlimit = \"{limit}\"\n{more}\n{PORTS}")
}

#[tokio::test]
async fn a_reload_keeps_buckets_and_refuses_what_needs_a_restart() {
    let service = Running::start_only(&file("10/day", "")).await;
    let check = json!({"limit": "users", "key": "a", "tokens": 4});
    service.post("/v1/check", &check).await;
    let changed = file("20/day", "[limits.new]\nlimit = \"3/day\"\n");
    service.service.reload(&config(&changed)).unwrap();
    assert_eq!(service.level("users", "a").await, 16);
    assert_eq!(service.level("new", "a").await, 3);
    for (wrong, reason) in [
        (
            file("20/day", "[server]\nholds_max = 7\n"),
            "the maxima of [server]",
        ),
        (file("20/day", "keys_max = 7\n"), "[limits.users]"),
        (file("20/day", "[dynamic]\nkeys_max = 7\n"), "[dynamic]"),
        (
            format!(
                "{}\n[resp]\naddress = \"127.0.0.1:0\"\n",
                file("20/day", "")
            ),
            "a protocol's section",
        ),
    ] {
        let error = service
            .service
            .reload(&config(&wrong))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(reason) && error.contains("restart"),
            "{error}"
        );
    }
    assert_eq!(service.level("users", "a").await, 16);
    // A token that the new file requires is required at once.
    let closed = file(
        "20/day",
        "[[token]]\nname = \"ops\"\ntoken_env = \"ADMIN\"\nrights = [\"check\"]\n",
    );
    service.service.reload(&config(&closed)).unwrap();
    assert_eq!(service.post("/v1/check", &check).await.0, 401);
    assert_eq!(service.admin("/v1/check", &check).await.0, 200);
    service.stop().await;
}

#[tokio::test]
async fn a_connection_loses_the_rights_that_its_token_loses() {
    let token = |name: &str, rights: &str| {
        format!("[[token]]\nname = \"{name}\"\ntoken_env = \"{name}\"\nrights = [{rights}]\n")
    };
    let resp = "[resp]\naddress = \"127.0.0.1:0\"\n";
    let text = |rights: &str| {
        let limits = "[limits.users]\nlimit = \"10/day\"\n";
        format!("{limits}{resp}{}{rights}", token("CHECKER", "\"check\""))
    };
    let before = text(&token("ADMIN", "\"admin\", \"check\""));
    let service = Running::start_only(&before).await;
    let mut connection = service.resp().await;
    let admin = crate::running::ADMIN;
    connection
        .expect(&format!("AUTH {admin}\r\n"), "+OK\r\n")
        .await;
    connection
        .expect("BALDE.RESET users a\r\n", "+OK\r\n")
        .await;
    service
        .service
        .reload(&config(&text(&token("ADMIN", "\"check\""))))
        .unwrap();
    connection
        .expect("BALDE.RESET users a\r\n", "-NOPERM ")
        .await;
    let mut connection = service.resp().await;
    connection
        .expect(&format!("AUTH {admin}\r\n"), "+OK\r\n")
        .await;
    service.service.reload(&config(&text(""))).unwrap();
    connection
        .expect("CL.THROTTLE a 1 1 1\r\n", "-NOPERM ")
        .await;
    service.stop().await;
}

#[tokio::test]
async fn operators_see_readiness_and_metrics() {
    let service = Running::start_only(&file("10/day", "")).await;
    let state = service.state.unwrap();
    let get = async |path: &str, token: &str| {
        let request = service
            .client
            .get(format!("http://{state}{path}"))
            .bearer_auth(token);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(get("/healthz", "").await.0, 200);
    assert_eq!(get("/readyz", "").await.0, 200);
    assert_eq!(get("/metrics", "wrong").await.0, 401);
    service
        .post(
            "/v1/check",
            &json!({"limit": "users", "key": "a", "tokens": 10}),
        )
        .await;
    service
        .post("/v1/check", &json!({"limit": "users", "key": "a"}))
        .await;
    service
        .post("/v1/check", &json!({"limit": "nobody", "key": "a"}))
        .await;
    let (status, metrics) = get("/metrics", STATE_TOKEN).await;
    assert_eq!(status, 200);
    for line in [
        "balde_service_requests_total{protocol=\"http\",result=\"allowed\"} 1",
        "balde_service_requests_total{protocol=\"http\",result=\"refused\"} 1",
        "balde_service_requests_total{protocol=\"http\",result=\"invalid\"} 1",
        "rate_limiter_decisions_total{",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    service.service.drain().await;
    let (status, report) = get("/readyz", "").await;
    assert_eq!(status, 503);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["reasons"][0], "the service is shutting down");
    // Everything is still served.
    assert_eq!(service.level("users", "a").await, 0);
    service.stop().await;
}
