//! What is logged when keys are bad or the store is away: distinct reasons, one line for a storm,
//! and nobody's key or password.

#[path = "support/redis_server.rs"]
#[expect(dead_code, reason = "other tests do more to their servers")]
mod redis_server;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use balde::{OnFailure, RateLimiter, RedisStore};
use redis_server::RedisServer;
use serde_json::Value;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn of(&self, event_type: &str) -> Vec<Value> {
        let lines = self.text();
        let events = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        events
            .filter(|event: &Value| event["fields"]["event_type"] == event_type)
            .collect()
    }
}

// The logs of a whole process: so one test, and no other in this file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one outage from beginning to end")]
async fn an_outage_is_reported_once_with_its_reason_and_without_secrets() {
    let Some(mut server) = RedisServer::start_with(&["--requirepass", "s3cret-password"]) else {
        return;
    };
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .json()
        .with_writer(move || writer.clone())
        .init();

    let store = RedisStore::builder()
        .address(server.url())
        .password("s3cret-password")
        .build()
        .unwrap();
    let limiter = RateLimiter::builder()
        .name("per-user")
        .limit("10/s")
        .redis(&store, OnFailure::Allow)
        .build()
        .unwrap();
    let until = |what: &'static str| {
        let deadline = Instant::now() + Duration::from_secs(10);
        move || assert!(Instant::now() < deadline, "waited in vain until {what}")
    };
    let in_time = until("the store answers");
    while limiter.check("customer-4711").await.is_fallback() {
        in_time();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    assert!(
        lines.of("script_reloaded").is_empty(),
        "a server that never had the script has lost nothing"
    );

    for _ in 0..100 {
        limiter.check("").await;
    }
    let bad = lines.of("bad_key");
    assert_eq!(bad.len(), 1, "a storm is one line");
    assert_eq!(bad[0]["level"], "WARN");
    assert_eq!(bad[0]["fields"]["policy"], "per-user");

    server.kill();
    let in_time = until("the breaker opens");
    while lines.of("breaker_opened").is_empty() {
        in_time();
        assert!(limiter.check("customer-4711").await.is_allowed());
    }
    for _ in 0..1_000 {
        assert!(limiter.check("customer-4711").await.is_fallback());
    }
    let fallbacks = lines.of("fallback");
    let reasons: Vec<_> = fallbacks.iter().map(|f| &f["fields"]["reason"]).collect();
    assert!(
        reasons.iter().any(|reason| **reason == "disconnected"),
        "{reasons:?}"
    );
    assert!(
        reasons.iter().any(|reason| **reason == "breaker_open"),
        "{reasons:?}"
    );
    assert!(fallbacks.len() < 20, "{} lines", fallbacks.len());
    assert!(
        fallbacks
            .iter()
            .all(|f| f["fields"]["on_failure"] == "allow")
    );
    assert_eq!(lines.of("breaker_opened")[0]["level"], "ERROR");
    let refused = lines.of("backend_error");
    assert_eq!(refused[0]["level"], "ERROR");
    assert_eq!(refused[0]["fields"]["reason"], "disconnected");
    assert!(fallbacks.iter().all(|line| line["level"] == "WARN"));

    server.restart();
    let in_time = until("the breaker closes");
    while lines.of("breaker_closed").is_empty() {
        in_time();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A script that fails is an ERROR as well: another program wrote to the bucket's key.
    let client = redis::Client::open(server.url()).unwrap();
    let mut admin = client.get_connection().unwrap();
    let () = redis::cmd("AUTH")
        .arg("s3cret-password")
        .query(&mut admin)
        .unwrap();
    let in_time = until("the store answers again");
    while limiter.check("customer-4711").await.is_fallback() {
        in_time();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut admin).unwrap();
    for key in keys {
        let () = redis::cmd("SET")
            .arg(key)
            .arg("foreign")
            .query(&mut admin)
            .unwrap();
    }
    let in_time = until("the script fails");
    while lines.of("backend_error").len() == refused.len() {
        in_time();
        limiter.check("customer-4711").await;
    }
    let failed = lines.of("backend_error").pop().unwrap();
    assert_eq!(failed["level"], "ERROR", "{failed}");
    assert_ne!(failed["fields"]["reason"], "disconnected", "{failed}");
    let all = lines.text();
    for line in all.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["target"], "balde", "one target for all lines: {line}");
    }
    let text = lines.text();
    assert!(!text.contains("customer-4711"), "no key is logged");
    assert!(!text.contains("s3cret"), "no password is logged");
}
