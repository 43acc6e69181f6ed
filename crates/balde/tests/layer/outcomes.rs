//! However a request ends, its bucket is settled at the price of that outcome.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::body::Body;
use axum::{Router, routing::get};
use balde::RateLimiter;
use balde::http::identity::PeerAddr;
use balde::http::{LimitRule, Outcome, RateLimitLayer};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use crate::fixture::{Client, Server, TestStore};

const LIMIT: &str = "1/h burst 100 debt 100";

/// The total cost of a request by its outcome.
fn price(outcome: &Outcome<'_>, taken: u64) -> u64 {
    match outcome {
        Outcome::Answered { status, .. } if *status == StatusCode::NOT_FOUND => 20,
        Outcome::Answered { status, .. } if status.is_server_error() => 0,
        Outcome::Failed => 0,
        Outcome::Panicked => 5,
        Outcome::Abandoned => 3,
        _ => taken,
    }
}

/// A layer with one global bucket and that price, and a channel that receives each settlement.
fn layer(limiter: &RateLimiter) -> (RateLimitLayer, mpsc::UnboundedReceiver<&'static str>) {
    let (settled, settlements) = mpsc::unbounded_channel();
    let rule = LimitRule::global(limiter.clone()).price(move |outcome, taken| {
        let outcome_name = match outcome {
            Outcome::Answered { .. } => "answered",
            Outcome::Failed => "failed",
            Outcome::Panicked => "panicked",
            Outcome::Abandoned => "abandoned",
            _ => "unknown",
        };
        settled.send(outcome_name).unwrap();
        price(outcome, taken)
    });
    (RateLimitLayer::new(rule), settlements)
}

/// The level after all settlements.
async fn level(limiter: &RateLimiter) -> i64 {
    limiter.settled().await;
    limiter.peek("*").await.unwrap().level()
}

fn app() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/broken", get(|| async { StatusCode::BAD_GATEWAY }))
        .route("/panic", get(panics))
}

async fn panics() -> &'static str {
    panic!("expected by the test")
}

#[tokio::test]
async fn responses_cost_by_status_and_their_fields_report_the_settled_level() {
    for store in TestStore::all() {
        let limiter = store.limiter("priced", LIMIT).await;
        let (layer, _settlements) = layer(&limiter);
        let server = Server::start(app(), layer).await;
        let client = Client::new();
        for (path, remaining) in [("/", 99), ("/nothing", 79), ("/broken", 79), ("/", 78)] {
            let response = client.get(&server, path).await;
            let context = format!("{} {path}", store.name());
            assert_eq!(
                response.integer("x-ratelimit-remaining"),
                remaining,
                "{context}"
            );
            // A client that has the response finds the bucket settled.
            let level = limiter.peek("*").await.unwrap().level();
            assert_eq!(level, i64::try_from(remaining).unwrap(), "{context}");
        }
    }
}

