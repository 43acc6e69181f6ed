//! The example, scraped by a real Prometheus and read by its promtool.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tower::ServiceExt;

use crate::patience;
use crate::prometheus::{Prometheus, promtool_complaints};

#[path = "../../examples/metrics_server.rs"]
#[expect(dead_code, reason = "only its router is served here")]
mod metrics_server;

/// The names that dashboards were promised.
pub(crate) const FIXED: [&str; 6] = [
    "rate_limiter_decisions_total",
    "rate_limiter_latency_ms",
    "rate_limiter_backend_errors_total",
    "rate_limiter_fallback_total",
    "rate_limiter_lock_contention_total",
    "rate_limiter_script_duration_ms",
];

async fn serve() -> SocketAddr {
    serve_with("/metrics").await
}

/// The example, with another of its pages as the one that Prometheus scrapes.
async fn serve_with(page: &'static str) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.unwrap();
    let address = listener.local_addr().unwrap();
    let app = metrics_server::app().unwrap();
    let app = tower::service_fn(move |mut request: axum::extract::Request| {
        if request.uri().path() == "/metrics" {
            *request.uri_mut() = http::Uri::from_static(page);
        }
        app.clone().oneshot(request)
    });
    let app = tower::make::Shared::new(app);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

pub(crate) async fn get(url: &str) -> reqwest::Response {
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
    let in_seconds = FIXED.map(|name| match name.strip_suffix("_ms") {
        Some(stem) => format!("{stem}_seconds"),
        None => name.to_owned(),
    });
    prometheus_finds("/metrics", &in_seconds).await;
    prometheus_finds("/metrics/ms", &FIXED.map(str::to_owned)).await;
}

async fn prometheus_finds(page: &'static str, fixed: &[String]) {
    let address = serve_with(page).await;
    for _ in 0..8 {
        get(&format!("http://{address}/")).await;
    }
    let exposition = get(&format!("http://{address}/metrics"))
        .await
        .text()
        .await
        .unwrap();
    let names = names(&exposition);
    for fixed in fixed {
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
async fn promtool_objects_to_nothing_in_the_example() {
    let address = serve().await;
    get(&format!("http://{address}/")).await;
    let scraped = get(&format!("http://{address}/metrics")).await;
    let kind = scraped.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(kind, balde::telemetry::METRICS_CONTENT_TYPE);
    let exposition = scraped.text().await.unwrap();
    if let Some(complaints) = promtool_complaints(&exposition) {
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}

#[tokio::test]
async fn of_the_documented_names_promtool_objects_to_two_that_are_not_ours_to_change() {
    let address = serve().await;
    get(&format!("http://{address}/")).await;
    let page = get(&format!("http://{address}/metrics/ms")).await;
    let documented = page.text().await.unwrap();
    if let Some(complaints) = promtool_complaints(&documented) {
        let expected = ["rate_limiter_latency_ms", "rate_limiter_script_duration_ms"]
            .map(|name| format!("{name} metric names should not contain abbreviated units"));
        assert_eq!(complaints, expected);
    }
    // Apart from these two the pages say the same.
    let page = get(&format!("http://{address}/metrics")).await;
    let in_seconds = page.text().await.unwrap();
    let others = |text: &str| -> Vec<String> {
        let is_other = |line: &&str| !line.contains("latency_") && !line.contains("duration_");
        text.lines().filter(is_other).map(str::to_owned).collect()
    };
    assert_eq!(others(&documented), others(&in_seconds));
    let value = |text: &str, series: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("{series} in {text}"))
            .trim()
            .parse()
            .unwrap()
    };
    let memory = r#"{storage_mode="memory"}"#;
    let ms = value(&documented, &format!("rate_limiter_latency_ms_sum{memory}"));
    let seconds = value(
        &in_seconds,
        &format!("rate_limiter_latency_seconds_sum{memory}"),
    );
    assert!(
        ms > 0.0 && (ms / seconds - 1e3).abs() < 1e-6,
        "{ms} ms, {seconds} s"
    );
    assert!(in_seconds.contains(r#"rate_limiter_latency_seconds_bucket{le="0.1",storage_mode="#));
}
