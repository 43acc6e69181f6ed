//! Prometheus metrics of all limiters in a process.
//!
//! | File | Contents |
//! |--|--|
//! | `policies` | the counters of each policy, and its registered limiters |
//! | `stores` | the registered shared stores |
//! | `exposition` | names, help texts and labels |
//! | `source` | metrics that the program adds |
//! | `classic` | the text format that is served |

mod classic;
mod exposition;
mod policies;
mod source;
mod stores;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use self::exposition::Exposition;
use super::meter::Meter;
use super::unit::{MetricsUnit, Unit};

pub(crate) use policies::LimiterReading;
#[cfg(feature = "tokio")]
pub(crate) use policies::WaitCounts;
pub use source::{DurationHistogram, MetricsWriter};

#[cfg(feature = "redis")]
pub(crate) use stores::StoreReading;

/// The `Content-Type` of [`Metrics::encode`]: the classic text format of Prometheus.
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Collects the metrics of limiters and encodes them for Prometheus. Clones share all counters. One
/// per process is enough.
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
    /// Creates metrics with a new registry, which writes durations in milliseconds.
    pub fn new() -> Self {
        Self::with_unit(MetricsUnit::default())
    }

    /// Creates metrics with a new registry, which writes durations in this unit.
    pub fn with_unit(unit: MetricsUnit) -> Self {
        let exposition = Arc::new(Exposition {
            unit: Unit::new(unit),
            ..Exposition::default()
        });
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(&exposition)));
        Self(Arc::new(Inner {
            registry: Mutex::new(registry),
            exposition,
        }))
    }

    /// Encodes all metrics as text, in the unit that was chosen. Serve it with [`METRICS_CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut openmetrics = String::new();
        let encoded = text::encode(&mut openmetrics, &self.0.registry.lock());
        encoded.expect("writing into a string does not fail");
        prometheus_text(&openmetrics)
    }

    /// Encodes all metrics with durations in seconds, as `promtool check metrics` recommends. Names end
    /// in `_seconds` instead of `_ms`; all other names and values are as in
    /// [`encode`](Metrics::encode), so a server can offer both.
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
        encoded.expect("writing into a string does not fail");
        drop(registry);
        prometheus_text(&openmetrics)
    }

    /// Encodes all metrics with durations in milliseconds and, beside them, in seconds: the documented
    /// names for dashboards that have them, and the base unit that Prometheus recommends.
    ///
    /// ```
    /// use balde::telemetry::Metrics;
    ///
    /// let page = Metrics::new().encode_in_both_units();
    /// assert!(page.contains("rate_limiter_latency_ms_count"));
    /// assert!(page.contains("rate_limiter_latency_seconds_count"));
    /// assert_eq!(page.matches("# TYPE rate_limiter_keys ").count(), 1);
    /// ```
    pub fn encode_in_both_units(&self) -> String {
        let mut page = self.encode();
        let seconds = self.encode_in_seconds();
        let families = |page: &str| -> Vec<String> {
            let heads = page.lines().filter_map(|line| line.strip_prefix("# HELP "));
            let names = heads.filter_map(|head| head.split(' ').next());
            names.map(str::to_owned).collect()
        };
        let known = families(&page);
        let mut is_new = false;
        for line in seconds.lines() {
            if let Some(head) = line.strip_prefix("# HELP ") {
                let name = head.split(' ').next().unwrap_or_default();
                is_new = !known.iter().any(|known| known == name);
            }
            if is_new {
                page.push_str(line);
                page.push('\n');
            }
        }
        page
    }

    /// Adds the program's own metrics: `write` is called each time the metrics are encoded.
    /// Durations are converted to the unit that is being encoded.
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
        let mut registry = self.0.registry.lock();
        registry.register_collector(Box::new(source));
    }

    /// The counters of a policy. Limiters with the same name share them.
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

/// Converts text in the `OpenMetrics` format to the classic text format of Prometheus, to be served as
/// [`METRICS_CONTENT_TYPE`]: for metrics that a program encodes itself.
pub fn prometheus_text(openmetrics: &str) -> String {
    classic::from_openmetrics(openmetrics)
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
