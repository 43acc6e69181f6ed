//! What a limiter tells the outside: metrics, lines, spans; and what it keeps to itself.

mod counts;
mod denials;
mod lines;
mod rules;
mod scrape;
mod secrets;
mod spans;

#[path = "../support/otlp_collector.rs"]
mod otlp_collector;
#[path = "../support/prometheus.rs"]
mod prometheus;
#[path = "../support/redis_server.rs"]
#[expect(dead_code, reason = "other tests do more to their servers")]
mod redis_server;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

/// To be called before a test listens. With one listener in the process, tracing asks only the
/// thread that first comes by an event whether anybody is interested; with two it asks all.
fn have_two_listeners() {
    static ANOTHER: LazyLock<tracing::Dispatch> =
        LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&ANOTHER);
}

/// What was written, by whomever.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Each line, which must be a JSON object.
    fn objects(&self) -> Vec<Value> {
        let text = self.text();
        let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
        objects
            .inspect(|object: &Value| assert!(object.is_object()))
            .collect()
    }

    fn of(&self, event_type: &str) -> Vec<Value> {
        let mut objects = self.objects();
        objects.retain(|object| object["event_type"] == event_type);
        objects
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Written {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Panics when the outside world takes too long to change.
fn patience(what: &'static str) -> impl Fn() {
    let deadline = Instant::now() + Duration::from_secs(30);
    move || assert!(Instant::now() < deadline, "waited in vain until {what}")
}

/// The value of one series in an exposition; nothing, where it is not there.
fn value(exposition: &str, series: &str) -> Option<u64> {
    let mut lines = exposition.lines();
    let line = lines.find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
