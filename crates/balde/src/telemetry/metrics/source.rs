//! Metrics that the program adds to a page, without the types of the library that encodes it.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::telemetry::unit::Unit;

type Write = dyn Fn(&mut MetricsWriter<'_>) + Send + Sync;

/// Writes metrics each time the page of a [`Metrics`](super::Metrics) is encoded. Passed to the
/// closure of [`Metrics::add_source`](super::Metrics::add_source).
///
/// Each method writes one metric with all its lines. A line is a list of labels, as pairs of name
/// and value, and a number. Write each metric name only once.
pub struct MetricsWriter<'a> {
    encoder: DescriptorEncoder<'a>,
    unit: Unit,
    result: fmt::Result,
}

/// Durations counted by length, for [`MetricsWriter::durations`].
#[derive(Clone, Copy, Debug)]
pub struct DurationHistogram<'a> {
    /// The upper bounds of the buckets, in ascending order.
    pub bounds: &'a [Duration],
    /// How many durations are in each bucket, not cumulative. There is one count more than there
    /// are bounds: the last one counts the durations above all bounds.
    pub counts: &'a [u64],
    /// The sum of all durations.
    pub sum: Duration,
}

impl MetricsWriter<'_> {
    /// Writes a gauge.
    pub fn gauge<'l, L: AsRef<[(&'l str, &'l str)]>>(
        &mut self,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.numbers(name, help, MetricType::Gauge, lines);
    }

    /// Writes a gauge of shares, given in thousandths and written as numbers from 0 to 1. The suffix
    /// `_ratio` is appended to its name.
    pub fn ratio<'l, L: AsRef<[(&'l str, &'l str)]>>(
        &mut self,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = (L, u64)>,
    ) {
        let write = |encoder: &mut DescriptorEncoder<'_>| {
            let name = format!("{name}_ratio");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (labels, permille) in lines {
                let labels = labels.as_ref();
                // Exact up to 2^53 thousandths.
                let ratio = Duration::from_millis(permille).as_secs_f64();
                family.encode_family(&labels)?.encode_gauge(&ratio)?;
            }
            Ok(())
        };
        self.result = self.result.and_then(|()| write(&mut self.encoder));
    }

    /// Writes a counter. The suffix `_total` is appended to its name.
    pub fn counter<'l, L: AsRef<[(&'l str, &'l str)]>>(
        &mut self,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.numbers(name, help, MetricType::Counter, lines);
    }

    /// Writes a histogram of durations. The unit is appended to its name: `_ms`, or `_seconds`
    /// under [`Metrics::encode_in_seconds`](super::Metrics::encode_in_seconds).
    pub fn durations<'l, 'h, L: AsRef<[(&'l str, &'l str)]>>(
        &mut self,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = (L, DurationHistogram<'h>)>,
    ) {
        let unit = self.unit.clone();
        let write = |encoder: &mut DescriptorEncoder<'_>| {
            let name = unit.name(name);
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
            for (labels, histogram) in lines {
                let bounds = histogram.bounds.iter().map(|bound| unit.number(*bound));
                let counts = histogram.counts.iter().copied();
                let buckets: Vec<_> = bounds.chain([f64::INFINITY]).zip(counts).collect();
                let count = buckets.iter().map(|(_, count)| count).sum();
                let sum = unit.number(histogram.sum);
                let labels = labels.as_ref();
                let mut line = family.encode_family(&labels)?;
                line.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
            Ok(())
        };
        self.result = self.result.and_then(|()| write(&mut self.encoder));
    }

    fn numbers<'l, L: AsRef<[(&'l str, &'l str)]>>(
        &mut self,
        name: &str,
        help: &str,
        metric_type: MetricType,
        lines: impl IntoIterator<Item = (L, u64)>,
    ) {
        let write = |encoder: &mut DescriptorEncoder<'_>| {
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for (labels, number) in lines {
                let labels = labels.as_ref();
                if labels.is_empty() {
                    // Without braces, as readers of the page expect.
                    write_number(&mut family, metric_type, number)?;
                } else {
                    write_number(&mut family.encode_family(&labels)?, metric_type, number)?;
                }
            }
            Ok(())
        };
        self.result = self.result.and_then(|()| write(&mut self.encoder));
    }
}

fn write_number(line: &mut MetricEncoder<'_>, metric_type: MetricType, number: u64) -> fmt::Result {
    match metric_type {
        MetricType::Counter => line.encode_counter::<NoLabelSet, _, u64>(&number, None),
        _ => line.encode_gauge(&number),
    }
}

impl fmt::Debug for MetricsWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsWriter").finish_non_exhaustive()
    }
}

pub(super) struct Source {
    write: Box<Write>,
    unit: Unit,
}

impl Source {
    pub(super) fn new(
        write: impl Fn(&mut MetricsWriter<'_>) + Send + Sync + 'static,
        unit: Unit,
    ) -> Self {
        Self {
            write: Box::new(write),
            unit,
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Collector for Source {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = MetricsWriter {
            encoder,
            unit: self.unit.clone(),
            result: Ok(()),
        };
        (self.write)(&mut writer);
        writer.result
    }
}
