//! The trace and the span that a line belongs to.

#[cfg(feature = "logs")]
use std::fmt;
#[cfg(feature = "logs")]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "logs")]
use tracing::Subscriber;
#[cfg(feature = "logs")]
use tracing::field::{Field, Visit};
#[cfg(feature = "logs")]
use tracing_subscriber::Registry;
#[cfg(feature = "logs")]
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// Set once a span with such a field has been seen, so that programs without them do not search.
#[cfg(feature = "logs")]
static HAS_FIELDS: AtomicBool = AtomicBool::new(false);

/// Longer values are no ids, and are ignored.
#[cfg(feature = "logs")]
const ID_BYTES_MAX: usize = 128;

/// The ids of the current OpenTelemetry span, or the fields `trace_id` and `span_id` of a `tracing`
/// span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TraceIds {
    trace_id: Option<String>,
    span_id: Option<String>,
}

impl TraceIds {
    /// The ids at this moment, for a line that is written later by another thread.
    #[inline]
    pub(super) fn capture() -> Option<Self> {
        #[cfg(feature = "otlp")]
        if let Some(ids) = Self::of_opentelemetry() {
            return Some(ids);
        }
        #[cfg(feature = "logs")]
        if HAS_FIELDS.load(Ordering::Relaxed) {
            return Self::of_current_span();
        }
        None
    }

    pub(super) fn trace_id(&self) -> Option<&str> {
        self.trace_id.as_deref()
    }

    pub(super) fn span_id(&self) -> Option<&str> {
        self.span_id.as_deref()
    }

    #[cfg(feature = "otlp")]
    pub(super) fn of_opentelemetry() -> Option<Self> {
        use opentelemetry::trace::TraceContextExt;

        opentelemetry::Context::map_current(|context| {
            if !context.has_active_span() {
                return None;
            }
            let span = context.span();
            let ids = span.span_context();
            ids.is_valid().then(|| Self {
                trace_id: Some(ids.trace_id().to_string()),
                span_id: Some(ids.span_id().to_string()),
            })
        })
    }
}

#[cfg(feature = "logs")]
impl TraceIds {
    #[cold]
    fn of_current_span() -> Option<Self> {
        tracing::dispatcher::get_default(|dispatch| {
            let registry = dispatch.downcast_ref::<Registry>()?;
            let current = registry.current_span();
            Self::of_span(&registry.span(current.id()?)?)
        })
    }

    /// The ids in the fields of a span or of the nearest span around it.
    pub(super) fn of_span<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Option<Self> {
        span.scope().find_map(|span| {
            let extensions = span.extensions();
            let ids = extensions.get::<Self>();
            ids.filter(|ids| !ids.is_empty()).cloned()
        })
    }

    fn is_empty(&self) -> bool {
        self.trace_id.is_none() && self.span_id.is_none()
    }

    fn set(&mut self, name: &str, value: String) {
        if value.len() > ID_BYTES_MAX {
            return;
        }
        match name {
            "trace_id" => self.trace_id = Some(value),
            "span_id" => self.span_id = Some(value),
            _ => return,
        }
        HAS_FIELDS.store(true, Ordering::Relaxed);
    }
}

#[cfg(feature = "logs")]
impl Visit for TraceIds {
    fn record_str(&mut self, field: &Field, value: &str) {
        if matches!(field.name(), "trace_id" | "span_id") {
            self.set(field.name(), value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "trace_id" | "span_id") {
            self.set(field.name(), format!("{value:?}"));
        }
    }
}
