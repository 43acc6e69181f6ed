//! Spans to a collector, by OTLP.

use std::fmt;
use std::io;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider,
};
use tokio::runtime::Runtime;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// Spans that wait to be sent, unless told otherwise. What does not fit is dropped.
const QUEUE_MAX_DEFAULT: usize = 8_192;
const QUEUE_MAX_MAX: usize = 1 << 20;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Sends spans to an OpenTelemetry collector.
///
/// [`layer`](Otlp::layer) listens to spans of this crate at DEBUG and to everybody else's at INFO. It
/// is told of them by `tracing`, sends them from a thread of its own, and never holds up a check: what
/// the queue cannot take is dropped. A span costs its check three to five microseconds. Sampling
/// spares the network and the collector, and hardly any of that.
///
/// ```no_run
/// use balde::telemetry::Otlp;
/// use tracing_subscriber::layer::SubscriberExt;
/// use tracing_subscriber::util::SubscriberInitExt;
///
/// let otlp = Otlp::grpc("http://127.0.0.1:4317").service_name("orders").sample_one_in(100);
/// let (layer, guard) = otlp.layer()?;
/// tracing_subscriber::registry().with(layer).init();
/// // … serve …
/// drop(guard); // sends what is left
/// # Ok::<(), balde::telemetry::OtlpError>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is sent until its layer is part of a subscriber"]
pub struct Otlp {
    endpoint: String,
    transport: Transport,
    service_name: String,
    one_in: u32,
    queue_max: usize,
    timeout: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    Grpc,
    Http,
}

impl Otlp {
    /// Over gRPC, to an address such as `http://127.0.0.1:4317`.
    pub fn grpc(endpoint: impl Into<String>) -> Self {
        Self::new(endpoint.into(), Transport::Grpc)
    }

    /// Over HTTP with protobuf, to an address such as `http://127.0.0.1:4318`. Without a path it is
    /// `/v1/traces`.
    pub fn http(endpoint: impl Into<String>) -> Self {
        Self::new(endpoint.into(), Transport::Http)
    }

    fn new(endpoint: String, transport: Transport) -> Self {
        Self {
            endpoint,
            transport,
            service_name: "balde".to_owned(),
            one_in: 1,
            queue_max: QUEUE_MAX_DEFAULT,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    /// What the program is called at the collector.
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service_name = name.into();
        self
    }

    /// Sends one trace in `n`; all of them unless told otherwise. A trace that began elsewhere is
    /// sampled as was decided there.
    pub fn sample_one_in(mut self, n: u32) -> Self {
        self.one_in = n;
        self
    }

    /// The most spans that wait to be sent, 8,192 unless told otherwise.
    pub fn queue_max(mut self, spans: usize) -> Self {
        self.queue_max = spans;
        self
    }

    /// How long the collector may take for a batch, five seconds unless told otherwise. The guard
    /// waits as long for the last one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The layer, and what has to be kept until the program ends.
    pub fn layer<S>(self) -> Result<(impl Layer<S>, OtlpGuard), OtlpError>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let guard = self.start()?;
        let layer = tracing_opentelemetry::layer()
            .with_tracer(guard.provider.tracer("balde"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(
                Targets::new()
                    .with_default(LevelFilter::INFO)
                    .with_target("balde", Level::DEBUG),
            );
        Ok((layer, guard))
    }

    fn start(self) -> Result<OtlpGuard, OtlpError> {
        let rest = self.endpoint.strip_prefix("http://");
        let rest = rest.filter(|rest| !rest.is_empty());
        let has_path = rest.ok_or(OtlpError::Endpoint)?.contains('/');
        if self.one_in == 0 {
            return Err(OtlpError::Sampling);
        }
        if !(1..=QUEUE_MAX_MAX).contains(&self.queue_max) {
            return Err(OtlpError::Queue);
        }
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            return Err(OtlpError::Timeout);
        }
        let (exporter, runtime) = match self.transport {
            Transport::Grpc => {
                // The channel lives in the runtime it is made in. The program's own may have one
                // thread, which would wait for itself when the guard sends what is left.
                let runtime = own_runtime()?;
                let inside = runtime.enter();
                let exporter = self.grpc_exporter()?;
                drop(inside);
                (exporter, Some(runtime))
            }
            Transport::Http => {
                let path = if has_path { "" } else { "/v1/traces" };
                (self.http_exporter(path)?, None)
            }
        };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(self.queue_max)
            .build();
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batches)
            .build();
        let resource = Resource::builder().with_service_name(self.service_name);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(sampler(self.one_in))
            .with_resource(resource.build())
            .build();
        Ok(OtlpGuard {
            provider,
            runtime,
            timeout: self.timeout,
        })
    }

    fn grpc_exporter(&self) -> Result<SpanExporter, OtlpError> {
        let exporter = SpanExporter::builder().with_tonic();
        let exporter = exporter
            .with_endpoint(&self.endpoint)
            .with_timeout(self.timeout);
        // The error may repeat the address, and that may hold a password.
        exporter.build().map_err(|_| OtlpError::Endpoint)
    }

