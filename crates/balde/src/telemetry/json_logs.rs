//! Lines as JSON objects, one per line, with the names that operators depend on.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// What a line about a decision always has, in this order; where there is nothing to say, null.
const NAMES: [&str; 9] = [
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

/// A layer that writes one JSON object per line to the standard output, for events at INFO and
/// above.
///
/// Every line has `timestamp` (RFC 3339, UTC), `level`, `target`, `message`, `trace_id` and
/// `span_id`; lines of this crate also `event_type`, `decision`, `strategy`, `storage_mode`,
/// `policy`, `latency_ms`, `retry_after_ms`, `remaining` and `key_hash`, null where there is nothing
/// to say. Further fields follow under their own names.
///
/// `trace_id` and `span_id` are those of the OpenTelemetry span that the line belongs to (feature
/// `otlp`), else what the nearest span has in fields of these names, else null.
///
/// What cannot be written is lost, and changes no decision. A pipe that is full holds up whoever
/// writes; give [`json_logs_to`] a writer that does not wait, where that matters.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry().with(balde::telemetry::json_logs());
/// # tracing::subscriber::with_default(subscriber, || {
/// let limiter = balde::RateLimiter::new("1/min")?;
/// limiter.blocking().check("alice");
/// limiter.blocking().check("alice"); // writes a line
/// # Ok::<(), balde::BuildError>(()) })?;
/// # Ok::<(), balde::BuildError>(())
/// ```
pub fn json_logs<S>() -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    json_logs_to(io::stdout)
}

/// [`json_logs`] to any writer.
pub fn json_logs_to<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    json_logs_at(LevelFilter::INFO, writer)
}

/// [`json_logs_to`] for events at another level and above.
pub fn json_logs_at<S, W>(level: impl Into<LevelFilter>, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    JsonLogs { writer }.with_filter(level.into())
}

struct JsonLogs<W> {
    writer: W,
}

impl<S, W> Layer<S> for JsonLogs<W>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut ids = Ids::default();
            attributes.record(&mut ids);
            span.extensions_mut().insert(ids);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(ids) = span.extensions_mut().get_mut::<Ids>()
        {
            values.record(ids);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let ids = Ids::current().unwrap_or_else(|| {
            let spans = context.event_scope(event);
            let ids = spans.into_iter().flatten().filter_map(|span| {
                let extensions = span.extensions();
                extensions
                    .get::<Ids>()
                    .filter(|ids| ids.is_there())
                    .cloned()
            });
            ids.into_iter().next().unwrap_or_default()
        });
        let metadata = event.metadata();
        let line = line(metadata.level().as_str(), metadata.target(), fields, ids);
        // Nobody could be told that nobody can be told.
        let _lost = self
            .writer
            .make_writer_for(metadata)
            .write_all(line.as_bytes());
    }
}

fn line(level: &str, target: &str, mut fields: Fields, ids: Ids) -> String {
    let mut line = String::with_capacity(512);
    let mut timestamp = String::new();
    // Writing into a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    push(&mut line, "timestamp", &timestamp.into());
    push(&mut line, "level", &level.into());
    push(&mut line, "target", &target.into());
    let is_own = fields.0.contains_key("event_type");
    for name in NAMES {
        match fields.0.remove(name) {
            Some(value) => push(&mut line, name, &value),
            None if is_own => push(&mut line, name, &Value::Null),
            None => {}
        }
    }
    push(&mut line, "trace_id", &ids.trace_id.into());
    push(&mut line, "span_id", &ids.span_id.into());
    for name in ["timestamp", "level", "target", "trace_id", "span_id"] {
        // An object has each name once.
        fields.0.remove(name);
    }
    for (name, value) in &fields.0 {
        push(&mut line, name, value);
    }
    line.push_str("}\n");
    line
}

fn push(line: &mut String, name: &str, value: &Value) {
    line.push(if line.is_empty() { '{' } else { ',' });
    let _ = write!(line, "{}:{value}", Value::from(name));
}

/// The fields of an event, by name.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, Value>);

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name(), value.into());
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

/// Which trace and span a line belongs to.
#[derive(Clone, Default)]
struct Ids {
    trace_id: Option<String>,
    span_id: Option<String>,
}

impl Ids {
    #[cfg(feature = "otlp")]
    fn current() -> Option<Self> {
        use opentelemetry::trace::TraceContextExt;

        let context = opentelemetry::Context::current();
        let span = context.span();
        let ids = span.span_context();
        ids.is_valid().then(|| Self {
            trace_id: Some(ids.trace_id().to_string()),
            span_id: Some(ids.span_id().to_string()),
        })
    }

    #[cfg(not(feature = "otlp"))]
    fn current() -> Option<Self> {
        None
    }

    fn is_there(&self) -> bool {
        self.trace_id.is_some() || self.span_id.is_some()
    }

    fn set(&mut self, name: &str, value: String) {
        match name {
            "trace_id" => self.trace_id = Some(value),
            "span_id" => self.span_id = Some(value),
            _ => {}
        }
    }
}

impl Visit for Ids {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "trace_id" | "span_id") {
            self.set(field.name(), format!("{value:?}"));
        }
    }
}
