//! One line for every denial, or a counted drop; and no decision that waits for the log.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use balde::telemetry::{Denials, Metrics, flush_denials, json_logs_to};
use balde::{RateLimiter, check_all_blocking};
use serde_json::Value;
use tracing::Subscriber;
use tracing::subscriber::with_default;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

use crate::{Written, have_two_listeners, value};

const FLUSHED_WITHIN: Duration = Duration::from_secs(120);

fn audited(name: &str, metrics: &Metrics) -> RateLimiter {
    RateLimiter::builder()
        .name(name)
        .limit("1/week")
        .denials(Denials::Every)
        .metrics(metrics)
        .build()
        .unwrap()
}

fn json_to<W>(writer: W) -> impl Subscriber + use<W>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    have_two_listeners();
    tracing_subscriber::registry().with(json_logs_to(writer))
}

/// Counts lines by event type, and the denials that they say were dropped.
#[derive(Clone, Default)]
struct Counted(Arc<Counts>);

#[derive(Default)]
struct Counts {
    denied: AtomicU64,
    dropped: AtomicU64,
}

impl Write for Counted {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // There are too many denials to parse each.
        let text = str::from_utf8(line).unwrap();
        if text.contains(r#""event_type":"denied""#) {
            self.0.denied.fetch_add(1, Ordering::Relaxed);
            return Ok(line.len());
        }
        let line: Value = serde_json::from_str(text).unwrap();
        match line["event_type"].as_str() {
            Some("denials_dropped") => {
                assert_eq!(line["level"], "WARN");
                let dropped = line["dropped"].as_u64().unwrap();
                self.0.dropped.fetch_add(dropped, Ordering::Relaxed)
            }
            other => panic!("{other:?}"),
        };
        Ok(text.len())
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.write(line).map(drop)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Counted {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[test]
fn a_million_denials_are_lines_or_counted_drops() {
    const DENIALS: u64 = 1_000_000;
    const THREADS: u64 = 4;
    let metrics = Metrics::new();
    let counted = Counted::default();
    let dispatch = tracing::Dispatch::new(json_to(counted.clone()));
    // Without a global subscriber, lines go to the one under which the limiter was built.
    let build = || audited("flooded", &metrics);
    let limiter = tracing::dispatcher::with_default(&dispatch, build);
    limiter.blocking().check("alice");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    for _ in 0..DENIALS / THREADS {
                        assert!(!limiter.blocking().check("alice").is_allowed());
                    }
                });
            });
        }
    });
    assert!(flush_denials(FLUSHED_WITHIN));
    let lines = counted.0.denied.load(Ordering::Relaxed);
    let dropped = counted.0.dropped.load(Ordering::Relaxed);
    println!("{lines} lines, {dropped} counted drops");
    assert_eq!(lines + dropped, DENIALS);
    let page = metrics.encode();
    let series = r#"rate_limiter_log_dropped_total{policy="flooded"}"#;
    assert_eq!(value(&page, series), Some(dropped), "{page}");
    assert!(lines >= 10_000, "what fits the queue is written");
}

/// Blocks every writer until it is released.
#[derive(Clone, Default)]
struct Stuck {
    gate: Arc<Mutex<()>>,
    counted: Counted,
}

