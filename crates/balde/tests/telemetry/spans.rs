//! Spans as a collector receives them: the check, the call to Redis below it, and no key.

use balde::telemetry::{Otlp, continue_trace, json_logs_to};
use balde::{OnFailure, RateLimiter, RedisStore, check_all};
use opentelemetry_proto::tonic::trace::v1::Span;
use tracing::Instrument;
use tracing::subscriber::set_default;
use tracing_subscriber::layer::SubscriberExt;

use crate::otlp_collector::{Collector, attribute};
use crate::redis_server::RedisServer;
use crate::{Written, hex, patience};

fn named<'s>(spans: &'s [Span], name: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[tokio::test]
async fn a_check_in_redis_is_a_span_with_the_call_below_it() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let collector = Collector::start();
    let (layer, guard) = Otlp::grpc(collector.url())
        .service_name("spans")
        .layer()
        .unwrap();
    crate::have_two_listeners();
    let _listening = set_default(tracing_subscriber::registry().with(layer));
    let store = RedisStore::new(server.url()).unwrap();
    let limiter = RateLimiter::builder()
        .name("per-user")
        .limit("1/h")
        .redis(&store, OnFailure::Deny)
        .build()
        .unwrap();
    let in_time = patience("the store answers");
    while limiter.check("early-bird").await.is_fallback() {
        in_time();
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(limiter.check("customer-4711").await.is_allowed());
    assert!(!limiter.check("customer-4711").await.is_allowed());
    // From a thread of somebody's, and from an executor that is not tokio's.
    let checked = limiter.clone();
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let blocking = move || {
        tracing::dispatcher::with_default(&dispatch, || checked.blocking().check("customer-4712"))
    };
    tokio::task::spawn_blocking(blocking).await.unwrap();
    limiter.charge("customer-4713", 3).await.unwrap();
    guard.flush().unwrap();

    let spans = collector.spans();
    let checks = named(&spans, "rate_limiter.check");
    let calls = named(&spans, "rate_limiter.redis");
    let below = |check: &Span| -> Vec<&&Span> {
        let is_below = |call: &&&Span| call.parent_span_id == check.span_id;
        calls.iter().filter(is_below).collect()
    };
    let later: Vec<_> = checks.iter().rev().take(3).rev().collect();
    assert_eq!(later.len(), 3, "{spans:?}");
    for (check, decision) in later.iter().zip(["allow", "deny", "allow"]) {
        assert_eq!(attribute(check, "decision"), decision);
        assert_eq!(attribute(check, "strategy"), "token_bucket");
        assert_eq!(attribute(check, "storage_mode"), "redis");
        assert_eq!(attribute(check, "policy"), "per-user");
        assert_eq!(attribute(check, "key_hash").len(), 64);
        let calls = below(check);
        assert_eq!(calls.len(), 1, "one call to the store");
        assert_eq!(calls[0].trace_id, check.trace_id);
        assert_eq!(attribute(calls[0], "outcome"), "answered");
    }
    assert_eq!(
        attribute(later[0], "key_hash"),
        attribute(later[1], "key_hash")
    );
    assert_ne!(
        attribute(later[1], "key_hash"),
        attribute(later[2], "key_hash")
    );
    let operations = named(&spans, "rate_limiter.operation");
    assert_eq!(attribute(operations[0], "operation"), "charge");
    assert_eq!(below(operations[0]).len(), 1);
    let text = collector.text();
    assert!(text.contains("spans"), "the service has its name");
    assert!(!text.contains("customer-47"), "no key is exported");
}

#[tokio::test]
async fn several_buckets_are_one_span_with_their_own_below_it() {
    let collector = Collector::start();
    let (layer, guard) = Otlp::grpc(collector.url()).layer().unwrap();
    crate::have_two_listeners();
    let _listening = set_default(tracing_subscriber::registry().with(layer));
    let build = |name: &str, limit: &str| {
        let builder = RateLimiter::builder().name(name).limit(limit);
        builder.build().unwrap()
    };
    let (per_user, overall) = (build("per-user", "9/h"), build("overall", "1/h window"));
    let requests = [per_user.request("a"), overall.request("everyone")];
    assert!(check_all(&requests).await.is_allowed());
    assert!(!check_all(&requests).await.is_allowed());
    drop(guard);

    let spans = collector.spans();
    let wholes = named(&spans, "rate_limiter.check_all");
    assert_eq!(wholes.len(), 2);
    assert_eq!(attribute(wholes[1], "decision"), "deny");
    assert_eq!(attribute(wholes[1], "refused_by"), "overall");
    let parts = named(&spans, "rate_limiter.check");
    let of_first: Vec<_> = parts
        .iter()
        .filter(|part| part.parent_span_id == wholes[0].span_id)
        .map(|part| (attribute(part, "policy"), attribute(part, "strategy")))
        .collect();
    assert_eq!(of_first.len(), 2, "{parts:?}");
    assert!(of_first.contains(&("overall".to_owned(), "fixed_window".to_owned())));
}

#[tokio::test]
async fn a_trace_that_began_elsewhere_goes_on_and_lines_say_so() {
    let collector = Collector::start();
    let (layer, guard) = Otlp::grpc(collector.url())
        .sample_one_in(u32::MAX)
        .layer()
        .unwrap();
    let written = Written::default();
    let subscriber = tracing_subscriber::registry()
        .with(layer)
        .with(json_logs_to(written.clone()));
    crate::have_two_listeners();
    let _listening = set_default(subscriber);
    let limiter = RateLimiter::new("1/h").unwrap();
    limiter.check("a").await;

    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut headers = http::HeaderMap::new();
    let value = format!("00-{trace}-00f067aa0ba902b7-01");
    headers.insert("traceparent", value.parse().unwrap());
    let request = tracing::info_span!("request");
    continue_trace(&request, &headers);
    limiter.check("a").instrument(request).await;

    let garbled = tracing::info_span!("garbled");
    headers.insert("traceparent", "00-zz".parse().unwrap());
    continue_trace(&garbled, &headers);
    drop(garbled);
    drop(guard);

    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        ["rate_limiter.check", "request"],
        "only what the caller sampled"
    );
    assert_eq!(hex(&spans[1].trace_id), trace);
    assert_eq!(hex(&spans[1].parent_span_id), "00f067aa0ba902b7");
    assert_eq!(spans[0].parent_span_id, spans[1].span_id);
    let line = &written.of("denied")[0];
    assert_eq!(line["trace_id"], trace);
    assert_eq!(
        line["span_id"],
        hex(&spans[0].span_id),
        "of the check itself"
    );
}

#[tokio::test]
async fn spans_go_over_http_too() {
    use axum::Router;
    use axum::body::Bytes;
    use axum::routing::post;

    let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
    let receive = move |body: Bytes| async move {
        sender.send(body).await.unwrap();
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/v1/traces", post(receive));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let (layer, guard) = Otlp::http(format!("http://{address}")).layer().unwrap();
    {
        crate::have_two_listeners();
        let _listening = set_default(tracing_subscriber::registry().with(layer));
        RateLimiter::new("1/s")
            .unwrap()
            .check("customer-4711")
            .await;
    }
    // The collector is on this very thread here, so it must not be held up.
    tokio::task::spawn_blocking(move || drop(guard))
        .await
        .unwrap();
    let body = receiver.recv().await.unwrap();
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("rate_limiter.check") && text.contains("token_bucket"));
    assert!(!text.contains("customer-4711"));
}
