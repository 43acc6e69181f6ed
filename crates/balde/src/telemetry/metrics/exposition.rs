//! The names, help texts and labels of all metrics. They are part of the public API. Label values are
//! bounded: policy names (limited in number) and fixed words, never a key.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::policies::{LimiterReading, Policies, Row, WaitCounts};
use super::stores::{StoreReading, Stores};
use crate::failure::StoreFailure;
use crate::telemetry::meter::{Count, Times};
use crate::telemetry::unit::Unit;

#[derive(Default)]
pub(super) struct Exposition {
    pub(super) policies: Policies,
    pub(super) stores: Stores,
    pub(super) times: Arc<Times>,
    pub(super) unit: Unit,
}

/// A name, a help text, a label, and the counts that are summed up for each value of the label.
type Counted = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static [Count])],
);

const DECISIONS: &str = "rate_limiter_decisions";

/// Counters of decisions and operations, by policy and one more label.
const BY_COUNT: [Counted; 3] = [
    (
        DECISIONS,
        "Checks by decision; a fallback is a check that the failure policy decided. \
         Requests refused for lack of a key have the reason no_key.",
        "decision",
        &[
            ("allow", &[Count::Allow]),
            ("deny", &[Count::Deny]),
            ("fallback", &[Count::FallbackAllow, Count::FallbackDeny]),
        ],
    ),
    (
        "rate_limiter_fallback",
        "Checks that the failure policy decided because the store was unavailable, by decision.",
        "decision",
        &[
            ("allow", &[Count::FallbackAllow]),
            ("deny", &[Count::FallbackDeny]),
        ],
    ),
    (
        "rate_limiter_operations",
        "Operations other than checks.",
        "operation",
        &[
            ("peek", &[Count::Peek]),
            ("charge", &[Count::Charge]),
            ("credit", &[Count::Credit]),
            ("set_level", &[Count::SetLevel]),
        ],
    ),
];

type Column = (
    &'static str,
    &'static str,
    MetricType,
    fn(&LimiterReading) -> u64,
);

/// Values that are read from the limiters at each scrape, by policy.
const BY_READING: [Column; 13] = [
    (
        "rate_limiter_lock_contention",
        "Times that a check waited for a lock of the memory store.",
        MetricType::Counter,
        |reading| reading.lock_waits,
    ),
    (
        "rate_limiter_keys",
        "Keys in the memory store.",
        MetricType::Gauge,
        |reading| reading.keys,
    ),
    (
        "rate_limiter_swept_keys",
        "Full buckets removed from the memory store; a removed full bucket is the same as a new one.",
        MetricType::Counter,
        |reading| reading.swept,
    ),
    (
        "rate_limiter_evicted_keys",
        "Buckets removed from the memory store before they were full, because keys_max was reached.",
        MetricType::Counter,
        |reading| reading.evicted,
    ),
    (
        "rate_limiter_log_dropped",
        "Denials that were to be logged one by one and were not, because the log did not keep up.",
        MetricType::Counter,
        |reading| reading.log_dropped,
    ),
    (
        "rate_limiter_waiters",
        "Requests that wait in acquire.",
        MetricType::Gauge,
        |reading| reading.waiters,
    ),
    (
        "rate_limiter_lease_keys",
        "Keys with leased tokens or a cached refusal.",
        MetricType::Gauge,
        |reading| reading.lease_keys,
    ),
    (
        "rate_limiter_lease_tokens",
        "Leased tokens held by this process.",
        MetricType::Gauge,
        |reading| reading.lease_tokens,
    ),
    (
        "rate_limiter_lease_tokens_max",
        "Upper bound of the leased tokens, for the current keys.",
        MetricType::Gauge,
        |reading| reading.lease_tokens_max,
    ),
    (
        "rate_limiter_lease_granted",
        "Checks granted from leased tokens.",
        MetricType::Counter,
        |reading| reading.lease_granted,
    ),
    (
        "rate_limiter_lease_refused",
        "Checks refused by a cached refusal.",
        MetricType::Counter,
        |reading| reading.lease_refused,
    ),
    (
        "rate_limiter_lease_requests",
        "Lease requests sent to the store.",
        MetricType::Counter,
        |reading| reading.lease_requests,
    ),
    (
        "rate_limiter_lease_returned_tokens",
        "Leased tokens returned unused.",
        MetricType::Counter,
        |reading| reading.lease_returned,
    ),
];