    fn http_exporter(&self, path: &str) -> Result<SpanExporter, OtlpError> {
        choose_cryptography();
        let exporter = SpanExporter::builder().with_http();
        let exporter = exporter
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}{path}", self.endpoint))
            .with_timeout(self.timeout);
        exporter.build().map_err(|_| OtlpError::Endpoint)
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("Otlp")
            .field("transport", &self.transport)
            .field("service_name", &self.service_name)
            .field("one_in", &self.one_in)
            .field("queue_max", &self.queue_max)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Keeps spans going out. Dropped, it sends what is left, for as long as the timeout allows.
#[must_use = "dropped at once, it ends the export at once"]
pub struct OtlpGuard {
    provider: SdkTracerProvider,
    /// Only where the exporter needs one.
    runtime: Option<Runtime>,
    timeout: Duration,
}

impl OtlpGuard {
    /// Sends what is waiting, and waits for it. It holds up the thread.
    pub fn flush(&self) -> Result<(), OtlpError> {
        self.provider.force_flush().map_err(|_| OtlpError::Export)
    }
}

impl Drop for OtlpGuard {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.provider.shutdown_with_timeout(self.timeout);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for OtlpGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpGuard").finish_non_exhaustive()
    }
}

/// Why spans cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtlpError {
    /// The collector's address cannot be used. It is not repeated here: it may hold a password.
    Endpoint,
    /// One trace in zero.
    Sampling,
    /// The queue would hold nothing, or too much.
    Queue,
    /// The timeout is zero or too long.
    Timeout,
    /// The system gives no thread for sending.
    Runtime(io::ErrorKind),
    /// The collector did not take the spans.
    Export,
}

impl fmt::Display for OtlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint => f.write_str(
                "the collector's address cannot be used; it is http://host:port, without TLS: run \
                 a collector beside the program to go further",
            ),
            Self::Sampling => f.write_str("one trace in 0 cannot be sent; use 1 for all of them"),
            Self::Queue => write!(f, "the queue must hold between 1 and {QUEUE_MAX_MAX} spans"),
            Self::Timeout => write!(
                f,
                "the collector's timeout must be more than zero and at most {TIMEOUT_MAX:?}"
            ),
            Self::Runtime(kind) => write!(f, "sending gets no thread of its own: {kind}"),
            Self::Export => f.write_str("the collector did not take the spans in time"),
        }
    }
}

impl std::error::Error for OtlpError {}

/// Continues the trace that a request belongs to, as its `traceparent` header says: `span` becomes a
/// child of the caller's. Without such a header, or with one that is no good, nothing changes. Call
/// it when the span is new: what has been told of a span cannot be moved.
#[cfg(feature = "http")]
pub fn continue_trace(span: &tracing::Span, headers: &http::HeaderMap) {
    use opentelemetry::propagation::TextMapPropagator;
    use opentelemetry::trace::TraceContextExt;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    if span.is_disabled() || !headers.contains_key("traceparent") {
        return;
    }
    let none = opentelemetry::Context::new();
    let parent = TraceContextPropagator::new().extract_with_context(&none, &Headers(headers));
    if parent.span().span_context().is_valid() {
        // Nobody may be exporting.
        let _ = span.set_parent(parent);
    }
}

#[cfg(feature = "http")]
struct Headers<'a>(&'a http::HeaderMap);

#[cfg(feature = "http")]
impl opentelemetry::propagation::Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// A trace that began elsewhere goes by what was decided there.
fn sampler(one_in: u32) -> Sampler {
    let own = match one_in {
        1 => Sampler::AlwaysOn,
        n => Sampler::TraceIdRatioBased(1.0 / f64::from(n)),
    };
    Sampler::ParentBased(Box::new(own))
}

fn own_runtime() -> Result<Runtime, OtlpError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("balde-otlp")
        .enable_all()
        .build()
        .map_err(|error| OtlpError::Runtime(error.kind()))
}

/// The HTTP client asks the process for its cryptography when anybody in the program has built it
/// with TLS, even where it is not used. Whoever has chosen already, has chosen.
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _chosen_meanwhile = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_without_repeating_the_address() {
        let sampled = Otlp::grpc("http://127.0.0.1:1").sample_one_in(0);
        let queued = Otlp::http("http://127.0.0.1:1").queue_max(0);
        let hasty = Otlp::http("http://127.0.0.1:1").timeout(Duration::ZERO);
        for (otlp, error) in [
            (
                Otlp::grpc("https://user:hunter2@collector"),
                OtlpError::Endpoint,
            ),
            (Otlp::http("http://"), OtlpError::Endpoint),
            (
                Otlp::http("http://user:hunter2 @collector"),
                OtlpError::Endpoint,
            ),
            (sampled, OtlpError::Sampling),
            (queued, OtlpError::Queue),
            (hasty, OtlpError::Timeout),
        ] {
            let shown = format!("{otlp:?} {error}");
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(otlp.start().map(drop).unwrap_err(), error);
        }
    }
}
