//! What is exposed, under which name. Names are part of the public face; so are labels, and each of
//! their values comes from a list: policies (bounded), words of this program. Never a key.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::policies::{LimiterReading, Policies, Row};
use super::stores::{StoreReading, Stores};
use super::unit::Unit;
use crate::failure::StoreFailure;
use crate::telemetry::meter::{Count, Times};

#[derive(Default)]
pub(super) struct Exposition {
    pub(super) policies: Policies,
    pub(super) stores: Stores,
    pub(super) times: Arc<Times>,
    pub(super) unit: Unit,
}

/// A name, a help text, a label, and which counts make up each of its values.
type Counted = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static [Count])],
);

/// What limiters count, by policy and one more label.
const BY_COUNT: [Counted; 3] = [
    (
        "rate_limiter_decisions",
        "Checks by outcome; a fallback is one that the failure policy decided.",
        "decision",
        &[
            ("allow", &[Count::Allow]),
            ("deny", &[Count::Deny]),
            ("fallback", &[Count::FallbackAllow, Count::FallbackDeny]),
        ],
    ),
    (
        "rate_limiter_fallback",
        "Checks that the failure policy decided because the store could not, by what it said.",
        "decision",
        &[
            ("allow", &[Count::FallbackAllow]),
            ("deny", &[Count::FallbackDeny]),
        ],
    ),
    (
        "rate_limiter_operations",
        "Commands that are no checks.",
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

/// What limiters know by themselves, by policy.
const BY_READING: [Column; 11] = [
    (
        "rate_limiter_lock_contention",
        "Times that the lock of a part of the memory store was taken and had to be waited for.",
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
        "Full buckets that the memory store forgot; nothing was lost with them.",
        MetricType::Counter,
        |reading| reading.swept,
    ),
    (
        "rate_limiter_evicted_keys",
        "Buckets that were not full and had to go because the memory store was.",
        MetricType::Counter,
        |reading| reading.evicted,
    ),
    (
        "rate_limiter_lease_keys",
        "Keys of which something is held on lease, or a refusal remembered.",
        MetricType::Gauge,
        |reading| reading.lease_keys,
    ),
    (
        "rate_limiter_lease_tokens",
        "Tokens held on lease.",
        MetricType::Gauge,
        |reading| reading.lease_tokens,
    ),
    (
        "rate_limiter_lease_tokens_max",
        "The most tokens that can be held on lease of the keys there are.",
        MetricType::Gauge,
        |reading| reading.lease_tokens_max,
    ),
    (
        "rate_limiter_lease_granted",
        "Checks granted from what was held on lease.",
        MetricType::Counter,
        |reading| reading.lease_granted,
    ),
    (
        "rate_limiter_lease_refused",
        "Checks refused by a refusal that was remembered.",
        MetricType::Counter,
        |reading| reading.lease_refused,
    ),
    (
        "rate_limiter_lease_requests",
        "Times that the store was asked for a lease.",
        MetricType::Counter,
        |reading| reading.lease_requests,
    ),
    (
        "rate_limiter_lease_returned_tokens",
        "Tokens on lease that were given back unspent.",
        MetricType::Counter,
        |reading| reading.lease_returned,
    ),
];

type StoreColumn = (
    &'static str,
    &'static str,
    MetricType,
    fn(&StoreReading) -> u64,
);

/// What shared stores know by themselves, all of them together.
const BY_STORES: [StoreColumn; 5] = [
    (
        "rate_limiter_breaker_open",
        "Stores that are not asked at present, at least for some keys, because they failed.",
        MetricType::Gauge,
        |stores| stores.open,
    ),
    (
        "rate_limiter_breaker_opened",
        "Times that a store was no longer asked because it failed.",
        MetricType::Counter,
        |stores| stores.opened,
    ),
    (
        "rate_limiter_backend_calls",
        "Calls made to stores.",
        MetricType::Counter,
        |stores| stores.calls,
    ),
    (
        "rate_limiter_backend_connects",
        "Connections made to stores.",
        MetricType::Counter,
        |stores| stores.connects,
    ),
    (
        "rate_limiter_script_reloads",
        "Times that a store had forgotten the script.",
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
        encode_stores(&mut encoder, &self.stores.read())?;
        self.encode_times(&mut encoder)
    }
}

impl Exposition {
    fn encode_times(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Duration of checks; in memory, of one in 64 of each thread.";
        let name = self.unit.name("rate_limiter_latency");
        let mut metric = histogram(encoder, &name, help)?;
        for (mode, times) in [("memory", &self.times.memory), ("redis", &self.times.redis)] {
            let labels = [("storage_mode", mode)];
            times.encode(metric.encode_family(&labels)?, &self.unit)?;
        }
        let help = "Duration of calls of the script, as the client sees it.";
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
        }
    }
    let help = "Checks refused because the key was empty or too long; they are also denials.";
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

fn encode_stores(encoder: &mut DescriptorEncoder<'_>, stores: &StoreReading) -> fmt::Result {
    let help = "Calls to stores that failed, by reason.";
    let counter = MetricType::Counter;
    let mut metric =
        encoder.encode_descriptor("rate_limiter_backend_errors", help, None, counter)?;
    for (failure, number) in StoreFailure::ALL.into_iter().zip(stores.failures) {
        // A call that was not made is no error of the store; the fallback is counted.
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
