//! One JSON object per line, with every field that has a value; a storm is one line at once, then one a second with a
//! count; and a writer that fails changes nothing.

use std::io;
use std::time::Duration;

use balde::telemetry::{LogFormat, Logs, json_logs_to};
use balde::{Clock, ManualClock, RateLimiter, check_all_blocking};
use sha2::{Digest, Sha256};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::{Interest, with_default};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::{Written, have_two_listeners, hex};

const FIELDS: [&str; 11] = [
    "timestamp",
    "level",
    "event_type",
    "decision",
    "strategy",
    "storage_mode",
    "policy",
    "latency_ms",
    "retry_after_ms",
    "remaining",
    "key_hash",
];

fn json_to(written: &Written) -> impl Subscriber + use<> {
    have_two_listeners();
    tracing_subscriber::registry().with(json_logs_to(written.clone()))
}

fn limiter(limit: &str, clock: &ManualClock) -> RateLimiter {
    RateLimiter::builder()
        .name("per-user")
        .limit(limit)
        .clock(Clock::manual(clock))
        .log_salt("pepper")
        .build()
        .unwrap()
}

fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// 2026-11-15T07:25:00.123456Z, give or take digits of the fraction.
fn is_rfc_3339(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let Some(fraction) = shape.strip_prefix("0000-00-00T00:00:00") else {
        return false;
    };
    let fraction = fraction.strip_suffix('Z').unwrap_or("?");
    fraction.is_empty() || fraction.trim_start_matches(".0").chars().all(|c| c == '0')
}

#[test]
fn a_refusal_is_one_object_with_every_field() {
    let written = Written::default();
    with_default(json_to(&written), || {
        let clock = ManualClock::new();
        let limiter = limiter("2/min", &clock).blocking().check_n("alice", 2);
        assert!(limiter.is_allowed());
    });
    assert_eq!(written.text(), "", "a grant is not logged");

    with_default(json_to(&written), || {
        let clock = ManualClock::new();
        let limiter = limiter("2/min", &clock);
        limiter.blocking().check_n("alice", 2);
        limiter.blocking().check("alice");
    });
    let lines = written.objects();
    assert_eq!(lines.len(), 1, "{}", written.text());
    let line = &lines[0];
    for field in FIELDS {
        assert!(line.get(field).is_some(), "{field} in {line}");
    }
    assert!(is_rfc_3339(line["timestamp"].as_str().unwrap()), "{line}");
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["event_type"], "denied");
    assert_eq!(line["decision"], "deny");
    assert_eq!(line["strategy"], "token_bucket");
    assert_eq!(line["storage_mode"], "memory");
    assert_eq!(line["policy"], "per-user");
    assert!(line["latency_ms"].is_number());
    assert_eq!(line["retry_after_ms"], 30_000);
    assert_eq!(line["remaining"], 0);
    assert_eq!(line["key_hash"], sha256("pepperalice"));
    for absent in ["trace_id", "span_id", "suppressed_by"] {
        assert!(line.get(absent).is_none(), "no value, no field: {line}");
    }
    assert!(!written.text().contains("null"), "{line}");
}

/// A subscriber that takes 3 ms to say whether it wants a line, by the clock of the limiter.
struct Slow(ManualClock);

impl<S: Subscriber> Layer<S> for Slow {
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        self.0.advance(Duration::from_millis(3));
        true
    }
}

#[test]
fn a_refusal_in_memory_says_how_long_it_took() {
    let written = Written::default();
    have_two_listeners();
    let clock = ManualClock::new();
    let layers = tracing_subscriber::registry()
        .with(json_logs_to(written.clone()))
        .with(Slow(clock.clone()));
    with_default(layers, || {
        let limiter = limiter("2/h", &clock);
        limiter.blocking().check_n("alice", 2);
        limiter.blocking().check("alice");
    });
    let lines = written.objects();
    assert_eq!(lines.len(), 1, "{}", written.text());
    let latency_ms = lines[0]["latency_ms"].as_f64().unwrap();
    assert!(latency_ms >= 3.0, "{}", lines[0]);
}

#[test]
fn a_flood_of_refusals_is_one_line_at_once_and_then_one_a_second_with_a_count() {
    let written = Written::default();
    with_default(json_to(&written), || {
        let clock = ManualClock::new();
        let limiter = limiter("1/h window", &clock);
        limiter.blocking().check("a");
        let flood = |count: u32| {
            for _ in 0..count {
                limiter.blocking().check("a");
            }
        };
        flood(100);
        assert_eq!(written.of("denied").len(), 1);
        clock.advance(Duration::from_millis(999));
        flood(50);
        assert_eq!(written.of("denied").len(), 1);
        clock.advance(Duration::from_millis(1));
        // Also in a decision over several buckets.
        let decision = check_all_blocking(&[limiter.request("a")]);
        assert!(!decision.is_allowed());
        flood(10);
    });
    let counts: Vec<_> = written
        .of("denied")
        .iter()
        .map(|line| line["suppressed"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [0, 149]);
    assert_eq!(written.of("denied")[0]["strategy"], "fixed_window");
}

#[test]
fn a_bad_key_is_a_warning_without_a_hash_whoever_asks() {
    let written = Written::default();
    with_default(json_to(&written), || {
        let clock = ManualClock::new();
        limiter("1/s", &clock).blocking().check("");
        let other = limiter("1/s", &clock);
        let decision = check_all_blocking(&[other.request("fine"), other.request("")]);
        assert!(!decision.is_allowed());
    });
    let lines = written.of("bad_key");
    assert_eq!(lines.len(), 2, "one for each limiter: {}", written.text());
    for line in &lines {
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["decision"], "deny");
        assert!(line.get("key_hash").is_none(), "{line}");
        assert!(line.get("retry_after_ms").is_none(), "{line}");
    }
}

