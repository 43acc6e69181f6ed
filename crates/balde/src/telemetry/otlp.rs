//! Exports spans to an OpenTelemetry collector over OTLP.

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

/// The default capacity of the export queue. Spans that do not fit are dropped.
const QUEUE_MAX_DEFAULT: usize = 8_192;
const QUEUE_MAX_MAX: usize = 1 << 20;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Exports spans to an OpenTelemetry collector.
///
/// [`layer`](Otlp::layer) returns a `tracing` layer that records the spans of this crate at DEBUG and
/// all other spans at INFO. A background thread sends them. A check never waits for it: spans that do
/// not fit the queue are dropped. A span adds three to five microseconds to its check. Sampling
/// reduces the load on the network and the collector, but hardly that time.
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
/// drop(guard); // sends the remaining spans
/// # Ok::<(), balde::telemetry::OtlpError>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is sent until its layer is added to a subscriber"]
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
    /// Exports over gRPC, to an address such as `http://127.0.0.1:4317`.
    pub fn grpc(endpoint: impl Into<String>) -> Self {
        Self::new(endpoint.into(), Transport::Grpc)
    }

    /// Exports over HTTP with protobuf, to an address such as `http://127.0.0.1:4318`. The default path
    /// is `/v1/traces`.
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

    /// Sets the service name that the collector shows. The default is `balde`.
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service_name = name.into();
        self
    }

    /// Exports one trace in `n`. By default all traces are exported. A trace that began in another
    /// service follows the sampling decision made there.
    pub fn sample_one_in(mut self, n: u32) -> Self {
        self.one_in = n;
        self
    }

    /// Sets the maximum number of spans that wait to be sent. The default is 8,192.
    pub fn queue_max(mut self, spans: usize) -> Self {
        self.queue_max = spans;
        self
    }

    /// Sets the timeout for sending a batch. The default is five seconds. The guard waits no longer than
    /// this for the last batch.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Builds the layer and starts the export. Keep the guard until the program ends.
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
                // The channel runs on the runtime in which it is created. The program's own runtime
                // may have a single thread, which would deadlock when the guard flushes.
                let runtime = export_runtime()?;
                let entered = runtime.enter();
                let exporter = self.grpc_exporter()?;
                drop(entered);
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
        // The error may contain the address, which may contain a password.
        exporter.build().map_err(|_| OtlpError::Endpoint)
    }

    fn http_exporter(&self, path: &str) -> Result<SpanExporter, OtlpError> {
        install_crypto_provider();
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
        // The address is left out because it may contain a password.
        f.debug_struct("Otlp")
            .field("transport", &self.transport)
            .field("service_name", &self.service_name)
            .field("one_in", &self.one_in)
            .field("queue_max", &self.queue_max)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Keeps the export running. When it is dropped, it sends the remaining spans, within the timeout.
#[must_use = "dropping the guard ends the export"]
pub struct OtlpGuard {
    provider: SdkTracerProvider,
    /// Present if the exporter needs a runtime.
    runtime: Option<Runtime>,
    timeout: Duration,
}

impl OtlpGuard {
    /// Sends all waiting spans. Blocks the thread until they are sent.
    pub fn flush(&self) -> Result<(), OtlpError> {
        self.provider.force_flush().map_err(|_| OtlpError::Export)
    }
}

impl Drop for OtlpGuard {
    fn drop(&mut self) {
        // A destructor cannot return the error.
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

/// Why spans cannot be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// The collector's address is invalid. The error does not contain it, because it may contain a
    /// password.
    #[error(
        "the collector's address is invalid; write http://host:port. TLS is not supported: run a \
         collector on this host and let it forward the spans"
    )]
    Endpoint,
    /// `sample_one_in` was 0.
    #[error("one trace in 0 cannot be exported; use 1 to export all traces")]
    Sampling,
    /// `queue_max` was zero or too large.
    #[error("the queue must hold between 1 and {QUEUE_MAX_MAX} spans")]
    Queue,
    /// The timeout was zero or too long.
    #[error("the collector's timeout must be more than zero and at most {TIMEOUT_MAX:?}")]
    Timeout,
    /// The operating system could not start the export thread.
    #[error("the export thread could not be started: {0}")]
    Runtime(io::ErrorKind),
    /// The collector did not accept the spans within the timeout.
    #[error("the collector did not accept the spans within the timeout")]
    Export,
}

/// Continues the trace named by the `traceparent` header of a request: `span` becomes a child of the
/// caller's span. Without a valid header nothing changes. Call this right after the span was created,
/// because the parent of a span that has been used cannot be changed.
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
        // Fails if no OpenTelemetry layer is installed, and then there is nothing to do.
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

/// Samples new traces; a trace that began in another service follows the decision made there.
fn sampler(one_in: u32) -> Sampler {
    let own = match one_in {
        1 => Sampler::AlwaysOn,
        n => Sampler::TraceIdRatioBased(1.0 / f64::from(n)),
    };
    Sampler::ParentBased(Box::new(own))
}

fn export_runtime() -> Result<Runtime, OtlpError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("balde-otlp")
        .enable_all()
        .build()
        .map_err(|error| OtlpError::Runtime(error.kind()))
}

/// Installs a default crypto provider if the process has none. The HTTP client needs one as soon as
/// any crate in the program enables its TLS support, even if TLS is not used.
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _installed_concurrently = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_rejected_without_showing_the_address() {
        let sampled = Otlp::grpc("http://127.0.0.1:1").sample_one_in(0);
        let queued = Otlp::http("http://127.0.0.1:1").queue_max(0);
        let no_timeout = Otlp::http("http://127.0.0.1:1").timeout(Duration::ZERO);
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
            (no_timeout, OtlpError::Timeout),
        ] {
            let shown = format!("{otlp:?} {error}");
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(otlp.start().map(drop).unwrap_err(), error);
        }
    }
}
