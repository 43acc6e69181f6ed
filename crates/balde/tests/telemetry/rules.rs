//! A service that is limited through an options file: it exports every documented metric, promtool
//! accepts its page, and the alert rules fire in a real Prometheus while Redis is away, and resolve.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use balde::Options;
use balde::http::RateLimitLayer;
use balde::telemetry::METRICS_CONTENT_TYPE;

use crate::prometheus::{Prometheus, promtool_complaints, promtool_tests};
use crate::redis_server::RedisServer;
use crate::scrape;

/// The rules' minutes are seconds here.
const SPEED: u64 = 60;

const DONE_WITHIN: Duration = Duration::from_secs(120);

fn deploy(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../deploy").join(file).canonicalize().unwrap()
}

/// An axum service that is limited and observed as its options file says.
async fn service(redis: &str, telemetry: &str) -> SocketAddr {
    let file = format!(
        "[limits.per-address]\nlimit = \"1000000/s\"\nstorage = \"redis\"\non_failure = \"allow\"\n\
         [limits.everyone]\nlimit = \"1000000/s\"\n\
         [redis]\naddress = \"{redis}\"\n{telemetry}"
    );
    let options = Options::parse_with(&file, "limits.toml", |_| None).unwrap();
    let limiters = options.build().unwrap();
    let metrics = limiters.metrics().expect("they are on").clone();
    let limit = |name| limiters.get(name).unwrap().clone();
    let layer = RateLimitLayer::new(limit("per-address"))
        .and(limit("everyone"))
        .identity(limiters.identity().clone())
        .headers(limiters.header_options());
    let page = move || async move { ([(CONTENT_TYPE, METRICS_CONTENT_TYPE)], metrics.encode()) };
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(layer)
        .route("/metrics", get(page));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

async fn page(address: SocketAddr) -> String {
    let page = scrape::get(&format!("http://{address}/metrics")).await;
    page.text().await.unwrap()
}

/// The rules with every duration shortened.
fn hurried(rules: &str) -> String {
    let mut hurried = String::new();
    let mut rest = rules;
    let is_digit = |c: char| c.is_ascii_digit();
    while let Some(at) = rest.find(is_digit) {
        hurried.push_str(&rest[..at]);
        let before = hurried.chars().last();
        rest = &rest[at..];
        let digits = rest.find(|c| !is_digit(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let seconds = match after.chars().next() {
            Some('m') => 60,
            Some('h') => 3_600,
            Some('d') => 86_400,
            _ => 0,
        };
        let is_duration = matches!(before, Some('[' | ' ')) && seconds > 0;
        if is_duration && !after[1..].starts_with(|c: char| c.is_alphanumeric()) {
            let number: u64 = number.parse().unwrap();
            hurried.push_str(&(number * seconds / SPEED).to_string());
            hurried.push('s');
            rest = &after[1..];
        } else {
            hurried.push_str(number);
            rest = after;
        }
    }
    hurried + rest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_fire_while_redis_is_stopped_and_resolve() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let address = service(&server.url(), "[metrics]\nunit = \"seconds\"\n").await;
    let traffic = tokio::spawn(async move {
        loop {
            let answer = scrape::get(&format!("http://{address}/")).await;
            assert_eq!(answer.status(), 200, "on_failure = \"allow\"");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    if let Some(complaints) = promtool_complaints(&page(address).await) {
        assert_eq!(complaints, Vec::<String>::new());
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yml");
    let text = std::fs::read_to_string(deploy("prometheus/balde-limits-rules.yml")).unwrap();
    let text = hurried(&text);
    assert!(text.contains("[2s]") && text.contains("for: 1s") && text.contains("[1440s]"));
    std::fs::write(&rules, text).unwrap();
    let starting = tokio::task::spawn_blocking(move || Prometheus::with_rules(address, &[&rules]));
    let Some(prometheus) = starting.await.unwrap() else {
        return;
    };
    let firing = || -> BTreeSet<String> {
        let name = |alert: &serde_json::Value| alert["alertname"].as_str().unwrap().to_owned();
        prometheus.firing().iter().map(name).collect()
    };
    let outage = ["RateLimiterBreakerOpen", "RateLimiterFallbackActive"].map(str::to_owned);
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            let state = || format!("{what}: {:?} {}", firing(), prometheus.targets());
            assert!(start.elapsed() < DONE_WITHIN, "{}", state());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let scraped = r#"rate_limiter_decisions_total{policy="per-address",decision="allow"}"#;
    until("it is scraped", &|| !prometheus.query(scraped).is_empty()).await;
    assert!(firing().is_disjoint(&BTreeSet::from(outage.clone())));
    server.kill();
    until("both fire", &|| {
        outage.iter().all(|name| firing().contains(name))
    })
    .await;
    server.restart();
    until("both resolve", &|| {
        outage.iter().all(|name| !firing().contains(name))
    })
    .await;
    assert!(!traffic.is_finished(), "all requests were answered");
    traffic.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_an_options_file_has_every_metric_of_the_document() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let address = service(&server.url(), "").await;
    scrape::get(&format!("http://{address}/")).await;
    let text = page(address).await;
    for name in scrape::FIXED {
        assert!(
            text.contains(&format!("# TYPE {name} ")),
            "{name} in {text}"
        );
    }
    let allowed = r#"rate_limiter_decisions_total{decision="allow",policy="per-address"} 1"#;
    assert!(text.contains(allowed), "{text}");
    // Every metric that the rules and the dashboard use exists, in one unit or the other. The
    // throttler's have a test of their own.
    let exported = names(&text, "rate_limiter_");
    let other_unit = |name: &String| name.replace("_seconds", "_ms");
    for file in [
        "prometheus/balde-limits-rules.yml",
        "grafana/balde-limits.json",
    ] {
        let used = std::fs::read_to_string(deploy(file)).unwrap();
        let used: BTreeSet<String> = names(&used, "rate_limiter_")
            .iter()
            .map(other_unit)
            .collect();
        assert!(used.len() > 8, "{used:?}");
        let missing: Vec<_> = used.difference(&exported).collect();
        assert!(missing.is_empty(), "{file}: {missing:?}");
    }
    let dashboard = std::fs::read_to_string(deploy("grafana/balde-limits.json")).unwrap();
    let shown: BTreeSet<String> = names(&dashboard, "rate_limiter_");
    for name in scrape::FIXED {
        let is_it = |one: &String| one == name || *one == format!("{name}_bucket");
        assert!(shown.iter().any(is_it), "{name} is on the dashboard");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<i64> = panels
        .iter()
        .map(|panel| panel["id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids.len(), panels.len());
}

/// Every name in a text that begins like this, as queries write it.
fn names(text: &str, prefix: &str) -> BTreeSet<String> {
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_' || one == ':';
    let words = text.split(|one| !is_of_name(one));
    let is_ours = |word: &&str| {
        let rest = word.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty()) && !word.contains(':')
    };
    words.filter(is_ours).map(str::to_owned).collect()
}

#[test]
fn promtool_tests_the_rules() {
    promtool_tests(
        &deploy("prometheus"),
        "balde-limits-rules.yml",
        "balde-limits-rules-test.yml",
    );
}
