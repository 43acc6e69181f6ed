//! Policies in front of any service.

use std::time::Duration;

use balde::{Clock, ManualClock};
use serde_json::Value;

use crate::backend::Backend;
use crate::running::{PATIENCE, Running, parse, simple};

const POLICIES: &str = "
[[policies.policy]]
name = \"searches\"
match = [\"GET /status/{code}\"]
scope = \"user\"
limit = \"1/min burst 100\"
costs = { 200 = 1, 404 = 20, 500 = 0, default = 1 }
[state]
address = \"127.0.0.1:0\"
token_env = \"TOKEN\"
";

async fn level(gateway: &Running) -> i64 {
    let states = gateway.states("user=ip:127.0.0.1").await;
    states["policies"][0]["level"].as_i64().unwrap()
}

#[tokio::test]
async fn a_request_is_settled_by_its_outcome_exactly_once() {
    let backend = Backend::start().await;
    let clock = ManualClock::at_us(1_000_000_000);
    let config = parse(&simple(backend.address, POLICIES));
    let gateway = Running::start_with(&config, Clock::manual(&clock)).await;
    for (path, status, expected) in [
        ("/status/200", 200, 99),
        ("/status/404", 404, 79),
        ("/status/500", 500, 79),
        ("/elsewhere", 200, 79),
    ] {
        assert_eq!(gateway.status(path).await, status);
        assert_eq!(level(&gateway).await, expected, "{path}");
    }
    // An upstream that cannot be reached costs nothing: the request was not sent.
    drop(backend);
    let dead = async { while gateway.status("/elsewhere").await != 502 {} };
    tokio::time::timeout(PATIENCE, dead).await.unwrap();
    assert_eq!(gateway.status("/status/404").await, 502);
    assert_eq!(level(&gateway).await, 79);
}

#[tokio::test]
async fn a_client_that_goes_away_is_settled_as_abandoned() {
    let backend = Backend::start().await;
    let more = POLICIES
        .replace("GET /status/{code}", "GET /gate")
        .replace("default = 1 }", "default = 1, unanswered = 7 }");
    let clock = ManualClock::at_us(1_000_000_000);
    let config = parse(&simple(backend.address, &more));
    let gateway = Running::start_with(&config, Clock::manual(&clock)).await;
    let asking = tokio::spawn(gateway.client.get(gateway.url("/gate")).send());
    let arrived = async {
        while backend.received().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.unwrap();
    assert_eq!(level(&gateway).await, 99);
    asking.abort();
    let settled = async {
        while level(&gateway).await != 93 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap();
    backend.gate.add_permits(1);
    assert_eq!(level(&gateway).await, 93);
}

#[tokio::test]
async fn a_refusal_is_a_problem_document_with_a_wait_and_costs_the_upstream_nothing() {
    let backend = Backend::start().await;
    let more = POLICIES.replace("1/min burst 100", "2/min burst 2");
    let gateway = Running::start(&simple(backend.address, &more)).await;
    let first = gateway.get("/status/200").await;
    assert_eq!(first.headers()["x-ratelimit-remaining"], "1");
    assert_eq!(gateway.status("/status/200").await, 200);
    let refused = gateway.get("/status/200").await;
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    assert_eq!(
        refused.headers()["content-type"],
        "application/problem+json"
    );
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["status"], 429);
    assert!(problem.to_string().contains("searches"), "{problem}");
    assert_eq!(backend.received().len(), 2);
    let metrics = gateway.metrics();
    for line in [
        "gateway_refusals_total{policy=\"searches\"} 1",
        "rate_limiter_decisions_total{decision=\"deny\",policy=\"searches\"} 1",
        "rate_limiter_decisions_total{decision=\"allow\",policy=\"searches\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let states = gateway.states("user=ip:127.0.0.1").await;
    assert_eq!(states["policies"][0]["refusals"], 1);
}

#[tokio::test]
async fn shadow_mode_counts_and_refuses_nothing() {
    let backend = Backend::start().await;
    for shadow in ["true", "[\"searches\"]"] {
        let more = POLICIES.replace("1/min burst 100", "1/min burst 1");
        let more = format!("[limiting]\nshadow = {shadow}\n{more}");
        let gateway = Running::start(&simple(backend.address, &more)).await;
        for _ in 0..5 {
            assert_eq!(gateway.status("/status/200").await, 200);
        }
        let states = gateway.states("user=ip:127.0.0.1").await;
        assert_eq!(states["policies"][0]["is_shadow"], true);
        assert_eq!(states["policies"][0]["is_admitting"], false);
    }
}

#[tokio::test]
async fn a_route_can_be_without_limits_and_a_gateway_without_policies() {
    let backend = Backend::start().await;
    let more = format!(
        "policies = false\n{}",
        POLICIES.replace("1/min burst 100", "1/min burst 1")
    );
    let gateway = Running::start(&simple(backend.address, &more)).await;
    for _ in 0..3 {
        let response = gateway.get("/status/200").await;
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("x-ratelimit-limit"));
    }
    let gateway = Running::start(&simple(backend.address, "")).await;
    assert_eq!(gateway.status("/status/200").await, 200);
}

#[tokio::test]
async fn waiting_requests_are_served_in_order_and_end_with_their_callers() {
    let backend = Backend::start().await;
    // One caller may have half of the places.
    let more = POLICIES.replace("1/min burst 100", "5/s burst 1");
    let more = format!("wait_max = '10 s'\n[limiting]\nwaiters_max = 6\n{more}");
    let gateway = Running::start(&simple(backend.address, &more)).await;
    let ask = |number: usize, wait: &str| {
        let url = gateway.url(&format!("/status/200?n={number}"));
        let request = gateway.client.get(url).header("balde-wait-ms", wait);
        tokio::spawn(request.send())
    };
    assert_eq!(gateway.status("/status/200").await, 200);
    let mut asking = Vec::new();
    for number in 0..3 {
        asking.push(ask(number, "10000"));
        let waiting = async {
            loop {
                let states = gateway.states("user=ip:127.0.0.1").await;
                let waiting = states["waiting"].as_u64().unwrap();
                // Earlier ones may have been served meanwhile.
                if waiting > number as u64
                    || asking[number].is_finished()
                    || backend.received().len() > 1
                {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    }
    for one in asking {
        assert_eq!(one.await.unwrap().unwrap().status(), 200);
    }
    let order: Vec<String> = backend
        .received()
        .iter()
        .filter_map(|one| one.parts.uri.query().map(str::to_owned))
        .collect();
    assert_eq!(order, ["n=0", "n=1", "n=2"]);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_the_line() {
    let backend = Backend::start().await;
    let more = POLICIES.replace("1/min burst 100", "1/h burst 1");
    let more = format!("wait_max = '1 h'\n{more}");
    let gateway = Running::start(&simple(backend.address, &more)).await;
    assert_eq!(gateway.status("/status/200").await, 200);
    // Tokens cannot come in time, so there is nothing to wait for.
    let request = gateway.client.get(gateway.url("/status/200"));
    let refused = request.header("balde-wait-ms", "60000").send().await;
    assert_eq!(refused.unwrap().status(), 429);
    let request = gateway.client.get(gateway.url("/status/200"));
    let asking = tokio::spawn(request.header("balde-wait-ms", "3600000").send());
    let count = async |expected: u64| {
        let reached = async {
            while gateway.states("").await["waiting"] != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.unwrap();
    };
    count(1).await;
    // Who does not wait does not overtake.
    let refused = gateway.get("/status/200").await;
    assert_eq!(refused.status(), 429);
    asking.abort();
    count(0).await;
}

#[tokio::test]
async fn a_reserve_is_for_one_class_only() {
    let backend = Backend::start().await;
    let more = "
[[class]]
name = \"live\"
header = \"x-class\"
value = \"live\"
networks = [\"127.0.0.0/8\"]
[limiting]
[[limiting.reserve]]
policy = \"all\"
class = \"live\"
share = '30%'
[[policies.policy]]
name = \"all\"
limit = \"1/h burst 10\"
";
    let gateway = Running::start(&simple(backend.address, more)).await;
    let live = async || {
        let request = gateway.client.get(gateway.url("/"));
        let response = request.header("x-class", "live").send().await;
        response.unwrap().status().as_u16()
    };
    let mut batch = 0;
    while gateway.status("/").await == 200 {
        batch += 1;
    }
    assert_eq!(batch, 7);
    for _ in 0..3 {
        assert_eq!(live().await, 200);
    }
    assert_eq!(live().await, 429);
}

#[tokio::test]
async fn the_buckets_in_memory_are_as_many_as_the_file_says() {
    let backend = Backend::start().await;
    let more = "
[[policies.policy]]
name = \"all\"
scope = \"user\"
limit = \"1/h burst 10\"
[identity]
trusted_proxies = [\"127.0.0.0/8\"]
[limiting]
keys_max = 50
";
    let gateway = Running::start(&simple(backend.address, more)).await;
    for number in 0..200 {
        let request = gateway.client.get(gateway.url("/"));
        let request = request.header("x-forwarded-for", format!("203.0.113.{number}"));
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    let keys = gateway.counter("rate_limiter_keys{policy=\"all\"}");
    assert!((1..=50).contains(&keys), "{keys}");
    let evicted = gateway.counter("rate_limiter_evicted_keys_total{policy=\"all\"}");
    assert_eq!(evicted, 200 - keys);
    // Another number needs a restart.
    let changed = simple(backend.address, &more.replace("= 50", "= 60"));
    let refused = gateway.gateway.reload(&parse(&changed)).unwrap_err();
    assert!(
        refused.to_string().contains("the most buckets"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_reserves_of_several_classes_add_up() {
    let backend = Backend::start().await;
    let classes = [("live", 30), ("night", 20)].map(|(class, percent)| {
        format!(
            "[[class]]\nname = \"{class}\"\nheader = \"x-class\"\nvalue = \"{class}\"\n\
             networks = [\"127.0.0.0/8\"]\n[[limiting.reserve]]\npolicy = \"all\"\n\
             class = \"{class}\"\nshare = '{percent}%'\n"
        )
    });
    let policy = "[[policies.policy]]\nname = \"all\"\nlimit = \"1/h burst 10\"\n";
    let more = format!("{policy}{}", classes.concat());
    let gateway = Running::start(&simple(backend.address, &more)).await;
    let passed = async |class: &str| {
        let mut passed = 0;
        loop {
            let request = gateway.client.get(gateway.url("/"));
            let response = request.header("x-class", class).send().await.unwrap();
            if response.status() != 200 {
                return passed;
            }
            passed += 1;
        }
    };
    assert_eq!(passed("batch").await, 5);
    // A class leaves the shares of those that come after it.
    assert_eq!(passed("live").await, 3);
    assert_eq!(passed("night").await, 2);
}
