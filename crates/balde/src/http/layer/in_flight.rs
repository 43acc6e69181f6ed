//! A request between admission and settlement.

use std::mem;
use std::sync::Arc;
use std::time::SystemTime;

use ::http::HeaderMap;

use super::bucket_request::{BucketRequests, Decisions};
use super::config::LayerConfig;
use crate::clock;
use crate::decision::Decision;
use crate::hold::{Hold, settle_in_memory};
use crate::http::headers::FieldValues;
use crate::http::outcome::Outcome;

/// An admitted request. It is settled once, by its outcome; dropping it settles it as abandoned, or
/// as panicked if a panic is the reason.
pub(super) struct InFlight {
    config: Arc<LayerConfig>,
    buckets: BucketRequests,
    decisions: Decisions,
    unsettled: Unsettled,
    has_panicked: bool,
}

/// What has to be settled when the request ends.
enum Unsettled {
    /// Nothing: no rule has a price, or the request is settled already.
    Nothing,
    /// The buckets of this request, all in memory.
    InMemory,
    /// Tokens of which some are in Redis.
    Held(Hold),
}

impl InFlight {
    pub(super) fn new(
        config: &Arc<LayerConfig>,
        buckets: BucketRequests,
        decisions: Decisions,
    ) -> Self {
        let unsettled = match (config.is_priced, config.is_in_memory) {
            (false, _) => Unsettled::Nothing,
            (true, true) => Unsettled::InMemory,
            (true, false) => {
                let taken = buckets.as_slice().iter().zip(decisions.as_slice());
                Unsettled::Held(Hold::of_taken(taken.map(|(bucket, decision)| {
                    let limiter = bucket.limiter(config);
                    (limiter, buckets.key(bucket), bucket.n, decision)
                })))
            }
        };
        Self {
            config: Arc::clone(config),
            buckets,
            decisions,
            unsettled,
            has_panicked: false,
        }
    }

    /// Settles the request by its outcome. Await the returned future before the response is sent, so
    /// that a client that has the response finds the bucket settled. Returns `None` if there is
    /// nothing to wait for.
    pub(super) fn settle(
        &mut self,
        outcome: &Outcome<'_>,
    ) -> Option<impl Future<Output = Vec<Decision>> + Send + use<>> {
        let hold = match mem::replace(&mut self.unsettled, Unsettled::Nothing) {
            Unsettled::Nothing => return None,
            Unsettled::InMemory => {
                self.settle_in_memory(outcome);
                return None;
            }
            Unsettled::Held(hold) => hold,
        };
        let taken = hold.taken().zip(self.buckets.as_slice());
        let costs: Vec<u64> = taken
            .map(|(taken, bucket)| self.config.rules[bucket.rule].price_of(outcome, taken))
            .collect();
        Some(hold.settle_at(&costs))
    }

    /// Runs `work` and marks the request as panicked if it unwinds. The request may be dropped after
    /// the panic was caught, when `std::thread::panicking` no longer shows it.
    pub(super) fn mark_panic<T>(&mut self, work: impl FnOnce() -> T) -> T {
        struct PanicGuard<'a>(&'a mut InFlight);
        impl Drop for PanicGuard<'_> {
            fn drop(&mut self) {
                self.0.has_panicked = std::thread::panicking();
            }
        }
        let guard = PanicGuard(self);
        let done = work();
        drop(guard);
        done
    }

    fn settle_in_memory(&mut self, outcome: &Outcome<'_>) {
        for (index, bucket) in self.buckets.as_slice().iter().enumerate() {
            let rule = &self.config.rules[bucket.rule];
            let cost = rule.price_of(outcome, bucket.n);
            let key = self.buckets.key(bucket);
            if let Some(settled) = settle_in_memory(&rule.limiter, key, bucket.n, cost) {
                self.decisions.replace(index, settled);
            }
        }
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
    let limits = buckets.rules();
    config.writer.write(headers, &limits, decisions, now);
}

/// Writes the header fields of a response that only one limit applied to.
pub(super) fn write_values(
    config: &LayerConfig,
    limit: usize,
    values: &FieldValues,
    headers: &mut HeaderMap,
) {
    let now = time_of_day(config);
    config.writer.write_values(headers, limit, values, now);
}

/// The time of day, read only if a header field needs it.
fn time_of_day(config: &LayerConfig) -> SystemTime {
    if config.writer.needs_time() {
        clock::time_of_day()
    } else {
        SystemTime::UNIX_EPOCH
    }
}
