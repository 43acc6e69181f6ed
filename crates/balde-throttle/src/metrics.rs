//! Metrics of throttlers, for Prometheus.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use balde::telemetry::{DurationHistogram, Metrics, MetricsWriter};

use crate::health::Circuit;
use crate::inner::Shared;
use crate::scheduler::partition::{PartitionStats, Tally, WAIT_BOUNDS_US};
use crate::throttler::Throttler;

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
struct Throttlers(Mutex<Vec<Weak<Shared>>>);

impl ThrottleMetrics {
    /// Nothing yet, on the page of `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let throttlers = Arc::new(Throttlers::default());
        let source = Arc::clone(&throttlers);
        metrics.add_source(move |writer| source.write(writer));
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

type Column = (&'static str, &'static str, fn(&Row) -> u64);

const GAUGES: [Column; 4] = [
    (
        "throttle_rate",
        "Tokens that come in a period of the partition's rate, now.",
        |row| row.rate,
    ),
    (
        "throttle_burst",
        "The most tokens that can be had at once, now.",
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
    ("throttle_granted_tokens", "Tokens given.", |row| {
        row.tally.granted
    }),
    ("throttle_refused", "Requests refused.", |row| {
        row.tally.refused
    }),
    (
        "throttle_failures",
        "Requests that failed, in the sense of what counts as an error.",
        |row| row.tally.failures,
    ),
];

impl Throttlers {
    fn write(&self, writer: &mut MetricsWriter<'_>) {
        let throttlers = self.0.lock().clone();
        let rows: Vec<Row> = throttlers
            .iter()
            .filter_map(Weak::upgrade)
            .flat_map(|shared| rows_of(&shared))
            .collect();
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
                counts: &row.tally.waits,
                sum: Duration::from_micros(row.tally.waited_us),
            };
            (labels(row), histogram)
        });
        let help = "How long requests waited for their tokens.";
        writer.durations("throttle_wait", help, waits);
    }
}

fn labels(row: &Row) -> [(&str, &str); 2] {
    [("throttler", &row.throttler), ("partition", &row.partition)]
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
