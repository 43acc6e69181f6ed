//! Another configuration while requests are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use balde::{Clock, ManualClock};

use crate::backend::Backend;
use crate::running::{PATIENCE, Running, parse, simple};

fn policies(capacity: u64) -> String {
    format!(
        "[[policies.policy]]\nname = \"all\"\nlimit = \"1/day burst {capacity}\"\n\
         [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n"
    )
}

#[tokio::test]
async fn a_reload_under_load_loses_no_request_and_no_bucket() {
    let backend = Backend::start().await;
    let clock = ManualClock::at_us(1_000_000_000);
    let config = parse(&simple(backend.address, &policies(10_000)));
    let gateway = Running::start_with(&config, Clock::manual(&clock)).await;
    let gateway = Arc::new(gateway);
    let is_over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for _ in 0..8 {
        let (gateway, is_over, served) = (gateway.clone(), is_over.clone(), served.clone());
        clients.push(tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(gateway.status("/").await, 200);
                served.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let mut capacity = 10_000;
    for round in 0_u64..20 {
        let target = served.load(Ordering::SeqCst) + 10;
        let reached = async {
            while served.load(Ordering::SeqCst) < target {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.unwrap();
        // Other policies, other timeouts and other routes.
        capacity = 10_000 + round * 10;
        let text = simple(backend.address, &policies(capacity));
        let text = text.replace(
            "[[route]]",
            &format!("body_timeout = '{} ms'\n[[route]]", 1_000 + round),
        );
        // The addresses of the file are 127.0.0.1:0, which have not changed.
        gateway.gateway.reload(&parse(&text)).unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    let served = served.load(Ordering::SeqCst);
    assert_eq!(backend.received().len(), served);
    let states = gateway.states("").await;
    let bucket = &states["policies"][0];
    assert_eq!(bucket["capacity"], capacity);
    let level = bucket["level"].as_u64().unwrap();
    assert_eq!(
        level,
        capacity - served as u64,
        "every request is in the bucket"
    );
    let metrics = gateway.metrics();
    assert!(
        metrics.contains("gateway_reloads_total{result=\"applied\"} 20"),
        "{metrics}"
    );
}

#[tokio::test]
async fn what_needs_a_restart_is_refused_and_changes_nothing() {
    let backend = Backend::start().await;
    let text = simple(backend.address, &policies(5));
    let gateway = Running::start(&text).await;
    for (from, to, what) in [
        (
            "[[listener]]\naddress = \"127.0.0.1:0\"",
            "[[listener]]\naddress = \"127.0.0.1:1\"",
            "listeners",
        ),
        (
            "[state]\naddress = \"127.0.0.1:0\"",
            "[state]\naddress = \"127.0.0.1:1\"",
            "state endpoint",
        ),
        (
            "[[policies.policy]]\nname = \"all\"\nlimit = \"1/day burst 5\"\n",
            "",
            "policies",
        ),
    ] {
        let other = text.replace(from, to);
        assert_ne!(other, text);
        let error = gateway
            .gateway
            .reload(&parse(&other))
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{error}");
        assert!(error.contains("restart"), "{error}");
    }
    assert_eq!(gateway.status("/").await, 200);
    let metrics = gateway.metrics();
    assert!(
        metrics.contains("gateway_reloads_total{result=\"refused\"} 3"),
        "{metrics}"
    );
}
