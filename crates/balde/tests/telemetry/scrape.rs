//! The example, scraped by a real Prometheus and read by its promtool.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::patience;
use crate::prometheus::{Prometheus, promtool_complaints};

#[path = "../../examples/metrics_server.rs"]
#[expect(dead_code, reason = "only its router is served here")]
mod metrics_server;

const FIXED: [&str; 6] = [
    "rate_limiter_decisions_total",
    "rate_limiter_latency_ms",
    "rate_limiter_backend_errors_total",
    "rate_limiter_fallback_total",
    "rate_limiter_lock_contention_total",
    "rate_limiter_script_duration_ms",
];

async fn serve() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.unwrap();
    let address = listener.local_addr().unwrap();
    let app = metrics_server::app().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

async fn get(url: &str) -> reqwest::Response {
    let _ring = rustls::crypto::ring::default_provider().install_default();
    let asking = reqwest::Client::new().get(url).header("X-Api-Key", "alice");
    asking.send().await.unwrap()
}

/// Names of metrics as queries find them: a histogram is three.
fn names(exposition: &str) -> BTreeSet<String> {
    let types = exposition
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .flat_map(|described| match described.split_once(' ').unwrap() {
            (name, "histogram") => ["_bucket", "_count", "_sum"]
                .map(|suffix| format!("{name}{suffix}"))
                .to_vec(),
            (name, _) => vec![name.to_owned()],
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_finds_every_metric_of_the_example() {
    let address = serve().await;
    for _ in 0..8 {
        get(&format!("http://{address}/")).await;
    }
    let exposition = get(&format!("http://{address}/metrics"))
        .await
        .text()
        .await
        .unwrap();
    let names = names(&exposition);
    for fixed in FIXED {
        let is_there = |name: &String| name == fixed || *name == format!("{fixed}_bucket");
        assert!(names.iter().any(is_there), "{fixed} in {exposition}");
    }
    let starting = tokio::task::spawn_blocking(move || Prometheus::scraping(address));
    let Some(prometheus) = starting.await.unwrap() else {
        return;
    };
    let searching = tokio::task::spawn_blocking(move || {
        for name in &names {
            let in_time = patience("Prometheus has every metric");
            while prometheus.query(name).is_empty() {
                in_time();
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        assert!(prometheus.targets().contains(r#""health":"up""#));
        let query = r#"sum(rate_limiter_decisions_total{policy="per-key"})"#;
        let found = prometheus.query(query);
        assert_eq!(found[0].1, "8", "{found:?}");
        let query = r#"rate_limiter_decisions_total{decision="allow"}"#;
        let (labels, number) = prometheus.query(query).remove(0);
        assert_eq!(labels["policy"], "per-key");
        assert!(number.parse::<u64>().unwrap() >= 5);
    });
    searching.await.unwrap();
}

#[tokio::test]
async fn promtool_objects_to_nothing_but_two_names_that_are_not_ours_to_change() {
    let address = serve().await;
    get(&format!("http://{address}/")).await;
    let scraped = get(&format!("http://{address}/metrics")).await;
    let kind = scraped.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(kind, balde::telemetry::METRICS_CONTENT_TYPE);
    let exposition = scraped.text().await.unwrap();
    let Some(complaints) = promtool_complaints(&exposition) else {
        return;
    };
    let expected = ["rate_limiter_latency_ms", "rate_limiter_script_duration_ms"]
        .map(|name| format!("{name} metric names should not contain abbreviated units"));
    assert_eq!(complaints, expected);
}
