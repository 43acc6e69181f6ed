//! The log, as the program writes it.

use std::io::{self, Write};
use std::sync::Arc;

use balde_monitor::alert::{Event, EventKind, ResolveReason, SinkClass};
use balde_monitor::severity::Severity;
use balde_monitor::sink::{LogSink, Sink};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;

use crate::messages::{event, message};

/// Lines that a test can read.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("lines of text")
    }

    /// A subscriber that writes them as the program does.
    pub(crate) fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let lines = self.clone();
        let writer = move || lines.clone();
        tracing_subscriber::registry().with(balde::telemetry::json_logs_to(writer))
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_line_has_the_level_of_how_bad_it_is_and_all_of_the_alert() {
    use Severity::{Critical, Exhausted, Normal, Warning};
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.subscriber());
    let raised = |to| EventKind::Raised { from: Normal, to };
    let resolved = EventKind::Resolved {
        from: Exhausted,
        reason: ResolveReason::Recovered,
    };
    let lowered = EventKind::Lowered {
        from: Exhausted,
        to: Warning,
    };
    let cases = [
        (raised(Warning), Warning, "WARN"),
        (raised(Critical), Critical, "ERROR"),
        (raised(Exhausted), Exhausted, "ERROR"),
        (lowered, Exhausted, "WARN"),
        (resolved, Exhausted, "INFO"),
    ];
    for (sequence, (kind, severity, _)) in (0..).zip(cases.clone()) {
        let event = Event {
            severity,
            ..event("12345678", "ENTRIES_WRITE", sequence, kind)
        };
        let delivered = Sink::Log(LogSink)
            .deliver(
                &message(event, SinkClass::Log),
                0,
                &balde_monitor::sink::Wording::default(),
            )
            .await;
        assert_eq!(delivered, Ok(()));
    }
    let text = lines.text();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), cases.len());
    for (line, (_, severity, level)) in lines.iter().zip(cases) {
        assert_eq!(line["level"], level, "{line}");
        assert_eq!(line["severity"], severity.name(), "{line}");
    }
    let first = &lines[0];
    for (name, value) in [
        ("event_type", json!("alert")),
        ("target", json!("balde_monitor")),
        ("key", json!("12345678/ENTRIES_WRITE/7/0/raised-WARNING")),
        ("episode", json!("12345678/ENTRIES_WRITE/7/level-0")),
        ("kind", json!("raised-WARNING")),
        ("participant", json!("12345678")),
        ("policy", json!("ENTRIES_WRITE")),
        ("bucket_level", json!(3_600)),
        ("capacity", json!(36_000)),
        ("at", json!("2026-11-15T10:00:00.000000Z")),
    ] {
        assert_eq!(first[name], value, "{name}");
    }
    let message = first["message"].as_str().unwrap();
    assert!(message.starts_with("Bucket ENTRIES_WRITE of participant 12345678 went from NORMAL"));
    // The log's own fields are its own: when it was written, not when it happened.
    assert_ne!(first["timestamp"], first["at"]);
}
