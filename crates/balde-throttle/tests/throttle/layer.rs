//! The layer around real clients and a real server, and the metrics of throttlers.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use balde::telemetry::Metrics;
use balde_throttle::{Outcome, Refusal, RunError, ThrottleLayer, ThrottleMetrics, Throttler};
use http::Request;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::{Layer, Service, ServiceExt, service_fn};

/// The most partitions that have lines of their own.
const LABELS_MAX: usize = 100;

/// Shorter than the pauses that the server asks for; long enough for a busy machine.
const SHORT: Duration = Duration::from_secs(10);

async fn server() -> SocketAddr {
    let headers = |pairs: &[(&'static str, &'static str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().expect("a header"));
        }
        headers
    };
    let busy = headers(&[("retry-after", "60")]);
    let spent = headers(&[("ratelimit", r#""day";r=5;t=60, "minute";r=0;t=30"#)]);
    let plenty = headers(&[("ratelimit", r#""day";r=500;t=60"#)]);
    let router = Router::new()
        .route("/busy", get(async || (StatusCode::TOO_MANY_REQUESTS, busy)))
        .route("/spent", get(async || (StatusCode::OK, spent)))
        .route("/plenty", get(async || (StatusCode::OK, plenty)))
        .route("/broken", get(async || StatusCode::INTERNAL_SERVER_ERROR))
        .route("/missing", get(async || StatusCode::NOT_FOUND));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    addr
}

fn by_path(throttler: &Throttler) -> ThrottleLayer {
    ThrottleLayer::new(throttler)
        .partition(|_, uri, _| uri.path().to_owned())
        .within(SHORT)
}

fn request<B: Default>(addr: SocketAddr, path: &str) -> Request<B> {
    Request::get(format!("http://{addr}{path}"))
        .body(B::default())
        .unwrap()
}

fn pace(throttler: &Throttler, partition: &str) -> String {
    throttler.partition(partition).unwrap().pace().to_string()
}

#[tokio::test]
async fn hypers_client_obeys_the_servers_hints() {
    let addr = server().await;
    let throttler = Throttler::new(100_000, 10_000).unwrap();
    let client: Client<_, Empty<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut client = by_path(&throttler).layer(client);
    let mut send = async |path: &str| {
        let ready = client.ready().await.unwrap();
        ready.call(request(addr, path)).await.map(|r| r.status())
    };
    let deadline = |outcome| matches!(outcome, Err(RunError::Refused(Refusal::Deadline)));

    assert_eq!(send("/busy").await.unwrap(), 429);
    assert!(deadline(send("/busy").await), "it asked for a pause");
    assert_eq!(pace(&throttler, "/busy"), "9000/s burst 900");

    assert_eq!(send("/spent").await.unwrap(), 200);
    assert!(
        deadline(send("/spent").await),
        "nothing is left for half a minute"
    );
    assert_eq!(pace(&throttler, "/spent"), "10000/s burst 1000");

    for _ in 0..3 {
        assert_eq!(send("/plenty").await.unwrap(), 200);
        assert_eq!(send("/missing").await.unwrap(), 404);
        assert_eq!(send("/broken").await.unwrap(), 500);
    }
    assert_eq!(pace(&throttler, "/plenty"), "10000/s burst 1000");
    assert_eq!(pace(&throttler, "/missing"), "10000/s burst 1000");
    // Errors within five seconds lower the rate once.
    assert_eq!(pace(&throttler, "/broken"), "9000/s burst 900");
}

#[tokio::test]
async fn reqwest_obeys_them_through_a_service() {
    let addr = server().await;
    let throttler = Throttler::new(100_000, 10_000).unwrap();
    // reqwest needs a crypto provider; another test may have installed one already.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let reqwest = reqwest::Client::builder().no_proxy().build().unwrap();
    let service = service_fn(move |request: Request<reqwest::Body>| {
        let reqwest = reqwest.clone();
        async move {
            let response = reqwest.execute(request.try_into()?).await?;
            Ok::<_, reqwest::Error>(http::Response::<reqwest::Body>::from(response))
        }
    });
    let client = ThrottleLayer::new(&throttler).within(SHORT).layer(service);
    let send = async |path: &str| client.clone().oneshot(request(addr, path)).await;

    assert_eq!(send("/broken").await.unwrap().status(), 500);
    assert_eq!(pace(&throttler, "127.0.0.1"), "9000/s burst 900", "by host");
    assert_eq!(send("/busy").await.unwrap().status(), 429);
    let paused = send("/plenty").await;
    assert!(matches!(paused, Err(RunError::Refused(Refusal::Deadline))));

    // No server listens there.
    let nowhere = SocketAddr::from(([127, 0, 0, 2], 1));
    let failed = client.clone().oneshot(request(nowhere, "/")).await;
    assert!(matches!(failed, Err(RunError::Failed(_))));
    assert_eq!(pace(&throttler, "127.0.0.2"), "9000/s burst 900");
}

#[tokio::test]
async fn the_outcome_of_a_status_can_be_set() {
    let addr = server().await;
    let throttler = Throttler::new(100_000, 10_000).unwrap();
    let client: Client<_, Empty<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let client = by_path(&throttler)
        .outcome(|status| {
            if status == StatusCode::NOT_FOUND {
                Outcome::Error
            } else {
                Outcome::Success
            }
        })
        .tokens(7)
        .layer(client);
    for path in ["/missing", "/broken"] {
        client.clone().oneshot(request(addr, path)).await.unwrap();
    }
    assert_eq!(pace(&throttler, "/missing"), "9000/s burst 900");
    assert_eq!(pace(&throttler, "/broken"), "10000/s burst 1000");
    assert!(
        throttler
            .stats()
            .iter()
            .all(|partition| partition.granted() == 7)
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_have_rates_waiters_and_waits_with_bounded_labels() {
    let metrics = Metrics::new();
    let throttles = ThrottleMetrics::new(&metrics);
    let throttler = Throttler::builder()
        .name("import")
        .rate(100_000)
        .partition_rate(1_000)
        .clock(balde::Clock::tokio())
        .build()
        .unwrap();
    throttles.add(&throttler);
    throttler.acquire("orders", 50).await.unwrap();
    throttler.report("orders", Outcome::Error);
    let mut waiting = Box::pin(throttler.acquire("orders", 90));
    let soon = tokio::time::timeout(Duration::from_millis(1), &mut waiting).await;
    assert!(soon.is_err());
    let text = metrics.encode();
    let labels = r#"{throttler="import",partition="orders"}"#;
    for line in [
        format!("throttle_rate{labels} 900"),
        format!("throttle_burst{labels} 90"),
        format!("throttle_waiters{labels} 1"),
        format!("throttle_circuit_open{labels} 0"),
        format!("throttle_granted_tokens_total{labels} 50"),
        format!("throttle_failures_total{labels} 1"),
        format!("throttle_wait_ms_count{labels} 1"),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    drop(waiting);

    for number in 0..LABELS_MAX + 50 {
        let _empty = throttler.try_acquire(&format!("partition {number}"), 1);
    }
    let text = metrics.encode();
    let rates = text
        .lines()
        .filter(|line| line.starts_with("throttle_rate{"));
    assert_eq!(rates.count(), LABELS_MAX + 1);
    let other = r#"throttle_rate{throttler="import",partition="other"}"#;
    let line = text.lines().find(|line| line.starts_with(other)).unwrap();
    assert!(line.ends_with(" 51000"), "{line}");
    drop(throttler);
    assert!(!metrics.encode().contains("throttle_rate{"));
}
