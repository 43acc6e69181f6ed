//! What throttlers do, for Prometheus.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::health::Circuit;
use super::part::{PartitionStats, Tally, WAIT_BOUNDS_US};
use super::shared::Shared;
use super::throttler::Throttler;
use crate::telemetry::{Metrics, Unit};

/// Partitions of a throttler that have labels of their own. What is known of the others is added up
/// under `other`.
pub const LABELS_MAX: usize = 100;

/// Throttlers that can be exposed.
const THROTTLERS_MAX: usize = 64;

/// Exposes throttlers in the registry of a [`Metrics`]. One is enough for all throttlers of a
/// process; it keeps none of them alive.
///
/// ```
/// use balde::telemetry::Metrics;
/// use balde::throttle::{ThrottleMetrics, Throttler};
///
/// let metrics = Metrics::new();
/// let throttles = ThrottleMetrics::new(&metrics);
/// let throttler = Throttler::new(10_000, 2_000)?;
/// throttles.add(&throttler);
/// let _orders = throttler.partition("orders");
/// assert!(metrics.encode().contains(r#"throttle_burst{throttler="throttle",partition="orders"} 200"#));
/// # Ok::<(), balde::throttle::SettingsError>(())
/// ```
#[derive(Clone)]
pub struct ThrottleMetrics(Arc<Throttlers>);

#[derive(Default)]
struct Throttlers(Mutex<Vec<Weak<Shared>>>);

impl ThrottleMetrics {
    /// Nothing yet, in the registry of `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let throttlers = Arc::new(Throttlers::default());
        let collector = Exposed(Arc::clone(&throttlers), metrics.unit());
        metrics.with_registry(|registry| registry.register_collector(Box::new(collector)));
        Self(throttlers)
    }

    /// Exposes a throttler for as long as it lives. At most 64 are.
    pub fn add(&self, throttler: &Throttler) {
        let mut throttlers = self.0.0.lock();
        throttlers.retain(|one| one.strong_count() > 0);
        if throttlers.len() < THROTTLERS_MAX {
            throttlers.push(Arc::downgrade(throttler.shared()));
        }
    }
}

impl fmt::Debug for ThrottleMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleMetrics").finish_non_exhaustive()
    }
}

struct Exposed(Arc<Throttlers>, Unit);

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed").finish_non_exhaustive()
    }
}

/// One line of each metric.
struct Row {
    throttler: String,
    partition: String,
    rate: u64,
    burst: u64,
    waiters: u64,
    open: u64,
    tally: Tally,
}

type Column = (&'static str, &'static str, MetricType, fn(&Row) -> u64);

const COLUMNS: [Column; 7] = [
    (
        "throttle_rate",
        "Tokens that come in a period of the partition's rate, now.",
        MetricType::Gauge,
        |row| row.rate,
    ),
    (
        "throttle_burst",
        "The most tokens that can be had at once, now.",
        MetricType::Gauge,
        |row| row.burst,
    ),
    (
        "throttle_waiters",
        "Requests that wait for tokens.",
        MetricType::Gauge,
        |row| row.waiters,
    ),
    (
        "throttle_circuit_open",
        "Partitions whose circuit is not closed.",
        MetricType::Gauge,
        |row| row.open,
    ),
    (
        "throttle_granted_tokens",
        "Tokens given.",
        MetricType::Counter,
        |row| row.tally.granted,
    ),
    (
        "throttle_refused",
        "Requests refused.",
        MetricType::Counter,
        |row| row.tally.refused,
    ),
    (
        "throttle_failures",
        "Requests that failed, in the sense of what counts as an error.",
        MetricType::Counter,
        |row| row.tally.failures,
    ),
];

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let throttlers = self.0.0.lock().clone();
        let rows: Vec<Row> = throttlers
            .iter()
            .filter_map(Weak::upgrade)
            .flat_map(|shared| rows_of(&shared))
            .collect();
        for (name, help, metric_type, of) in COLUMNS {
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for row in &rows {
                let labels = labels(row);
                let mut line = family.encode_family(&labels)?;
                match metric_type {
                    MetricType::Counter => {
                        line.encode_counter::<NoLabelSet, _, u64>(&of(row), None)?;
                    }
                    _ => line.encode_gauge(&of(row))?,
                }
            }
        }
        let Self(_, unit) = self;
        let number = |us: u64| unit.number(Duration::from_micros(us));
        let name = unit.name("throttle_wait");
        let mut waits = encoder.encode_descriptor(
            &name,
            "How long requests waited for their tokens.",
            None,
            MetricType::Histogram,
        )?;
        for row in &rows {
            let bounds = WAIT_BOUNDS_US.iter().map(|us| number(*us));
            let counts = row.tally.waits.iter().copied();
            let buckets: Vec<_> = bounds.chain([f64::INFINITY]).zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let labels = labels(row);
            let mut line = waits.encode_family(&labels)?;
            let sum = number(row.tally.waited_us);
            line.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

fn labels(row: &Row) -> [(&'static str, &str); 2] {
    [
        ("throttler", row.throttler.as_str()),
        ("partition", row.partition.as_str()),
    ]
}

/// The partitions in the order of their names; those beyond the bound as one.
fn rows_of(shared: &Arc<Shared>) -> Vec<Row> {
    let stats = shared.step(|core, now_us| {
        core.recall_all(now_us);
        // One that is closed may live on in its last waiters.
        if core.is_closed {
            Vec::new()
        } else {
            core.stats()
        }
    });
    let throttler = &shared.settings.name;
    let mut rows: Vec<Row> = stats
        .iter()
        .take(LABELS_MAX)
        .map(|part| row(throttler, part))
        .collect();
    let others = stats.iter().skip(LABELS_MAX);
    let others = others.map(|part| row(throttler, part));
    rows.extend(others.reduce(|sum, one| plus(sum, &one)).map(|sum| Row {
        partition: "other".to_owned(),
        ..sum
    }));
    rows
}

fn plus(sum: Row, one: &Row) -> Row {
    Row {
        rate: sum.rate + one.rate,
        burst: sum.burst + one.burst,
        waiters: sum.waiters + one.waiters,
        open: sum.open + one.open,
        tally: sum.tally.plus(&one.tally),
        ..sum
    }
}

fn row(throttler: &str, part: &PartitionStats) -> Row {
    Row {
        throttler: throttler.to_owned(),
        partition: part.name().to_owned(),
        rate: part.pace().rate().tokens(),
        burst: part.pace().burst(),
        waiters: part.waiters() as u64,
        open: u64::from(part.circuit() != Circuit::Closed),
        tally: part.tally,
    }
}
