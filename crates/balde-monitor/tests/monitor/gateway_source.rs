//! A gateway's state endpoint instead of DICT.

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::get;
use balde_monitor::source::{GatewayClient, Source};
use tokio::net::TcpListener;

const GOOD: &str = r#"{"category": "F", "answered_us": 41, "unknown": true, "policies": [
    {"policy": "ENTRIES_READ_PARTICIPANT_ANTISCAN", "level": -17, "capacity": 500,
     "refill_tokens": 250, "period_us": 60000000}]}"#;

async fn gateway(status: u16, body: &'static str) -> String {
    let answer = move |headers: HeaderMap, RawQuery(query): RawQuery| async move {
        let is_known = headers
            .get("authorization")
            .is_some_and(|told| told == "Bearer secret");
        if !is_known || query.as_deref() != Some("participant=12345678") {
            return StatusCode::FORBIDDEN.into_response();
        }
        let status = StatusCode::from_u16(status).unwrap();
        (status, [("retry-after", "7")], body).into_response()
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/balde/states", get(answer));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}/balde/states")
}

fn source(url: &str, token: &str) -> Source {
    let token = Some(token.to_owned());
    Source::Gateway(GatewayClient::new(url, token, None, Duration::from_secs(10)).unwrap())
}

#[tokio::test]
async fn states_become_samples() {
    let url = gateway(200, GOOD).await;
    let poll = source(&url, "secret")
        .fetch("12345678", || 42)
        .await
        .unwrap();
    let sample = &poll.samples()[0];
    assert_eq!((sample.level(), sample.taken_us()), (-17, 42));
    assert_eq!(sample.answered_us(), Some(41));
    assert_eq!(sample.category(), Some("F"));
    assert_eq!(sample.limit().capacity(), 500);
}

#[tokio::test]
async fn anything_else_is_told_apart_and_makes_no_sample() {
    for (status, body, token, label) in [
        (200, GOOD, "wrong", "status"),
        (503, "", "secret", "status"),
        (404, "", "secret", "unknown_participant"),
        (200, "{\"policies\": [", "secret", "invalid_response"),
        (200, "{\"policies\": []}", "secret", "invalid_sample"),
        (200, "<html>", "secret", "invalid_response"),
    ] {
        let url = gateway(status, body).await;
        let error = source(&url, token)
            .fetch("12345678", || 42)
            .await
            .unwrap_err();
        assert_eq!(error.label(), label, "{error}");
        if status == 503 {
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        }
        assert!(!format!("{error} {error:?}").contains(token), "{error:?}");
    }
    let nobody = source("http://127.0.0.1:1/states", "secret");
    let error = nobody.fetch("12345678", || 42).await.unwrap_err();
    assert_eq!(error.label(), "unreachable");
    let wait = Duration::from_secs(1);
    assert!(GatewayClient::new("ftp://gateway/states", None, None, wait).is_err());
    assert!(GatewayClient::new("http://gateway/states", None, Some(b"no PEM"), wait).is_err());
}