#[tokio::test]
async fn a_price_leads_into_debt_that_refills_with_time() {
    for store in TestStore::all() {
        let limiter = store.limiter("priced", "1/h burst 10 debt 100").await;
        limiter.set_level("*", 5).await.unwrap();
        let (layer, _settlements) = layer(&limiter);
        let server = Server::start(app(), layer).await;
        let client = Client::new();
        let missing = client.get(&server, "/nothing").await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND);
        assert_eq!(missing.integer("x-ratelimit-remaining"), 0);
        assert_eq!(level(&limiter).await, -15, "{}", store.name());
        let refused = client.get(&server, "/").await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let hours = refused.integer("retry-after").div_ceil(3600);
        assert_eq!(hours, 16, "until there is one token again");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_settled_as_abandoned() {
    for store in TestStore::all() {
        let limiter = store.limiter("priced", LIMIT).await;
        let (layer, mut settlements) = layer(&limiter);
        let (enter, mut entered) = mpsc::unbounded_channel();
        let never = get(async move || {
            enter.send(()).unwrap();
            pending::<&'static str>().await
        });
        let server = Server::start(Router::new().route("/never", never), layer).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream
            .write_all(b"GET /never HTTP/1.1\r\nhost: here\r\n\r\n")
            .await
            .unwrap();
        entered.recv().await.unwrap();
        drop(stream);
        assert_eq!(
            settlements.recv().await,
            Some("abandoned"),
            "{}",
            store.name()
        );
        assert_eq!(level(&limiter).await, 97, "{}", store.name());
    }
}

#[tokio::test]
async fn a_service_that_panics_is_settled_as_panicked() {
    for store in TestStore::all() {
        let limiter = store.limiter("priced", LIMIT).await;
        let (layer, mut settlements) = layer(&limiter);
        let server = Server::start(app(), layer).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream
            .write_all(b"GET /panic HTTP/1.1\r\nhost: here\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(
            settlements.recv().await,
            Some("panicked"),
            "{}",
            store.name()
        );
        assert_eq!(level(&limiter).await, 95, "{}", store.name());
        // The next request is served normally.
        let response = Client::new().get(&server, "/").await;
        assert_eq!(response.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_service_that_panics_in_call_is_settled_as_panicked() {
    for store in TestStore::all() {
        let limiter = store.limiter("priced", LIMIT).await;
        let (layer, mut settlements) = layer(&limiter);
        let service = layer.layer(service_fn(panics_in_call));
        let task = tokio::spawn(service.oneshot(request()));
        assert!(task.await.unwrap_err().is_panic());
        assert_eq!(
            settlements.recv().await,
            Some("panicked"),
            "{}",
            store.name()
        );
        assert_eq!(level(&limiter).await, 95, "{}", store.name());
    }
}

fn panics_in_call(
    _: Request<Body>,
) -> std::future::Ready<Result<Response<Full<Bytes>>, Infallible>> {
    panic!("expected by the test")
}

#[tokio::test]
async fn a_service_that_never_answers_is_settled_when_a_timeout_expires() {
    for store in TestStore::all() {
        let limiter = store.limiter("priced", LIMIT).await;
        let (layer, mut settlements) = layer(&limiter);
        let service = layer.layer(service_fn(|_: Request<Body>| {
            pending::<Result<Response<Full<Bytes>>, Infallible>>()
        }));
        let timeout = Duration::from_millis(200);
        let response = tokio::time::timeout(timeout, service.oneshot(request())).await;
        assert!(response.is_err(), "the timeout expired");
        assert_eq!(
            settlements.recv().await,
            Some("abandoned"),
            "{}",
            store.name()
        );
        assert_eq!(level(&limiter).await, 97, "{}", store.name());
    }
}

#[tokio::test]
async fn a_service_that_fails_is_settled_as_failed_and_its_error_is_passed_on() {
    for store in TestStore::all() {
        let limiter = store.limiter("priced", LIMIT).await;
        let (layer, mut settlements) = layer(&limiter);
        let service = layer.layer(service_fn(|_: Request<Body>| async {
            Err::<Response<Full<Bytes>>, _>("no upstream")
        }));
        let error = service.oneshot(request()).await.unwrap_err();
        assert_eq!(error, "no upstream");
        assert_eq!(settlements.recv().await, Some("failed"), "{}", store.name());
        assert_eq!(level(&limiter).await, 100, "{}", store.name());
    }
}

#[test]
fn requests_in_flight_are_settled_when_the_runtime_is_shut_down() {
    let observing = tokio::runtime::Runtime::new().unwrap();
    for store in TestStore::all() {
        let limiter = observing.block_on(store.limiter("priced", LIMIT));
        let (layer, mut settlements) = layer(&limiter);
        let serving = tokio::runtime::Runtime::new().unwrap();
        let (enter, mut entered) = mpsc::unbounded_channel();
        let service = layer.layer(service_fn(move |_: Request<Body>| {
            enter.send(()).unwrap();
            pending::<Result<Response<Full<Bytes>>, Infallible>>()
        }));
        serving.spawn(service.oneshot(request()));
        entered.blocking_recv().unwrap();
        drop(serving);
        assert_eq!(
            settlements.blocking_recv(),
            Some("abandoned"),
            "{}",
            store.name()
        );
        let level = observing.block_on(level(&limiter));
        assert_eq!(level, 97, "{}", store.name());
    }
}

#[tokio::test]
async fn every_request_is_settled_once() {
    for store in TestStore::all() {
        let limiter = store.limiter("priced", "1/h burst 10000").await;
        let (layer, mut settlements) = layer(&limiter);
        let server = Server::start(app(), layer).await;
        let client = Client::new();
        for path in ["/", "/nothing", "/broken"] {
            for _ in 0..20 {
                client.get(&server, path).await;
            }
        }
        drop(server);
        let mut outcomes = Vec::new();
        // The layer is dropped with its server, which closes the channel.
        while let Some(outcome) = settlements.recv().await {
            outcomes.push(outcome);
        }
        assert_eq!(outcomes, ["answered"; 60], "{}", store.name());
        assert_eq!(level(&limiter).await, 10_000 - 20 - 400, "{}", store.name());
    }
}

fn request() -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer = PeerAddr("192.0.2.1:4711".parse().unwrap());
    request.extensions_mut().insert(peer);
    request
}