impl Write for Stuck {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        drop(self.gate.lock().unwrap());
        self.counted.write(line)
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.write(line).map(drop)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Stuck {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[test]
fn a_log_that_nobody_reads_stops_no_decision() {
    const DENIALS: u64 = 300_000;
    // The queue has 4 MiB, and a denial needs at least 40 bytes of it.
    const QUEUED_MAX: u64 = (4 << 20) / 40;
    let metrics = Metrics::new();
    let stuck = Stuck::default();
    let closed = stuck.gate.lock().unwrap();
    let limiter = with_default(json_to(stuck.clone()), || {
        let limiter = audited("stuck", &metrics);
        limiter.blocking().check("alice");
        // With the writer locked by this very thread, a decision that waited for it would never end.
        for _ in 0..DENIALS {
            assert!(!limiter.blocking().check("alice").is_allowed());
        }
        limiter
    });
    let series = r#"rate_limiter_log_dropped_total{policy="stuck"}"#;
    let dropped = value(&metrics.encode(), series).unwrap();
    // What fits the queue waits. Of it, the log thread has taken the line that it is stuck with.
    assert!(dropped >= DENIALS - QUEUED_MAX - 1, "{dropped}");
    drop(closed);
    assert!(flush_denials(FLUSHED_WITHIN));
    let counts = &stuck.counted.0;
    assert_eq!(counts.dropped.load(Ordering::Relaxed), dropped);
    assert_eq!(counts.denied.load(Ordering::Relaxed), DENIALS - dropped);
    drop(limiter);
}

#[test]
fn a_line_written_later_says_when_and_in_which_trace_it_was_decided() {
    let written = Written::default();
    let metrics = Metrics::new();
    with_default(json_to(written.clone()), || {
        let limiter = RateLimiter::builder()
            .name("audited")
            .limit("2/week")
            .denials(Denials::Every)
            .log_salt("pepper")
            .metrics(&metrics)
            .build()
            .unwrap();
        limiter.blocking().check_n("alice", 2);
        let span = tracing::info_span!("request", trace_id = "4bf92f", span_id = "00f067");
        span.in_scope(|| limiter.blocking().check("alice"));
        limiter.blocking().check("bob-who-has-another-key");
        let decision = check_all_blocking(&[limiter.request("alice")]);
        assert!(!decision.is_allowed());
        limiter.blocking().check("");
        // A dropped limiter's denials are written, too.
    });
    assert!(flush_denials(FLUSHED_WITHIN));
    let bad = written.of("bad_key");
    assert_eq!(bad.len(), 1, "{}", written.text());
    assert_eq!(bad[0]["level"], "WARN");
    assert!(bad[0].get("key_hash").is_none() && bad[0].get("suppressed").is_none());
    let lines = written.of("denied");
    assert_eq!(lines.len(), 2, "{}", written.text());
    let first = &lines[0];
    assert_eq!(first["trace_id"], "4bf92f");
    assert_eq!(first["span_id"], "00f067");
    assert_eq!(first["level"], "INFO");
    assert_eq!(first["target"], "balde");
    assert_eq!(first["policy"], "audited");
    assert_eq!(first["remaining"], 0);
    assert_eq!(first["reason"], "over_limit");
    assert_eq!(
        first["key_hash"],
        "b1b68da447843a6519d8dd7a9c13c90aa1148805cbe55810f86712e6c294ff36"
    );
    assert!(first.get("suppressed").is_none(), "{first}");
    assert!(first["timestamp"].as_str().unwrap() <= lines[1]["timestamp"].as_str().unwrap());
    assert!(lines[1].get("trace_id").is_none(), "{}", lines[1]);
}

/// The part of the next test that runs in a process of its own: what an options file sets up.
#[test]
fn denials_in_a_process_of_its_own() {
    if std::env::var_os("BALDE_TEST_CHILD").is_none() {
        return;
    }
    let file = "[limits.login]\nlimit = \"1/week\"\n[logs]\ndenials = \"every\"\n";
    let options = balde::Options::parse_with(file, "limits.toml", |_| None).unwrap();
    let telemetry = options.init_telemetry().unwrap();
    assert!(options.init_telemetry().is_err(), "there is one already");
    let limiters = options.build().unwrap();
    let login = limiters.get("login").unwrap();
    for _ in 0..=1_000 {
        login.blocking().check("alice");
    }
    tracing::warn!(target: "other", "a line of the program");
    drop(telemetry);
}

#[test]
fn an_options_file_sets_up_logs_that_go_into_a_pipe_as_json() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "denials::denials_in_a_process_of_its_own"])
        .arg("--nocapture")
        .env("BALDE_TEST_CHILD", "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let text = String::from_utf8(child.stdout).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.find('{').map(|at| &line[at..]));
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |name: &str, value: &str| lines.iter().filter(|line| line[name] == value).count();
    assert_eq!(of("event_type", "denied"), 1_000, "{text}");
    assert_eq!(of("target", "other"), 1, "{text}");
    assert_eq!(lines.len(), 1_001, "{text}");
}
