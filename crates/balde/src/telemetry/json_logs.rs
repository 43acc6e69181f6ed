//! Log lines as JSON objects with stable field names.

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

/// The fields of every line about a decision, in this order; null if there is no value.
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

/// A `tracing` layer that writes events at INFO and above to standard output, one JSON object per
/// line.
///
/// Every line has `timestamp` (RFC 3339, UTC), `level`, `target`, `message`, `trace_id` and
/// `span_id`. Lines of this crate also have `event_type`, `decision`, `strategy`, `storage_mode`,
/// `policy`, `latency_ms`, `retry_after_ms`, `remaining` and `key_hash`, which are null if there is
/// no value. All other fields of the event follow.
///
/// `trace_id` and `span_id` come from the current OpenTelemetry span (feature `otlp`), else from
/// fields of these names in the nearest `tracing` span, else they are null.
///
/// Lines that cannot be written are lost; this changes no decision. Writing to a full pipe blocks the
/// thread. To avoid that, pass a non-blocking writer to [`json_logs_to`].
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

/// Like [`json_logs`], but writes to any writer.
pub fn json_logs_to<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    json_logs_at(LevelFilter::INFO, writer)
}

/// Like [`json_logs_to`], for events at the given level and above.
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
                    .filter(|ids| !ids.is_empty())
                    .cloned()
            });
            ids.into_iter().next().unwrap_or_default()
        });
        let metadata = event.metadata();
        let line = line(metadata.level().as_str(), metadata.target(), fields, ids);
        // A failure to log cannot be logged.
        let _lost = self
            .writer
            .make_writer_for(metadata)
            .write_all(line.as_bytes());
    }
}

fn line(level: &str, target: &str, mut fields: Fields, ids: Ids) -> String {
    let mut line = String::with_capacity(512);
    let mut timestamp = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    push(&mut line, "timestamp", &timestamp.into());
    push(&mut line, "level", &level.into());
    push(&mut line, "target", &target.into());
    let is_balde_event = fields.0.contains_key("event_type");
    for name in DECISION_FIELDS {
        match fields.0.remove(name) {
            Some(value) => push(&mut line, name, &value),
            None if is_balde_event => push(&mut line, name, &Value::Null),
            None => {}
        }
    }
    push(&mut line, "trace_id", &ids.trace_id.into());
    push(&mut line, "span_id", &ids.span_id.into());
    for name in ["timestamp", "level", "target", "trace_id", "span_id"] {
        // These names are already written, and an object must not repeat a name.
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

/// The trace and the span that a line belongs to.
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

    fn is_empty(&self) -> bool {
        self.trace_id.is_none() && self.span_id.is_none()
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
