//! Metrics of throttlers, for Prometheus.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use balde::telemetry::{DurationHistogram, Metrics, MetricsWriter};
use parking_lot::Mutex;

use crate::health::Circuit;
use crate::inner::Inner;
use crate::scheduler::partition::{PartitionCounters, PartitionStats, WAIT_BOUNDS_US};
use crate::throttler::Throttler;

/// The most partitions of a throttler that have separate lines. The others are added up as `other`.
const LABELS_MAX: usize = 100;

/// The most throttlers.
const THROTTLERS_MAX: usize = 64;

/// Adds the metrics of throttlers to the page of a [`Metrics`]. One is enough for all throttlers of a
/// process. It does not keep them alive.
///
/// Labels are the names of the throttler and of the partition. The first 100 partitions of a
/// throttler, by name, have separate lines; the others are added up under the name `other`.
///
/// ```
/// use balde::telemetry::Metrics;
/// use balde_throttle::{ThrottleMetrics, Throttler};
///
/// let metrics = Metrics::new();
/// let throttles = ThrottleMetrics::new(&metrics);
/// let throttler = Throttler::new(10_000, 2_000)?;
/// throttles.add(&throttler);
/// let _orders = throttler.partition("orders");
/// assert!(metrics.encode().contains(r#"throttle_burst{throttler="throttle",partition="orders"} 200"#));
/// # Ok::<(), balde_throttle::SettingsError>(())
/// ```
#[derive(Clone)]
pub struct ThrottleMetrics(Arc<Throttlers>);

#[derive(Default)]
struct Throttlers(Mutex<Vec<Weak<Inner>>>);

impl ThrottleMetrics {
    /// Adds a source without throttlers to the page of `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let throttlers = Arc::new(Throttlers::default());
        let source = Arc::clone(&throttlers);
        metrics.add_source(move |writer| source.write(writer));
        Self(throttlers)
    }

    /// Adds a throttler, until it is dropped. At most 64 can be added; more are ignored.
    pub fn add(&self, throttler: &Throttler) {
        let mut throttlers = self.0.0.lock();
        throttlers.retain(|one| one.strong_count() > 0);
        if throttlers.len() < THROTTLERS_MAX {
            throttlers.push(Arc::downgrade(throttler.inner()));
        }
    }
}

impl fmt::Debug for ThrottleMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleMetrics").finish_non_exhaustive()
    }
}

/// One line of each metric: a partition, or the sum of several.
struct Row {
    throttler: String,
    partition: String,
    rate: u64,
    burst: u64,
    waiters: u64,
    open: u64,
    counters: PartitionCounters,
}

/// The global rate of a throttler.
struct GlobalRow {
    throttler: String,
    rate: u64,
    burst: u64,
    period_s: u64,
}

type GlobalColumn = (&'static str, &'static str, fn(&GlobalRow) -> u64);

const GLOBAL_GAUGES: [GlobalColumn; 3] = [
    (
        "throttle_global_rate",
        "Tokens per period over all partitions together.",
        |row| row.rate,
    ),
    (
        "throttle_global_burst",
        "The most tokens that all partitions together can take at once.",
        |row| row.burst,
    ),
    (
        "throttle_global_period_seconds",
        "The period of the global rate.",
        |row| row.period_s,
    ),
];

type Column = (&'static str, &'static str, fn(&Row) -> u64);

const GAUGES: [Column; 4] = [
    (
        "throttle_rate",
        "Tokens per period at the current rate.",
        |row| row.rate,
    ),
    (
        "throttle_burst",
        "The most tokens that can be taken at once at the current rate.",
        |row| row.burst,
    ),
    (
        "throttle_waiters",
        "Requests that wait for tokens.",
        |row| row.waiters,
    ),
    (
        "throttle_circuit_open",
        "Partitions whose circuit is not closed.",
        |row| row.open,
    ),
];

const COUNTERS: [Column; 3] = [
    ("throttle_granted_tokens", "Tokens granted.", |row| {
        row.counters.granted
    }),
    ("throttle_refused", "Requests refused.", |row| {
        row.counters.refused
    }),
    (
        "throttle_failures",
        "Reported outcomes that counted as errors.",
        |row| row.counters.failures,
    ),
];

impl Throttlers {
    fn write(&self, writer: &mut MetricsWriter<'_>) {
        let throttlers = self.0.lock().clone();
        let alive: Vec<Arc<Inner>> = throttlers.iter().filter_map(Weak::upgrade).collect();
        let globals: Vec<GlobalRow> = alive.iter().filter_map(|inner| global_row(inner)).collect();
        for (name, help, value) in GLOBAL_GAUGES {
            let rows = globals.iter();
            let lines = rows.map(|row| ([("throttler", row.throttler.as_str())], value(row)));
            writer.gauge(name, help, lines);
        }
        let rows: Vec<Row> = alive.iter().flat_map(rows_of).collect();
        for (name, help, value) in GAUGES {
            writer.gauge(name, help, rows.iter().map(|row| (labels(row), value(row))));
        }
        for (name, help, value) in COUNTERS {
            writer.counter(name, help, rows.iter().map(|row| (labels(row), value(row))));
        }
        let bounds = WAIT_BOUNDS_US.map(Duration::from_micros);
        let waits = rows.iter().map(|row| {
            let histogram = DurationHistogram {
                bounds: &bounds,
                counts: &row.counters.waits,
                sum: Duration::from_micros(row.counters.waited_us),
            };
            (labels(row), histogram)
        });
        let help = "How long requests waited for their tokens.";
        writer.durations("throttle_wait", help, waits);
    }
}

/// `None` for a throttler that is closed.
fn global_row(inner: &Inner) -> Option<GlobalRow> {
    let (is_closed, pace) = inner.read(|scheduler| (scheduler.is_closed, scheduler.global_pace));
    (!is_closed).then(|| GlobalRow {
        throttler: inner.settings.name.clone(),
        rate: pace.rate().tokens(),
        burst: pace.burst(),
        period_s: pace.rate().period().as_secs(),
    })
}

fn labels(row: &Row) -> [(&str, &str); 2] {
    [("throttler", &row.throttler), ("partition", &row.partition)]
}

/// The partitions by name; those above the maximum as one.
fn rows_of(inner: &Arc<Inner>) -> Vec<Row> {
    let stats = inner.update(|scheduler, now_us| {
        scheduler.reclaim_all(now_us);
        // A closed throttler can outlive its handles until its last waiter is polled.
        if scheduler.is_closed {
            Vec::new()
        } else {
            scheduler.stats()
        }
    });
    let throttler = &inner.settings.name;
    let mut rows: Vec<Row> = stats
        .iter()
        .take(LABELS_MAX)
        .map(|partition| row(throttler, partition))
        .collect();
    let others = stats.iter().skip(LABELS_MAX);
    let others = others.map(|partition| row(throttler, partition));
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
        counters: sum.counters.plus(&one.counters),
        ..sum
    }
}

fn row(throttler: &str, partition: &PartitionStats) -> Row {
    Row {
        throttler: throttler.to_owned(),
        partition: partition.name().to_owned(),
        rate: partition.pace().rate().tokens(),
        burst: partition.pace().burst(),
        waiters: partition.waiters() as u64,
        open: u64::from(partition.circuit() != Circuit::Closed),
        counters: partition.counters,
    }
}
