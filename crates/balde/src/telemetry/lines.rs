//! Log lines, as JSON objects with stable field names or as text for people.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::timestamp;
use super::trace_ids::TraceIds;

/// The fields of lines about decisions, in this order.
const DECISION_FIELDS: [&str; 9] = [
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

/// How many digits of a key's hash a line for people shows.
const HASH_DIGITS: usize = 12;

/// How a line is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    Json,
    Text { has_colors: bool },
}

/// Writes each event as one line.
pub(super) struct LineLayer<W> {
    pub(super) writer: W,
    pub(super) format: LineFormat,
}

impl<S, W> Layer<S> for LineLayer<W>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut ids = TraceIds::default();
            attributes.record(&mut ids);
            span.extensions_mut().replace(ids);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(ids) = span.extensions_mut().get_mut::<TraceIds>()
        {
            values.record(ids);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let ids = || {
            #[cfg(feature = "otlp")]
            if let Some(ids) = TraceIds::of_opentelemetry() {
                return Some(ids);
            }
            TraceIds::of_span(&context.event_span(event)?)
        };
        let line = Line::new(metadata.level().as_str(), metadata.target(), fields, ids);
        let text = match self.format {
            LineFormat::Json => line.json(),
            LineFormat::Text { has_colors } => line.text(has_colors),
        };
        // A failure to log cannot be logged.
        let _lost = self
            .writer
            .make_writer_for(metadata)
            .write_all(text.as_bytes());
    }
}

/// The parts of a line.
struct Line<'a> {
    timestamp: String,
    level: &'a str,
    target: &'a str,
    fields: BTreeMap<&'static str, Value>,
}

impl<'a> Line<'a> {
    fn new(
        level: &'a str,
        target: &'a str,
        fields: Fields,
        ids: impl FnOnce() -> Option<TraceIds>,
    ) -> Self {
        let mut fields = fields.0;
        // An object must not repeat a name.
        for name in ["level", "target"] {
            fields.remove(name);
        }
        let written_later = fields.remove("timestamp").filter(|_| target == "balde");
        let timestamp = match written_later {
            Some(Value::String(decided)) => decided,
            _ => timestamp::now(),
        };
        if !fields.contains_key("trace_id")
            && !fields.contains_key("span_id")
            && let Some(ids) = ids()
        {
            for (name, id) in [("trace_id", ids.trace_id()), ("span_id", ids.span_id())] {
                if let Some(id) = id {
                    fields.insert(name, id.into());
                }
            }
        }
        Self {
            timestamp,
            level,
            target,
            fields,
        }
    }

    fn json(mut self) -> String {
        let mut line = String::with_capacity(512);
        push(&mut line, "timestamp", &self.timestamp.into());
        push(&mut line, "level", &self.level.into());
        push(&mut line, "target", &self.target.into());
        for name in DECISION_FIELDS {
            if let Some(value) = self.fields.remove(name) {
                push(&mut line, name, &value);
            }
        }
        for (name, value) in &self.fields {
            push(&mut line, name, value);
        }
        line.push_str("}\n");
        line
    }

    /// Time, level and message, and then the fields as `name=value`.
    fn text(mut self, has_colors: bool) -> String {
        let mut line = String::with_capacity(256);
        // Writing to a string cannot fail.
        let _ = if has_colors {
            let color = level_color(self.level);
            write!(
                line,
                "\x1b[2m{}\x1b[0m \x1b[{color}m{:>5}\x1b[0m",
                self.timestamp, self.level
            )
        } else {
            write!(line, "{} {:>5}", self.timestamp, self.level)
        };
        if self.target != "balde" {
            let _ = write!(line, " {}:", self.target);
        }
        match self.fields.remove("message") {
            Some(Value::String(message)) => {
                let _ = write!(line, " {}", OneLine(&message));
            }
            Some(message) => {
                let _ = write!(line, " {message}");
            }
            None => {}
        }
        if let Some(Value::String(hash)) = self.fields.get_mut("key_hash") {
            hash.truncate(HASH_DIGITS);
        }
        for name in DECISION_FIELDS {
            if let Some(value) = self.fields.remove(name) {
                push_text(&mut line, name, &value);
            }
        }
        for (name, value) in &self.fields {
            push_text(&mut line, name, value);
        }
        line.push('\n');
        line
    }
}

/// The number of a colour in an escape sequence.
fn level_color(level: &str) -> u8 {
    match level {
        "ERROR" => 31,
        "WARN" => 33,
        "INFO" => 32,
        "DEBUG" => 34,
        _ => 35,
    }
}

fn push(line: &mut String, name: &str, value: &Value) {
    line.push(if line.is_empty() { '{' } else { ',' });
    let _ = write!(line, "{}:{value}", Value::from(name));
}

fn push_text(line: &mut String, name: &str, value: &Value) {
    let is_plain = |text: &str| {
        let is_graphic = |c: char| !c.is_whitespace() && !c.is_control() && c != '"';
        !text.is_empty() && text.chars().all(is_graphic)
    };
    let _ = match value {
        Value::String(text) if is_plain(text) => write!(line, " {name}={text}"),
        value => write!(line, " {name}={value}"),
    };
}

/// A text without line breaks and other control characters, so that nothing can pass for a line of
/// its own or change a terminal.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() {
                write!(f, "{}", c.escape_default())
            } else {
                f.write_char(c)
            }
        })
    }
}

/// The fields of an event, by name.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, Value>);

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity and no NaN, which would be null.
        let number = Value::from(value);
        let number = if number.is_null() {
            value.to_string().into()
        } else {
            number
        };
        self.0.insert(field.name(), number);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").into());
    }
}
