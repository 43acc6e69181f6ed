//! Metrics of many limiters, for Prometheus to scrape.
//!
//! | File | Holds |
//! |--|--|
//! | `policies` | the counts of each policy, and the limiters to ask for the rest |
//! | `stores` | the shared stores to ask |
//! | `exposition` | names, help texts, and what stands under each |
//! | `source` | metrics that the program adds |
//! | `histogram` | durations in buckets |
//! | `unit` | milliseconds or seconds |
//! | `classic` | the text format that is served |

mod classic;
mod exposition;
pub(super) mod histogram;
mod policies;
mod source;
mod stores;
mod unit;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use self::exposition::Exposition;
use super::meter::Meter;

pub(crate) use policies::LimiterReading;
pub use policies::{POLICIES_MAX, POLICY_NAME_BYTES_MAX};
pub use source::{DurationHistogram, MetricsWriter};

#[cfg(feature = "redis")]
pub(crate) use stores::StoreReading;

/// What to serve [`Metrics::encode`] as: the classic text format of Prometheus.
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counts what limiters decide, and writes it for Prometheus. Clones count together; one per
/// process is enough.
///
/// ```
/// use balde::RateLimiter;
/// use balde::telemetry::Metrics;
///
/// let metrics = Metrics::new();
/// let limiter = RateLimiter::builder().name("per-user").limit("2/min").metrics(&metrics).build()?;
/// for _ in 0..3 {
///     limiter.blocking().check("alice");
/// }
/// let text = metrics.encode();
/// assert!(text.contains(r#"rate_limiter_decisions_total{decision="allow",policy="per-user"} 2"#));
/// assert!(text.contains(r#"rate_limiter_decisions_total{decision="deny",policy="per-user"} 1"#));
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    exposition: Arc<Exposition>,
}

impl Metrics {
    /// Metrics in a registry of their own.
    pub fn new() -> Self {
        let exposition = Arc::new(Exposition::default());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(&exposition)));
        Self(Arc::new(Inner {
            registry: Mutex::new(registry),
            exposition,
        }))
    }

    /// Everything as text, to be served as [`METRICS_CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        metrics_text(&self.0.registry.lock())
    }

    /// [`encode`](Metrics::encode) with durations in seconds, as Prometheus would have them and
    /// `promtool check metrics` asks: names that end in `_ms` end in `_seconds` here. All other names
    /// and numbers are the same, so a server may offer both.
    ///
    /// ```
    /// use balde::telemetry::Metrics;
    ///
    /// let metrics = Metrics::new();
    /// assert!(metrics.encode().contains("rate_limiter_latency_ms_count"));
    /// assert!(metrics.encode_in_seconds().contains("rate_limiter_latency_seconds_count"));
    /// ```
    pub fn encode_in_seconds(&self) -> String {
        let mut openmetrics = String::new();
        let registry = self.0.registry.lock();
        let encode = || text::encode(&mut openmetrics, &registry);
        let encoded = self.0.exposition.unit.in_seconds(encode);
        encoded.expect("a string takes whatever is written");
        drop(registry);
        classic::of_openmetrics(&openmetrics)
    }

    /// Lends the registry, to add metrics of the program's own or to write them in another format.
    /// Nobody can encode meanwhile, `lent` neither.
    ///
    /// ```
    /// use balde::telemetry::Metrics;
    /// use prometheus_client::metrics::counter::Counter;
    ///
    /// let metrics = Metrics::new();
    /// let orders: Counter = Counter::default();
    /// metrics.with_registry(|registry| registry.register("orders", "Orders taken", orders.clone()));
    /// orders.inc();
    /// assert!(metrics.encode().contains("orders_total 1"));
    /// ```
    pub fn with_registry<T>(&self, lent: impl FnOnce(&mut Registry) -> T) -> T {
        lent(&mut self.0.registry.lock())
    }

    /// Adds metrics that `write` writes each time the page is encoded. Durations are written in the
    /// unit of the page.
    ///
    /// ```
    /// use balde::telemetry::Metrics;
    ///
    /// let metrics = Metrics::new();
    /// metrics.add_source(|writer| {
    ///     let labels: &[(&str, &str)] = &[("queue", "orders")];
    ///     writer.gauge("queue_length", "Messages in the queue.", [(labels, 7)]);
    /// });
    /// assert!(metrics.encode().contains(r#"queue_length{queue="orders"} 7"#));
    /// ```
    pub fn add_source(&self, write: impl Fn(&mut MetricsWriter<'_>) + Send + Sync + 'static) {
        let source = source::Source::new(write, self.0.exposition.unit.clone());
        self.with_registry(|registry| registry.register_collector(Box::new(source)));
    }

    /// What a limiter of this name counts with. Limiters of one name count together.
    pub(crate) fn meter(&self, policy: &str) -> Meter {
        let exposition = &self.0.exposition;
        let counts = exposition.policies.counts(policy);
        Meter::new(counts, Arc::clone(&exposition.times))
    }

    /// Registers a limiter. `read` returns its numbers, or `None` once it is gone.
    pub(crate) fn add_limiter(
        &self,
        policy: &str,
        read: impl Fn() -> Option<LimiterReading> + Send + Sync + 'static,
    ) {
        self.0.exposition.policies.add(policy, Box::new(read));
    }

    /// Registers a shared store, unless one with this `id` is registered already. `read` returns its
    /// numbers, or `None` once it is gone.
    #[cfg(feature = "redis")]
    pub(crate) fn add_store(
        &self,
        id: usize,
        read: impl Fn() -> Option<StoreReading> + Send + Sync + 'static,
    ) {
        self.0.exposition.stores.add(id, Box::new(read));
    }
}

/// A registry as text, to be served as [`METRICS_CONTENT_TYPE`]: the format that every Prometheus and
/// `promtool` read.
pub fn metrics_text(registry: &Registry) -> String {
    let mut openmetrics = String::new();
    text::encode(&mut openmetrics, registry).expect("a string takes whatever is written");
    classic::of_openmetrics(&openmetrics)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