#[test]
fn a_line_says_which_trace_it_belongs_to() {
    let written = Written::default();
    with_default(json_to(&written), || {
        let clock = ManualClock::new();
        let limiter = limiter("1/s", &clock);
        limiter.blocking().check("a");
        let span = tracing::info_span!(
            "request",
            trace_id = "4bf92f",
            span_id = tracing::field::Empty
        );
        span.record("span_id", "00f067");
        let inner = span.in_scope(|| tracing::info_span!("handler"));
        inner.in_scope(|| limiter.blocking().check("a"));
    });
    let line = &written.objects()[0];
    assert_eq!(line["trace_id"], "4bf92f");
    assert_eq!(line["span_id"], "00f067");
}

#[test]
fn lines_of_others_are_objects_too_and_cannot_break_out() {
    let written = Written::default();
    with_default(json_to(&written), || {
        tracing::info!(
            text = "a \"quote\"\nand a line",
            level = "mine",
            number = -1,
            "hello\n{{}}"
        );
        tracing::debug!("not told");
    });
    let lines = written.objects();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["text"], "a \"quote\"\nand a line");
    assert_eq!(lines[0]["level"], "INFO");
    assert_eq!(lines[0]["number"], -1);
    assert_eq!(lines[0]["message"], "hello\n{}");
}

#[test]
fn on_a_terminal_a_line_is_text_for_people() {
    let written = Written::default();
    have_two_listeners();
    let logs = Logs::new().format(LogFormat::Text);
    let subscriber = tracing_subscriber::registry().with(logs.layer_to(written.clone()));
    with_default(subscriber, || {
        let clock = ManualClock::new();
        let limiter = limiter("2/min", &clock);
        limiter.blocking().check_n("alice", 2);
        limiter.blocking().check("alice");
        tracing::warn!(target: "other", text = "two words", plain = "one", "hello\nINFO forged");
    });
    let text = written.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let (timestamp, rest) = lines[0].split_once(' ').unwrap();
    assert!(is_rfc_3339(timestamp), "{text}");
    let hash = &sha256("pepperalice")[..12];
    let expected = format!(
        " INFO denied: the bucket has too few tokens event_type=denied decision=deny \
         strategy=token_bucket storage_mode=memory policy=per-user latency_ms=0.0 \
         retry_after_ms=30000 remaining=0 key_hash={hash} reason=over_limit suppressed=0"
    );
    assert_eq!(rest, expected);
    let (_, rest) = lines[1].split_once(' ').unwrap();
    assert_eq!(
        rest,
        " WARN other: hello\\nINFO forged plain=one text=\"two words\""
    );
}

#[test]
fn text_has_colors_only_if_asked_and_json_never() {
    have_two_listeners();
    for (format, is_colored) in [(LogFormat::Text, true), (LogFormat::Json, false)] {
        let written = Written::default();
        let logs = Logs::new().format(format).colors(true);
        let subscriber = tracing_subscriber::registry().with(logs.layer_to(written.clone()));
        with_default(subscriber, || tracing::error!(target: "other", "hello"));
        let text = written.text();
        assert_eq!(
            text.contains("\x1b[31mERROR\x1b[0m other: hello"),
            is_colored
        );
        assert_eq!(text.contains('\x1b'), is_colored, "{text}");
    }
}

#[test]
fn numbers_that_json_lacks_are_texts_and_not_null() {
    let written = Written::default();
    have_two_listeners();
    let subscriber = tracing_subscriber::registry().with(json_logs_to(written.clone()));
    with_default(subscriber, || {
        tracing::info!(target: "other", ratio = f64::NAN, most = f64::INFINITY, absent = None::<u64>, "hello");
    });
    let lines = written.objects();
    assert_eq!(
        (&lines[0]["ratio"], &lines[0]["most"]),
        (&"NaN".into(), &"inf".into())
    );
    assert!(lines[0].get("absent").is_none());
}

#[test]
fn levels_can_be_chosen() {
    let written = Written::default();
    have_two_listeners();
    let logs = Logs::new().level(LevelFilter::WARN).format(LogFormat::Json);
    let subscriber = tracing_subscriber::registry().with(logs.layer_to(written.clone()));
    with_default(subscriber, || {
        let clock = ManualClock::new();
        let limiter = limiter("1/min", &clock);
        for key in ["a", "a", ""] {
            limiter.blocking().check(key);
        }
    });
    assert_eq!(written.objects().len(), 1, "{}", written.text());
    assert_eq!(written.of("bad_key").len(), 1);
}

struct Broken;

impl io::Write for Broken {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

impl MakeWriter<'_> for Broken {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

#[test]
fn a_writer_that_fails_changes_no_decision() {
    let decide = || {
        let clock = ManualClock::new();
        let limiter = limiter("2/min", &clock);
        let limiter = limiter.blocking();
        [
            limiter.check("a"),
            limiter.check("a"),
            limiter.check("a"),
            limiter.check(""),
        ]
    };
    let broken = tracing_subscriber::registry().with(json_logs_to(Broken));
    assert_eq!(with_default(broken, decide), decide());
}
