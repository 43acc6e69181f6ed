//! The tower layer: what clients get, and that every request is settled.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use balde::http::{PeerAddr, UserId};
use balde_policy::{Engine, InFlight, PolicyLayer, Subject};
use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt};

use crate::fixture::{Fixture, PROFILE};

/// Answers with the status in the last segment of the path.
async fn answer(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path();
    let status = path.rsplit('/').next().and_then(|text| text.parse().ok());
    if status == Some(0) {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Body::from("from the service"));
    *response.status_mut() = status
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::OK);
    Ok(response)
}

fn service(
    engine: &Engine,
) -> impl Service<
    Request<Body>,
    Response = Response<balde::http::ResponseBody<Body>>,
    Error = Infallible,
    Future: Send,
> + Clone {
    PolicyLayer::new(engine.clone()).layer(tower::service_fn(answer))
}

fn request(path: &str, user: &str) -> Request<Body> {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    if !user.is_empty() {
        request.extensions_mut().insert(UserId(user.into()));
    }
    request
}

async fn level(engine: &Engine) -> i64 {
    let state = engine.state("lookups", &Subject::user("user:ana")).await;
    state.unwrap().level()
}

#[tokio::test]
async fn a_response_is_settled_by_its_status_and_says_what_remains() {
    let fixture = Fixture::new();
    let response = service(&fixture.engine).oneshot(request("/items/404", "ana"));
    let response = response.await.unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()["x-ratelimit-limit"], "20");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "15");
    assert_eq!(
        response.headers()["ratelimit-policy"],
        r#""lookups";q=20;w=20, "overall";q=1000;w=100"#
    );
    assert_eq!(level(&fixture.engine).await, 15);
    let free = service(&fixture.engine).oneshot(request("/items/500", "ana"));
    assert_eq!(free.await.unwrap().status(), 500);
    assert_eq!(level(&fixture.engine).await, 15);
}

#[tokio::test]
async fn a_refusal_is_a_problem_document_with_the_policy_and_the_wait() {
    for in_flight in [InFlight::Reserved, InFlight::AfterResponse] {
        let fixture = Fixture::with(PROFILE, |builder| builder.in_flight(in_flight));
        let ana = Subject::user("user:ana");
        fixture.engine.set_level("lookups", &ana, -4).await.unwrap();
        let response = service(&fixture.engine).oneshot(request("/items/200", "ana"));
        let response = response.await.unwrap();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "5");
        assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        let body = axum::body::to_bytes(Body::new(response.into_body()), 10_000);
        let body = String::from_utf8(body.await.unwrap().to_vec()).unwrap();
        assert!(
            body.contains(r#""violated-policies":["lookups"]"#),
            "{body}"
        );
        assert_eq!(level(&fixture.engine).await, -4);
    }
}

#[cfg(feature = "prometheus")]
#[tokio::test]
async fn a_request_without_a_usable_key_is_refused_and_counted_and_others_pass() {
    let metrics = balde::telemetry::Metrics::new();
    let fixture = Fixture::with(PROFILE, |builder| builder.metrics(&metrics));
    // The service does not know its peers, so it cannot know its users either.
    let unknown = service(&fixture.engine).oneshot(request("/items/200", ""));
    assert_eq!(unknown.await.unwrap().status(), 500);
    let mut hidden = request("/items/200", "");
    let unspecified = PeerAddr("0.0.0.0:4711".parse().unwrap());
    hidden.extensions_mut().insert(unspecified);
    let hidden = service(&fixture.engine).oneshot(hidden);
    assert_eq!(hidden.await.unwrap().status(), 403);
    let counted = r#"_total{decision="deny",policy="lookups",reason="no_key"} 2"#;
    assert!(metrics.encode().contains(counted), "{}", metrics.encode());
    // A list is not counted by user.
    let list = service(&fixture.engine).oneshot(request("/lists", ""));
    assert_eq!(list.await.unwrap().status(), 200);
    // No policy counts this.
    let other = service(&fixture.engine).oneshot(request("/other", ""));
    let other = other.await.unwrap();
    assert_eq!(other.status(), 200);
    assert!(!other.headers().contains_key("ratelimit"));
}

#[tokio::test]
async fn a_client_that_disconnects_is_settled_as_abandoned() {
    let fixture = Fixture::new();
    {
        let mut response = pin!(service(&fixture.engine).oneshot(request("/items/0", "ana")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(
            response.as_mut().poll(&mut context),
            Poll::Pending
        ));
        assert_eq!(level(&fixture.engine).await, 19);
    }
    assert_eq!(level(&fixture.engine).await, 18);
}

#[tokio::test]
async fn a_profile_with_a_base_path_leaves_other_paths_alone() {
    let profile = "profile = 'p'\nbase_paths = ['/v1']\n[[policy]]\nname = 'p'\nlimit = '1/day'";
    let fixture = Fixture::with(profile, |builder| builder);
    let mut statuses = Vec::new();
    for path in ["/v1/a", "/v1/a", "/v2/a", "/v2/a"] {
        let response = service(&fixture.engine).oneshot(request(path, "")).await;
        statuses.push(response.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200]);
}

#[tokio::test]
async fn other_spellings_of_a_path_are_counted_or_refused() {
    let fixture = Fixture::new();
    for path in [
        "/%69tems/200",
        "//items/200",
        "/items//200/",
        "/items/%32%30%30",
    ] {
        let before = level(&fixture.engine).await;
        let response = service(&fixture.engine).oneshot(request(path, "ana"));
        response.await.unwrap();
        assert_eq!(level(&fixture.engine).await, before - 1, "{path}");
    }
    let before = level(&fixture.engine).await;
    for path in [
        "/x/../items/200",
        "/items/200;x",
        "/items%2F200",
        "/%69tems/%00",
    ] {
        let response = service(&fixture.engine).oneshot(request(path, "ana"));
        assert_eq!(response.await.unwrap().status(), 400, "{path}");
    }
    assert_eq!(level(&fixture.engine).await, before);
}

#[tokio::test]
async fn requests_can_be_exempt_and_refusals_answered_in_ones_own_words() {
    let fixture = Fixture::with(
        "profile = 'p'\n[[policy]]\nname = 'all'\nlimit = '1/min'",
        |builder| builder,
    );
    let layer = PolicyLayer::new(fixture.engine.clone())
        .exempt(|request| request.uri().path() == "/healthz")
        .on_refusal(|refusal| {
            let mut response = Response::new(format!("{} refuses", refusal.policy()));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        });
    let service = layer.layer(tower::service_fn(answer));
    let ask = async |path| service.clone().oneshot(request(path, "")).await.unwrap();
    assert_eq!(ask("/items/200").await.status(), 200);
    let refused = ask("/items/200").await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "60");
    assert_eq!(refused.headers()["x-ratelimit-remaining"], "0");
    let body = axum::body::to_bytes(Body::new(refused.into_body()), 100).await;
    assert_eq!(body.unwrap(), "all refuses");
    let healthy = ask("/healthz").await;
    assert!(healthy.status() == 200 && !healthy.headers().contains_key("x-ratelimit-limit"));
}
