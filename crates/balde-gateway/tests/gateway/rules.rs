//! The gateway's alert rules and dashboard: promtool's tests, and a real Prometheus that scrapes a real
//! gateway whose upstream, Redis and file break and are mended.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::prometheus::{Prometheus, promtool_complaints, promtool_tests};
use crate::redis_server::RedisServer;
use crate::running::{Running, TOKEN, parse};
use crate::simulated::{Dict, PAYER, key, order};
use crate::tls::{Authority, text};

/// Only there to end a test that would otherwise never end.
const WITHIN: Duration = Duration::from_secs(120);

fn deploy(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../deploy").join(file).canonicalize().unwrap()
}

#[test]
fn promtool_tests_the_rules() {
    promtool_tests(
        &deploy("prometheus"),
        "balde-gateway-rules.yml",
        "balde-gateway-rules-test.yml",
    );
}

/// The rules with minutes that are seconds.
fn hurried(text: &str) -> String {
    let mut hurried = text.to_owned();
    for minutes in [1, 2, 5, 15] {
        hurried = hurried.replace(&format!("for: {minutes}m"), "for: 1s");
        hurried = hurried.replace(&format!("[{minutes}m]"), "[2s]");
    }
    hurried.replace("for: 1h", "for: 1s")
}

/// The queries of every panel, with everything selected.
fn dashboard_queries() -> Vec<(i64, String)> {
    let dashboard = std::fs::read_to_string(deploy("grafana/balde-gateway.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<i64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_i64())
        .collect();
    assert_eq!(ids.len(), panels.len());
    let queries = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().unwrap();
        targets.iter().map(|target| {
            let text = target["expr"].as_str().unwrap();
            let text = text.replace("$job", ".*").replace("$route", ".*");
            (
                panel["id"].as_i64().unwrap(),
                text.replace("$__rate_interval", "5s"),
            )
        })
    });
    queries.collect()
}

/// A gateway with TLS whose buckets are in Redis, in front of a backend that can be stopped.
struct World {
    authority: Authority,
    redis: RedisServer,
    upstream: std::net::SocketAddr,
}

impl World {
    fn file(&self) -> String {
        let (certificate, key, _) = self.authority.issue("gateway");
        format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\ncertificate = {:?}\nkey = {:?}\n\
             [[upstream]]\nname = \"backend\"\nurl = \"http://{}\"\n\
             [[route]]\npath = \"/\"\nupstream = \"backend\"\n\
             [limiting]\nstorage = \"redis\"\n[redis]\naddress = \"{}\"\n\
             [[policies.policy]]\nname = \"all\"\nlimit = \"1000/s burst 1000\"\n\
             [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n",
            text(&certificate),
            text(&key),
            self.upstream,
            self.redis.addr()
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_fire_for_a_running_gateway_and_resolve() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let backend = Backend::start().await;
    let upstream = backend.address;
    let mut world = World {
        authority: Authority::new(),
        redis,
        upstream,
    };
    let gateway = Running::start(&world.file()).await;
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yml");
    let text = std::fs::read_to_string(deploy("prometheus/balde-gateway-rules.yml")).unwrap();
    std::fs::write(&rules, hurried(&text)).unwrap();
    let state = gateway.state.unwrap();
    let starting =
        tokio::task::spawn_blocking(move || Prometheus::with_token(&[state], TOKEN, &[&rules]));
    let Some(prometheus) = starting.await.unwrap() else {
        return;
    };
    let client = world.authority.client(None);
    let url = format!("https://{}/", gateway.address);
    let traffic = tokio::spawn(async move {
        loop {
            // Any response is fine: the backend and Redis are broken now and then.
            let _response = client.get(&url).send().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let firing = || -> BTreeSet<String> {
        let name = |alert: &serde_json::Value| alert["alertname"].as_str().unwrap().to_owned();
        prometheus.firing().iter().map(name).collect()
    };
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            let state = || format!("{what}: {:?} {}", firing(), prometheus.targets());
            assert!(start.elapsed() < WITHIN, "{}", state());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let fires = |name: &str| firing().contains(name);
    let scraped = "gateway_requests_total";
    until("it is scraped", &|| !prometheus.query(scraped).is_empty()).await;
    // The certificate of the test is valid for centuries; nothing is wrong yet.
    until("peace", &|| firing().is_empty()).await;
    let expiry = prometheus.query("gateway_certificate_expiry_timestamp_seconds");
    assert_eq!(expiry[0].0["side"], "listener");

    gateway.gateway.reload_refused();
    until("refused", &|| fires("GatewayReloadRefused")).await;
    gateway.gateway.reload(&parse(&world.file())).unwrap();
    until("applied", &|| !fires("GatewayReloadRefused")).await;

    world.redis.kill();
    until("no Redis", &|| fires("GatewayRedisDown")).await;
    world.redis.restart();
    until("Redis again", &|| !fires("GatewayRedisDown")).await;

    drop(backend);
    until("no upstream", &|| {
        fires("GatewayUpstreamDown") && fires("GatewayErrors")
    })
    .await;
    let backend = Backend::start_on(upstream).await;
    until("the upstream again", &|| firing().is_empty()).await;
    drop(backend);
    traffic.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_the_dashboard_finds_something_and_promtool_accepts_the_base_units() {
    let dict = Dict::start('F').await;
    let gateway = dict.gateway("reconcile_every = '0 ms'", "").await;
    gateway.gateway.reconcile().await;
    let state = gateway.state.unwrap();
    let starting =
        tokio::task::spawn_blocking(move || Prometheus::with_token(&[state], TOKEN, &[]));
    let Some(prometheus) = starting.await.unwrap() else {
        return;
    };
    let start = Instant::now();
    // Series that a gateway without TLS, Redis or refusals does not have.
    let absent = [
        "gateway_certificate_expiry",
        "gateway_refusals_total",
        "rate_limiter_backend",
    ];
    loop {
        let _found = gateway.look_up(&key(1), PAYER, &order(1)).await;
        let empty: Vec<(i64, String)> = dashboard_queries()
            .into_iter()
            .filter(|(_, query)| !absent.iter().any(|name| query.contains(name)))
            .filter(|(_, query)| prometheus.query(query).is_empty())
            .collect();
        if empty.is_empty() {
            break;
        }
        assert!(start.elapsed() < WITHIN, "no series for {empty:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let metrics = gateway.gateway.metrics();
    if let Some(complaints) = promtool_complaints(&metrics.encode_in_seconds()) {
        assert_eq!(complaints, Vec::<String>::new());
    }
    let page = metrics.encode_in_both_units();
    for name in [
        "gateway_request_duration_ms_count",
        "gateway_request_duration_seconds_count",
        "rate_limiter_latency_ms_count",
        "rate_limiter_latency_seconds_count",
        "gateway_dict_not_found_permille{",
        "gateway_dict_not_found_ratio{",
        "gateway_last_reload_successful 1",
    ] {
        assert!(page.contains(name), "{name} in {page}");
    }
}
