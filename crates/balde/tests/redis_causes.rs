//! An operator reads in the log where Redis should be and why it cannot be used: a name that does not
//! resolve, a port on which nobody listens, TLS, a password.

#[path = "support/redis_server.rs"]
#[expect(dead_code, reason = "other tests do more to their servers")]
mod redis_server;

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use balde::{OnFailure, RateLimiter, RedisBuilder, RedisStore};
use redis_server::RedisServer;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

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

    /// The messages about an address, with their event types.
    fn about(&self, address: &str) -> Vec<(String, String)> {
        let text = self.text();
        let events = text.lines().map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["fields"].clone()
        });
        let events = events.filter(|fields| fields["address"] == address);
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .map(|fields| (word(&fields["event_type"]), word(&fields["message"])))
            .collect()
    }
}

/// Uses a store until the log has the cause, and for two seconds more.
async fn assert_cause(lines: &Lines, builder: RedisBuilder, address: &str, cause: &str) {
    let store = builder.build().unwrap();
    let limiter = RateLimiter::builder()
        .limit("10/s")
        .redis(&store, OnFailure::Allow);
    let limiter = limiter.build().unwrap();
    let begun = Instant::now();
    let has_cause = || {
        let mut about = lines.about(address).into_iter();
        about.any(|(_, message)| message.contains(cause) && message.contains(address))
    };
    while !has_cause() {
        assert!(
            begun.elapsed() < PATIENCE,
            "no {cause} in {:?}",
            lines.about(address)
        );
        assert!(limiter.check("a").await.is_fallback());
        tokio::task::yield_now().await;
    }
    for _ in 0..10_000 {
        assert!(limiter.check("a").await.is_fallback());
    }
    let errors = lines.about(address);
    let errors = errors
        .iter()
        .filter(|(event, _)| event == "backend_error")
        .count();
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    // One line a second for each of its reasons, of which there may be two.
    assert!(errors <= 2 * (seconds + 2), "{errors} lines in {seconds} s");
}

// The logs of a whole process: so one test, and no other in this file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_the_address_and_the_cause_and_no_password() {
    let Some(mut server) = RedisServer::start_with(&["--requirepass", "s3cret"]) else {
        return;
    };
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .json()
        .with_writer(move || writer.clone())
        .init();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap().to_string();
    drop(free);
    let builder = || RedisStore::builder().user("alice").password("s3cret-wrong");

    let refused = builder().address(format!("redis://{nobody}"));
    assert_cause(&lines, refused, &nobody, "nothing listens there").await;

    // No resolver has to be asked: a label has at most 63 characters.
    let name = format!("{}.invalid:6379", "x".repeat(64));
    let unresolved = builder().address(format!("redis://{name}"));
    assert_cause(&lines, unresolved, &name, "cannot be resolved (DNS)").await;

    let address = server.addr().to_string();
    let wrong = RedisStore::builder()
        .password("s3cret-wrong")
        .address(server.url());
    assert_cause(&lines, wrong, &address, "rejects the user or the password").await;

    // A server that does not speak TLS.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain_address = plain.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in plain.incoming().map_while(Result::ok) {
            let _gone = stream.write_all(b"-ERR this is not TLS\r\n");
        }
    });
    let authority = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let tls = builder()
        .address(format!("rediss://{plain_address}"))
        .ca_pem(authority.cert.pem());
    assert_cause(&lines, tls, &plain_address, "the TLS handshake failed").await;

    // When it is over, a line says so.
    let store = RedisStore::builder()
        .password("s3cret")
        .address(server.url());
    let store = store.build().unwrap();
    let limiter = RateLimiter::builder()
        .limit("1000000/s")
        .redis(&store, OnFailure::Allow);
    let limiter = limiter.build().unwrap();
    let begun = Instant::now();
    while limiter.check("a").await.is_fallback() {
        assert!(begun.elapsed() < PATIENCE, "it never answers");
    }
    server.kill();
    while !store.stats().is_open {
        assert!(begun.elapsed() < PATIENCE, "the breaker never opens");
        limiter.check("a").await;
    }
    server.restart();
    let is_over = || {
        let about = lines.about(&address);
        let last = about.iter().rfind(|(event, _)| event == "breaker_closed");
        last.is_some_and(|(_, message)| message.contains(&address))
    };
    while !is_over() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", lines.about(&address));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let text = lines.text();
    assert!(!text.contains("s3cret"), "no password is logged");
    assert!(!text.contains("alice"), "no user is logged");
}
