//! A request between admission and settlement.

use std::sync::Arc;
use std::time::SystemTime;

use ::http::HeaderMap;

use super::bucket_request::{BucketRequests, Decisions};
use super::config::LayerConfig;
use crate::clock;
use crate::decision::Decision;
use crate::hold::Hold;
use crate::http::headers::FieldValues;
use crate::http::outcome::Outcome;

/// An admitted request. It is settled once, by its outcome; dropping it settles it as abandoned, or
/// as panicked if a panic is the reason.
pub(super) struct InFlight {
    config: Arc<LayerConfig>,
    buckets: BucketRequests,
    decisions: Decisions,
    /// Present while the request is unsettled, if any rule has a price.
    hold: Option<Hold>,
    has_panicked: bool,
}

impl InFlight {
    /// Returns `None` if there is nothing to settle and no header field to write.
    pub(super) fn new(
        config: &Arc<LayerConfig>,
        buckets: BucketRequests,
        decisions: Decisions,
    ) -> Option<Box<Self>> {
        if !config.is_priced && config.headers.is_empty() {
            return None;
        }
        let hold = config.is_priced.then(|| {
            let taken = buckets.as_slice().iter().zip(decisions.as_slice());
            Hold::of_taken(taken.map(|(bucket, decision)| {
                let limiter = bucket.limiter(config);
                (limiter, bucket.key(), bucket.n, decision)
            }))
        });
        Some(Box::new(Self {
            config: Arc::clone(config),
            buckets,
            decisions,
            hold,
            has_panicked: false,
        }))
    }

    /// Settles the request by its outcome. Await the returned future before the response is sent, so
    /// that a client that has the response finds the bucket settled. Returns `None` if there is
    /// nothing to settle.
    pub(super) fn settle(
        &mut self,
        outcome: &Outcome<'_>,
    ) -> Option<impl Future<Output = Vec<Decision>> + Send + use<>> {
        let hold = self.hold.take()?;
        let taken = hold.taken().zip(self.buckets.as_slice());
        let costs: Vec<u64> = taken
            .map(|(taken, bucket)| self.config.rules[bucket.rule].price_of(outcome, taken))
            .collect();
        Some(hold.settle_at(&costs))
    }

    /// Writes the header fields for the settled decisions, or those made at admission.
    pub(super) fn write_headers(&self, headers: &mut HeaderMap, settled: Option<&[Decision]>) {
        let decisions = settled.unwrap_or_else(|| self.decisions.as_slice());
        write_headers(&self.config, &self.buckets, decisions, headers);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let outcome = if self.has_panicked || std::thread::panicking() {
            Outcome::Panicked
        } else {
            Outcome::Abandoned
        };
        drop(self.settle(&outcome));
    }
}

/// Runs `work` and marks the request as panicked if it unwinds. The request may be dropped after
/// the panic was caught, when `std::thread::panicking` no longer shows it.
pub(super) fn mark_panic<T>(in_flight: &mut Option<Box<InFlight>>, work: impl FnOnce() -> T) -> T {
    struct PanicGuard<'a>(&'a mut Option<Box<InFlight>>);
    impl Drop for PanicGuard<'_> {
        fn drop(&mut self) {
            if let Some(in_flight) = self.0 {
                in_flight.has_panicked = std::thread::panicking();
            }
        }
    }
    let guard = PanicGuard(in_flight);
    let done = work();
    drop(guard);
    done
}

/// Writes the header fields for these decisions.
pub(super) fn write_headers(
    config: &LayerConfig,
    buckets: &BucketRequests,
    decisions: &[Decision],
    headers: &mut HeaderMap,
) {
    if decisions.is_empty()
        || config.headers.is_empty() && decisions.iter().all(Decision::is_allowed)
    {
        return;
    }
    let now = time_of_day(config);
    if decisions.len() == config.rules.len() {
        config.writer.write(headers, decisions, now);
        return;
    }
    let named = buckets.named(config, decisions);
    config.headers.write(headers, &named, now);
}

/// Writes the header fields of the only limit.
pub(super) fn write_values(config: &LayerConfig, values: &FieldValues, headers: &mut HeaderMap) {
    let now = time_of_day(config);
    config.writer.write_values(headers, values, now);
}

/// The time of day, read only if a header field needs it.
fn time_of_day(config: &LayerConfig) -> SystemTime {
    if config.writer.needs_time() {
        clock::time_of_day()
    } else {
        SystemTime::UNIX_EPOCH
    }
}
