//! Injected faults, the virtual clock, and shutdown.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::test_server::{CALLER, KEY, PERSON, READ_USER, TestServer, end_to_end_id, error_type};

#[tokio::test]
async fn an_injected_status_is_settled_by_its_price() {
    let server = TestServer::new().await;
    for (status, expected, cost) in [
        (500, "InternalServerError", 0),
        (503, "ServiceUnavailable", 0),
        (403, "Forbidden", 0),
        (404, "NotFound", 20),
    ] {
        let before = server.level(READ_USER, CALLER, Some(PERSON)).await;
        let body = json!({"operation": "getEntry", "status": status});
        assert_eq!(
            server.sim(Method::PUT, "/sim/faults", Some(body)).await.0,
            200
        );
        let response = server.get_entry(KEY, PERSON, &end_to_end_id(0)).await;
        assert_eq!(response.status(), status);
        assert_eq!(
            response.headers().contains_key("retry-after"),
            status == 503
        );
        assert_eq!(error_type(&response.text().await.unwrap()), expected);
        let after = server.level(READ_USER, CALLER, Some(PERSON)).await;
        assert_eq!(before - after, cost, "{status}");
    }
    // In other policies, any status but 500 costs one token.
    for (status, cost) in [(500, 0), (503, 1), (404, 1)] {
        let before = server.level("CLAIMS_READ", CALLER, None).await;
        let body = json!({"operation": "*", "status": status});
        assert_eq!(
            server.sim(Method::PUT, "/sim/faults", Some(body)).await.0,
            200
        );
        let (answered, _) = server
            .get("/claims/91d65e98-97c0-4b0f-b577-73625da1f9fc", CALLER)
            .await;
        assert_eq!(answered, status);
        assert_eq!(
            before - server.level("CLAIMS_READ", CALLER, None).await,
            cost,
            "{status}"
        );
    }
    assert_eq!(server.sim(Method::DELETE, "/sim/faults", None).await.0, 200);
    assert_eq!(server.get_entry_status(KEY, PERSON).await, 200);
}

#[tokio::test]
async fn a_request_is_settled_after_its_client_has_disconnected() {
    let server = TestServer::new().await;
    let body = json!({"operation": "getEntry", "latency_ms": 300, "status": 404});
    assert_eq!(
        server.sim(Method::PUT, "/sim/faults", Some(body)).await.0,
        200
    );
    let id = end_to_end_id(0);
    let gone = tokio::time::timeout(
        Duration::from_millis(50),
        server.get_entry(KEY, PERSON, &id),
    );
    assert!(gone.await.is_err(), "the client does not wait");
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while server.level(READ_USER, CALLER, Some(PERSON)).await != 80 {
        assert!(std::time::Instant::now() < deadline, "it is never settled");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn invalid_faults_are_rejected() {
    let server = TestServer::new().await;
    for body in [
        json!({"operation": "getNothing", "status": 500}),
        json!({"operation": "getEntry", "status": 200}),
        json!({"operation": "getEntry", "latency_ms": 60_001}),
        json!({"operation": "getEntry", "percent": 0}),
        json!({"operation": "getEntry", "unknown": 1}),
        json!(["getEntry"]),
    ] {
        let (status, _) = server
            .sim(Method::PUT, "/sim/faults", Some(body.clone()))
            .await;
        assert_eq!(status, 400, "{body}");
    }
    assert_eq!(server.sim(Method::GET, "/sim/nothing", None).await.0, 404);
    assert_eq!(
        server.sim(Method::GET, "/sim/", None).await.1["clock"],
        "virtual"
    );
}

#[tokio::test]
async fn shutdown_waits_for_requests_in_flight() {
    let server = TestServer::new().await;
    let body = json!({"operation": "getEntry", "latency_ms": 200});
    assert_eq!(
        server.sim(Method::PUT, "/sim/faults", Some(body)).await.0,
        200
    );
    let url = server.url(&format!("/api/v2/entries/{KEY}"));
    let client = crate::test_server::client();
    let under_way = tokio::spawn(async move {
        let request = client
            .get(url)
            .header("PI-RequestingParticipant", CALLER)
            .header("PI-PayerId", PERSON)
            .header("PI-EndToEndId", end_to_end_id(0));
        request
            .send()
            .await
            .map(|response| response.status().as_u16())
    });
    // The bucket's level shows that the request was admitted.
    while server.level(READ_USER, CALLER, Some(PERSON)).await == 100 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    assert_eq!(under_way.await.unwrap().unwrap(), 200);
}