type WaitOutcome = (&'static str, fn(&WaitCounts) -> u64);

/// How a request of acquire ends that is not granted at once, as a label shows it.
const WAIT_OUTCOMES: [WaitOutcome; 5] = [
    ("granted", |waits| waits.granted),
    ("timed_out", |waits| waits.timed_out),
    ("dropped", |waits| waits.dropped),
    ("too_many_waiters", |waits| waits.too_many_waiters),
    ("refused", |waits| waits.refused),
];

type StoreColumn = (
    &'static str,
    &'static str,
    MetricType,
    fn(&StoreReading) -> u64,
);

/// Values that are read from the shared stores at each scrape, summed up.
const BY_STORES: [StoreColumn; 5] = [
    (
        "rate_limiter_breaker_open",
        "Stores whose circuit breaker is open for at least some keys.",
        MetricType::Gauge,
        |stores| stores.open,
    ),
    (
        "rate_limiter_breaker_opened",
        "Times that a circuit breaker opened.",
        MetricType::Counter,
        |stores| stores.opened,
    ),
    (
        "rate_limiter_backend_calls",
        "Calls to stores.",
        MetricType::Counter,
        |stores| stores.calls,
    ),
    (
        "rate_limiter_backend_connects",
        "Connections opened to stores.",
        MetricType::Counter,
        |stores| stores.connects,
    ),
    (
        "rate_limiter_script_reloads",
        "Times that the script had to be loaded into a store again.",
        MetricType::Counter,
        |stores| stores.reloads,
    ),
];

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rows = self.policies.read();
        encode_counts(&mut encoder, &rows)?;
        for (name, help, kind, column) in BY_READING {
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for row in &rows {
                let labels = [("policy", row.name.as_str())];
                write(metric.encode_family(&labels)?, kind, column(&row.reading))?;
            }
        }
        encode_waits(&mut encoder, &rows)?;
        encode_stores(&mut encoder, &self.stores.read())?;
        self.encode_times(&mut encoder)
    }
}

impl Exposition {
    fn encode_times(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Duration of checks; in memory, one in 64 checks per thread is measured.";
        let name = self.unit.name("rate_limiter_latency");
        let mut metric = histogram(encoder, &name, help)?;
        for (mode, times) in [("memory", &self.times.memory), ("redis", &self.times.redis)] {
            let labels = [("storage_mode", mode)];
            times.encode(metric.encode_family(&labels)?, &self.unit)?;
        }
        let help = "Duration of script calls, measured by the client.";
        let name = self.unit.name("rate_limiter_script_duration");
        let metric = histogram(encoder, &name, help)?;
        self.times.script.encode(metric, &self.unit)
    }
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").finish_non_exhaustive()
    }
}

fn encode_counts(encoder: &mut DescriptorEncoder<'_>, rows: &[Row]) -> fmt::Result {
    let counter = MetricType::Counter;
    for (name, help, label, values) in BY_COUNT {
        let mut metric = encoder.encode_descriptor(name, help, None, counter)?;
        for row in rows {
            for (value, counts) in values {
                let number = counts.iter().map(|count| row.counts.read(*count)).sum();
                let labels = [(label, *value), ("policy", row.name.as_str())];
                write(metric.encode_family(&labels)?, counter, number)?;
            }
            // A reason of its own, so that a proxy or server that hides its callers shows in a graph.
            if name == DECISIONS {
                let [decision, reason] = [("decision", "deny"), ("reason", "no_key")];
                let labels = [decision, ("policy", row.name.as_str()), reason];
                let number = row.counts.read(Count::NoKey);
                write(metric.encode_family(&labels)?, counter, number)?;
            }
        }
    }
    let help = "Checks refused because the key was empty or too long; also counted as denials.";
    let mut metric = encoder.encode_descriptor("rate_limiter_bad_keys", help, None, counter)?;
    for row in rows {
        let labels = [("policy", row.name.as_str())];
        write(
            metric.encode_family(&labels)?,
            counter,
            row.counts.read(Count::BadKey),
        )?;
    }
    Ok(())
}

fn encode_waits(encoder: &mut DescriptorEncoder<'_>, rows: &[Row]) -> fmt::Result {
    let help = "Calls of acquire that did not get their tokens at once, by outcome.";
    let counter = MetricType::Counter;
    let mut metric = encoder.encode_descriptor("rate_limiter_waits", help, None, counter)?;
    for row in rows {
        for (outcome, number) in WAIT_OUTCOMES {
            let labels = [("outcome", outcome), ("policy", row.name.as_str())];
            let number = number(&row.reading.waits);
            write(metric.encode_family(&labels)?, counter, number)?;
        }
    }
    Ok(())
}

fn encode_stores(encoder: &mut DescriptorEncoder<'_>, stores: &StoreReading) -> fmt::Result {
    let help = "Failed calls to stores, by reason.";
    let counter = MetricType::Counter;
    let mut metric =
        encoder.encode_descriptor("rate_limiter_backend_errors", help, None, counter)?;
    for (failure, number) in StoreFailure::ALL.into_iter().zip(stores.failures) {
        // No call was made, so the store did not fail; the fallback is counted.
        if failure != StoreFailure::BreakerOpen {
            let labels = [("reason", failure.as_str())];
            write(metric.encode_family(&labels)?, counter, number)?;
        }
    }
    for (name, help, kind, column) in BY_STORES {
        let metric = encoder.encode_descriptor(name, help, None, kind)?;
        write(metric, kind, column(stores))?;
    }
    Ok(())
}

fn histogram<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Histogram)
}

fn write(mut metric: MetricEncoder<'_>, kind: MetricType, number: u64) -> fmt::Result {
    match kind {
        MetricType::Counter => metric.encode_counter::<NoLabelSet, u64, u64>(&number, None),
        _ => metric.encode_gauge(&number),
    }
}
