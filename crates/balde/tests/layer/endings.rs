//! However a request ends, its buckets hold afterwards what the price list says.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::body::Body;
use axum::{Router, routing::get};
use balde::RateLimiter;
use balde::http::identity::PeerAddr;
use balde::http::{Outcome, RateLimitLayer, Rule};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use crate::world::{Client, Server, World};

const LIMIT: &str = "1/h burst 100 debt 100";

/// What a request costs in all, by how it ended.
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

/// One bucket for all, at that price, and word of each settlement.
fn layer(limiter: &RateLimiter) -> (RateLimitLayer, mpsc::UnboundedReceiver<&'static str>) {
    let (tell, told) = mpsc::unbounded_channel();
    let rule = Rule::shared(limiter.clone()).price(move |outcome, taken| {
        let word = match outcome {
            Outcome::Answered { .. } => "answered",
            Outcome::Failed => "failed",
            Outcome::Panicked => "panicked",
            Outcome::Abandoned => "abandoned",
            _ => "unknown",
        };
        tell.send(word).unwrap();
        price(outcome, taken)
    });
    (RateLimitLayer::new(rule), told)
}

/// The level once nothing is being settled any longer.
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
    panic!("this is what the story is about")
}

#[tokio::test]
async fn answers_cost_what_their_status_says_and_the_fields_tell_the_settled_level() {
    for world in World::all() {
        let limiter = world.limiter("priced", LIMIT).await;
        let (layer, _told) = layer(&limiter);
        let server = Server::start(app(), layer).await;
        let client = Client::new();
        for (path, remaining) in [("/", 99), ("/nothing", 79), ("/broken", 79), ("/", 78)] {
            let answer = client.get(&server, path).await;
            let context = format!("{} {path}", world.name());
            assert_eq!(
                answer.integer("x-ratelimit-remaining"),
                remaining,
                "{context}"
            );
            // Whoever has the answer finds the bucket settled.
            let level = limiter.peek("*").await.unwrap().level();
            assert_eq!(level, i64::try_from(remaining).unwrap(), "{context}");
        }
    }
}

#[tokio::test]
async fn a_price_leads_into_debt_and_is_waited_off() {
    for world in World::all() {
        let limiter = world.limiter("priced", "1/h burst 10 debt 100").await;
        limiter.set_level("*", 5).await.unwrap();
        let (layer, _told) = layer(&limiter);
        let server = Server::start(app(), layer).await;
        let client = Client::new();
        let missing = client.get(&server, "/nothing").await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND);
        assert_eq!(missing.integer("x-ratelimit-remaining"), 0);
        assert_eq!(level(&limiter).await, -15, "{}", world.name());
        let refused = client.get(&server, "/").await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let hours = refused.integer("retry-after").div_ceil(3600);
        assert_eq!(hours, 16, "until there is one token again");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_settled_as_abandoned() {
    for world in World::all() {
        let limiter = world.limiter("priced", LIMIT).await;
        let (layer, mut told) = layer(&limiter);
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
        assert_eq!(told.recv().await, Some("abandoned"), "{}", world.name());
        assert_eq!(level(&limiter).await, 97, "{}", world.name());
    }
}

#[tokio::test]
async fn a_service_that_panics_is_settled_as_panicked() {
    for world in World::all() {
        let limiter = world.limiter("priced", LIMIT).await;
        let (layer, mut told) = layer(&limiter);
        let server = Server::start(app(), layer).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream
            .write_all(b"GET /panic HTTP/1.1\r\nhost: here\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(told.recv().await, Some("panicked"), "{}", world.name());
        assert_eq!(level(&limiter).await, 95, "{}", world.name());
        // The next one is served as if nothing had been.
        let answer = Client::new().get(&server, "/").await;
        assert_eq!(answer.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_service_that_panics_before_it_has_a_future_is_settled_as_panicked() {
    for world in World::all() {
        let limiter = world.limiter("priced", LIMIT).await;
        let (layer, mut told) = layer(&limiter);
        let service = layer.layer(service_fn(rude));
        let task = tokio::spawn(service.oneshot(request()));
        assert!(task.await.unwrap_err().is_panic());
        assert_eq!(told.recv().await, Some("panicked"), "{}", world.name());
        assert_eq!(level(&limiter).await, 95, "{}", world.name());
    }
}

fn rude(_: Request<Body>) -> std::future::Ready<Result<Response<Full<Bytes>>, Infallible>> {
    panic!("this is what the story is about")
}

#[tokio::test]
async fn a_service_that_never_answers_is_settled_when_a_timeout_gives_up() {
    for world in World::all() {
        let limiter = world.limiter("priced", LIMIT).await;
        let (layer, mut told) = layer(&limiter);
        let service = layer.layer(service_fn(|_: Request<Body>| {
            pending::<Result<Response<Full<Bytes>>, Infallible>>()
        }));
        let patience = Duration::from_millis(200);
        let answer = tokio::time::timeout(patience, service.oneshot(request())).await;
        assert!(answer.is_err(), "nobody answered");
        assert_eq!(told.recv().await, Some("abandoned"), "{}", world.name());
        assert_eq!(level(&limiter).await, 97, "{}", world.name());
    }
}

#[tokio::test]
async fn a_service_that_fails_is_settled_as_failed_and_its_error_is_passed_on() {
    for world in World::all() {
        let limiter = world.limiter("priced", LIMIT).await;
        let (layer, mut told) = layer(&limiter);
        let service = layer.layer(service_fn(|_: Request<Body>| async {
            Err::<Response<Full<Bytes>>, _>("no upstream")
        }));
        let error = service.oneshot(request()).await.unwrap_err();
        assert_eq!(error, "no upstream");
        assert_eq!(told.recv().await, Some("failed"), "{}", world.name());
        assert_eq!(level(&limiter).await, 100, "{}", world.name());
    }
}

#[test]
fn requests_under_way_are_settled_when_the_runtime_is_shut_down() {
    let asking = tokio::runtime::Runtime::new().unwrap();
    for world in World::all() {
        let limiter = asking.block_on(world.limiter("priced", LIMIT));
        let (layer, mut told) = layer(&limiter);
        let serving = tokio::runtime::Runtime::new().unwrap();
        let (enter, mut entered) = mpsc::unbounded_channel();
        let service = layer.layer(service_fn(move |_: Request<Body>| {
            enter.send(()).unwrap();
            pending::<Result<Response<Full<Bytes>>, Infallible>>()
        }));
        serving.spawn(service.oneshot(request()));
        entered.blocking_recv().unwrap();
        drop(serving);
        assert_eq!(told.blocking_recv(), Some("abandoned"), "{}", world.name());
        let level = asking.block_on(level(&limiter));
        assert_eq!(level, 97, "{}", world.name());
    }
}

#[tokio::test]
async fn every_ending_settles_once() {
    for world in World::all() {
        let limiter = world.limiter("priced", "1/h burst 10000").await;
        let (layer, mut told) = layer(&limiter);
        let server = Server::start(app(), layer).await;
        let client = Client::new();
        for path in ["/", "/nothing", "/broken"] {
            for _ in 0..20 {
                client.get(&server, path).await;
            }
        }
        drop(server);
        let mut words = Vec::new();
        // The layer is gone with its server, and with it whoever could tell more.
        while let Some(word) = told.recv().await {
            words.push(word);
        }
        assert_eq!(words, ["answered"; 60], "{}", world.name());
        assert_eq!(level(&limiter).await, 10_000 - 20 - 400, "{}", world.name());
    }
}

fn request() -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer = PeerAddr("192.0.2.1:4711".parse().unwrap());
    request.extensions_mut().insert(peer);
    request
}
