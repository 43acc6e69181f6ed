//! Refusals: their causes, their formats, and custom responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::{Router, routing::get};
use balde::http::identity::PeerAddr;
use balde::http::{LimitRule, ProblemFormat, RateLimitLayer, RefusalCause};
use balde::{OnFailure, RateLimiter, RedisStore};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt};

use crate::fixture::{Client, Server, TestStore};

pub(crate) fn app() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }).post(|| async { "taken" }))
        .route("/healthz", get(|| async { "well" }))
}

fn request() -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer = PeerAddr("192.0.2.1:4711".parse().unwrap());
    request.extensions_mut().insert(peer);
    request
}

pub(crate) async fn send(layer: &RateLimitLayer, request: Request<Body>) -> (StatusCode, String) {
    let response = layer.layer(app()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn an_invalid_key_is_refused_with_403() {
    let limiter = RateLimiter::new("2/min").unwrap();
    let rule = LimitRule::per_key(limiter, |request| {
        let path = request.uri().path();
        (path != "/none").then(|| "x".repeat(100_000))
    });
    let layer = RateLimitLayer::new(rule);
    assert_eq!(send(&layer, request()).await.0, StatusCode::FORBIDDEN);
    let mut none = request();
    *none.uri_mut() = "/none".parse().unwrap();
    assert_eq!(send(&layer, none).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn exempt_requests_are_not_counted_and_get_no_header_fields() {
    for store in TestStore::all() {
        let limiter = store.limiter("per-caller", "1/h").await;
        let layer =
            RateLimitLayer::new(limiter).exempt(|request| request.uri().path() == "/healthz");
        let server = Server::start(app(), layer).await;
        let client = Client::new();
        client.get(&server, "/").await;
        assert_eq!(client.get(&server, "/").await.status, 429);
        for _ in 0..3 {
            let response = client.get(&server, "/healthz").await;
            assert_eq!(response.status, StatusCode::OK);
            assert!(!response.headers.contains_key("ratelimit"));
        }
    }
}

#[tokio::test]
async fn a_limit_can_apply_to_some_requests_and_the_fields_report_only_limits_that_applied() {
    let reads = RateLimiter::builder().name("all").limit("10/h").build();
    let writes = RateLimiter::builder().name("writes").limit("1/h").build();
    let writes =
        LimitRule::per_caller(writes.unwrap()).only_if(|request| request.method() == "POST");
    let layer = RateLimitLayer::new(reads.unwrap()).and(writes);
    let service = layer.layer(app());
    let read = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(read.headers()["ratelimit"], r#""all";r=9;t=360"#);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let mut write = request();
        *write.method_mut() = http::Method::POST;
        let response = service.clone().oneshot(write).await.unwrap();
        let field = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(field.contains("\"writes\";r=0"), "{field}");
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 429]);
}

#[tokio::test]
async fn a_cost_function_can_charge_by_body_size() {
    let limiter = RateLimiter::new("100/h").unwrap();
    let rule = LimitRule::per_caller(limiter.clone()).cost(|request| {
        request
            .body_bytes()
            .map_or(10, |bytes| bytes.div_ceil(1024))
    });
    let layer = RateLimitLayer::new(rule);
    let body = |kib: usize| {
        let mut request = request();
        *request.method_mut() = http::Method::POST;
        *request.body_mut() = Body::from(vec![b'x'; kib * 1024]);
        request
    };
    let service = layer.layer(app());
    let response = service.clone().oneshot(body(60)).await.unwrap();
    assert_eq!(response.headers()["x-ratelimit-remaining"], "40");
    let refused = service.clone().oneshot(body(60)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["x-ratelimit-remaining"], "40");
    assert_eq!(refused.headers()["retry-after"], "720");
    // More than the capacity: waiting does not help, so there is no Retry-After.
    let never = service.oneshot(body(101)).await.unwrap();
    assert_eq!(never.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!never.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn refusals_are_problem_documents_in_json_or_xml_or_custom_responses() {
    let limiter = || {
        let builder = RateLimiter::builder().name("per-caller").limit("1/h");
        let limiter = builder.build().unwrap();
        limiter.blocking().set_level([1, 2], 0).unwrap();
        limiter
    };
    let empty = |format| {
        let rule = LimitRule::global(limiter()).cost(|_| 1);
        RateLimitLayer::new(rule).problem_format(format)
    };
    for (format, content_type) in [
        (ProblemFormat::Json, "application/problem+json"),
        (ProblemFormat::Xml, "application/problem+xml"),
    ] {
        let service = empty(format).layer(app());
        service.clone().oneshot(request()).await.unwrap();
        let refused = service.oneshot(request()).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()["content-type"], content_type);
        assert_eq!(refused.headers()["retry-after"], "3600");
    }

    let teapot = empty(ProblemFormat::Json).on_refusal(|refusal| {
        assert_eq!(refusal.cause(), RefusalCause::Limit);
        assert_eq!(refusal.policy(), "per-caller");
        let mut response = Response::new("come back later");
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    let service = teapot.layer(app());
    service.clone().oneshot(request()).await.unwrap();
    let refused = service.oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::IM_A_TEAPOT);
    assert_eq!(refused.headers()["x-ratelimit-remaining"], "0");
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "come back later");
}

#[tokio::test]
async fn grpc_requests_get_a_grpc_status() {
    let layer = RateLimitLayer::new(RateLimiter::new("1/h").unwrap());
    let service = layer.layer(app());
    service.clone().oneshot(request()).await.unwrap();
    let mut grpc = request();
    let content_type = "application/grpc+proto".parse().unwrap();
    grpc.headers_mut().insert("content-type", content_type);
    let refused = service.oneshot(grpc).await.unwrap();
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(refused.headers()["grpc-status"], "8");
    assert_eq!(refused.headers()["content-type"], "application/grpc");
    assert_eq!(refused.headers()["retry-after"], "3600");
}

#[tokio::test]
async fn while_the_store_is_unavailable_the_failure_policy_answers_503_or_admits() {
    // No server listens on this port.
    let store = RedisStore::builder()
        .address("127.0.0.1:1")
        .build()
        .unwrap();
    let limiter = |on_failure| {
        let builder = RateLimiter::builder().name("per-caller").limit("1/h");
        builder.redis(&store, on_failure).build().unwrap()
    };
    let denying = RateLimitLayer::new(limiter(OnFailure::Deny)).layer(app());
    let refused = denying.oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(!refused.headers().contains_key("x-ratelimit-remaining"));

    let settlements = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&settlements);
    let rule = LimitRule::per_caller(limiter(OnFailure::Allow)).price(move |_, taken| {
        count.fetch_add(1, Ordering::Relaxed);
        taken + 19
    });
    let allowing = RateLimitLayer::new(rule).layer(app());
    for _ in 0..3 {
        let response = allowing.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(
        settlements.load(Ordering::Relaxed),
        3,
        "settled, with nothing to settle"
    );
}

#[tokio::test]
async fn a_site_that_rotates_its_addresses_meets_a_second_limit() {
    let per_address = RateLimiter::builder().name("per-address").limit("2/h");
    let per_site = RateLimiter::builder().name("per-site").limit("4/h");
    let second = LimitRule::per_ipv6_network(per_site.build().unwrap(), 48);
    let layer = RateLimitLayer::new(per_address.build().unwrap()).and(second);
    let service = layer.layer(app());
    let send = async |peer: String| {
        let mut request = Request::new(Body::empty());
        let peer = PeerAddr(peer.parse().unwrap());
        request.extensions_mut().insert(peer);
        let response = service.clone().oneshot(request).await.unwrap();
        let field = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        (response.status().as_u16(), field)
    };
    // Each request from another /64 of one /48.
    let mut statuses = Vec::new();
    for network in 0..6 {
        let (status, field) = send(format!("[2001:db8:1:{network}::1]:4711")).await;
        assert!(field.contains("\"per-site\""), "{field}");
        statuses.push(status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    // The neighbours are not affected, and IPv4 callers have the first limit only.
    assert_eq!(send("[2001:db8:2::1]:4711".to_owned()).await.0, 200);
    let mut statuses = Vec::new();
    for host in [1, 2, 3, 3, 3] {
        let (status, field) = send(format!("203.0.113.{host}:4711")).await;
        assert!(!field.contains("per-site"), "{field}");
        statuses.push(status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}
