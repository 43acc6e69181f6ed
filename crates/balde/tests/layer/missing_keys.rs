//! Requests without a usable key: whose fault it is, what the caller gets, what is logged and counted.

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use balde::RateLimiter;
use balde::http::{
    Identity, IdentityError, LimitRule, OnMissingKey, PeerAddr, RateLimitLayer, RefusalCause,
};
use balde::telemetry::Metrics;
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt};

use crate::fixture::{Client, Server};
use crate::refusals::{app, send};

/// A request of which the service knows no peer.
fn without_peer() -> Request<Body> {
    Request::new(Body::empty())
}

/// A request from a proxy that hides whom it forwards for.
fn hidden() -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer = PeerAddr("10.0.0.1:4711".parse().unwrap());
    request.extensions_mut().insert(peer);
    let unknown = "unknown".parse().unwrap();
    request.headers_mut().insert("x-forwarded-for", unknown);
    request
}

fn behind_a_proxy() -> Identity {
    Identity::new().trusted_proxies(["10.0.0.0/8"]).unwrap()
}

#[tokio::test]
async fn a_plain_axum_server_answers_500_and_says_what_to_do_and_serve_is_the_fix() {
    let layer = RateLimitLayer::new(RateLimiter::new("2/min").unwrap());
    let client = Client::new();
    let plain = Server::start_without_peers(app(), layer.clone()).await;
    let served = Server::start(app(), layer).await;
    let mut responses = Vec::new();
    for server in [&plain, &plain, &plain, &served, &served, &served] {
        responses.push(client.get(server, "/").await);
    }
    let statuses: Vec<u16> = responses.iter().map(|one| one.status.as_u16()).collect();
    assert_eq!(statuses, [500, 500, 500, 200, 200, 429]);
    // The tests are a debug build.
    let body: serde_json::Value = serde_json::from_slice(&responses[0].body).unwrap();
    assert_eq!(body["title"], "Internal Server Error");
    let detail = body["detail"].as_str().unwrap();
    assert!(
        detail.contains("balde::http::serve(listener, app)"),
        "{detail}"
    );
}

#[tokio::test]
async fn no_bucket_is_touched_and_requests_can_be_let_through_or_share_a_bucket_instead() {
    for (request, refused) in [
        (
            without_peer as fn() -> Request<Body>,
            StatusCode::INTERNAL_SERVER_ERROR,
        ),
        (hidden, StatusCode::FORBIDDEN),
    ] {
        let limiter = RateLimiter::new("2/min").unwrap();
        let layer = RateLimitLayer::new(limiter.clone()).identity(behind_a_proxy());
        for _ in 0..5 {
            assert_eq!(send(&layer, request()).await.0, refused);
        }
        assert_eq!(limiter.memory_stats().keys, 0);

        let passing = layer.clone().on_missing_key(OnMissingKey::Allow);
        for _ in 0..5 {
            assert_eq!(send(&passing, request()).await.0, StatusCode::OK);
        }
        assert_eq!(limiter.memory_stats().keys, 0);

        let sharing = layer.on_missing_key(OnMissingKey::Share);
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(send(&sharing, request()).await.0.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429]);
    }
}

#[tokio::test]
async fn grpc_callers_and_custom_responses_see_the_difference_too() {
    let layer = RateLimitLayer::new(RateLimiter::new("2/min").unwrap());
    let layer = layer.identity(behind_a_proxy());
    for (mut request, grpc_status) in [(without_peer(), "13"), (hidden(), "7")] {
        let content_type = "application/grpc".parse().unwrap();
        request.headers_mut().insert("content-type", content_type);
        let response = layer.layer(app()).oneshot(request).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], grpc_status);
    }
    let causes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&causes);
    let layer = layer.on_refusal(move |refusal| {
        seen.lock().unwrap().push(refusal.cause());
        Response::new("custom")
    });
    assert_eq!(send(&layer, without_peer()).await.1, "custom");
    assert_eq!(send(&layer, hidden()).await.1, "custom");
    let hidden = RefusalCause::MissingKey(Some(IdentityError::Hidden));
    assert_eq!(*causes.lock().unwrap(), [RefusalCause::MissingPeer, hidden]);
}

#[tokio::test]
async fn refusals_for_lack_of_a_key_are_counted_with_a_reason_of_their_own() {
    let metrics = Metrics::new();
    let limiter = |name: &str| {
        let builder = RateLimiter::builder().name(name).limit("1/h");
        builder.metrics(&metrics).build().unwrap()
    };
    let needs_key = LimitRule::per_key(limiter("per-tenant"), |_| None::<String>);
    let layer = RateLimitLayer::new(limiter("per-caller")).and(needs_key);
    let layer = layer.identity(behind_a_proxy());
    for _ in 0..3 {
        send(&layer, hidden()).await;
    }
    send(&layer, without_peer()).await;
    let mut known = without_peer();
    let peer = PeerAddr("192.0.2.1:4711".parse().unwrap());
    known.extensions_mut().insert(peer);
    assert_eq!(send(&layer, known).await.0, StatusCode::FORBIDDEN);

    let text = metrics.encode();
    for line in [
        r#"rate_limiter_decisions_total{decision="deny",policy="per-caller",reason="no_key"} 4"#,
        r#"rate_limiter_decisions_total{decision="deny",policy="per-tenant",reason="no_key"} 1"#,
        r#"rate_limiter_decisions_total{decision="deny",policy="per-caller"} 0"#,
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_missing_peer_is_logged_as_an_error_with_the_fix_even_in_a_flood_of_hidden_callers() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let layer = RateLimitLayer::new(RateLimiter::new("2/min").unwrap());
    let layer = layer.identity(behind_a_proxy());
    for _ in 0..50 {
        send(&layer, hidden()).await;
    }
    send(&layer, without_peer()).await;
    drop(guard);

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["fields"]["event_type"] == "no_key")
        .collect();
    let errors: Vec<_> = lines
        .iter()
        .filter(|line| line["level"] == "ERROR")
        .collect();
    assert_eq!(errors.len(), 1, "{text}");
    assert_eq!(errors[0]["target"], "balde");
    let message = errors[0]["fields"]["message"].as_str().unwrap();
    assert!(
        message.contains("balde::http::serve(listener, app)"),
        "{message}"
    );
    let warnings = lines.iter().filter(|line| line["level"] == "WARN").count();
    assert!(
        (1..=10).contains(&warnings),
        "a flood is a few lines: {text}"
    );
}
