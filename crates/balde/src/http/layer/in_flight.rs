//! A request that was let in, until it is settled.

use std::sync::Arc;
use std::time::SystemTime;

use ::http::HeaderMap;

use crate::http::outcome::Outcome;
use super::bucket_request::{Decisions, BucketRequests};
use super::config::LayerConfig;
use crate::clock;
use crate::decision::Decision;
use crate::hold::Hold;
use crate::http::headers::FieldValues;

/// A request that was let in. It is settled once, by its outcome; dropping it settles it as
/// abandoned, or as panicked where that is why.
pub(super) struct InFlight {
    config: Arc<LayerConfig>,
    requests: BucketRequests,
    decisions: Decisions,
    /// Only where some rule has a price, and until it is settled.
    hold: Option<Hold>,
    has_panicked: bool,
}

impl InFlight {
    /// Nothing, where there will be nothing to settle and nothing to tell.
    pub(super) fn new(
        config: &Arc<LayerConfig>,
        requests: BucketRequests,
        decisions: Decisions,
    ) -> Option<Box<Self>> {
        if !config.is_priced && config.headers.are_none() {
            return None;
        }
        let hold = config.is_priced.then(|| {
            let taken = requests.as_slice().iter().zip(decisions.as_slice());
            Hold::of_taken(taken.map(|(request, decision)| {
                let limiter = request.limiter(config);
                (limiter, request.key(), request.n, decision)
            }))
        });
        Some(Box::new(Self {
            config: Arc::clone(config),
            requests,
            decisions,
            hold,
            has_panicked: false,
        }))
    }

    /// Settles by the outcome. What it returns is to be awaited before the answer goes out, so that
    /// whoever has the answer finds the bucket settled; nothing, where that is so already.
    pub(super) fn settle(
        &mut self,
        outcome: &Outcome<'_>,
    ) -> Option<impl Future<Output = Vec<Decision>> + Send + use<>> {
        let hold = self.hold.take()?;
        let taken = hold.taken().zip(self.requests.as_slice());
        let costs: Vec<u64> = taken
            .map(|(taken, request)| self.config.rules[request.rule].priced(outcome, taken))
            .collect();
        Some(hold.settle_at(&costs))
    }

    /// Writes how the caller stands.
    pub(super) fn write_headers(&self, headers: &mut HeaderMap, settled: Option<&[Decision]>) {
        let decisions = settled.unwrap_or_else(|| self.decisions.as_slice());
        write_headers(&self.config, &self.requests, decisions, headers);
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

/// Marks a request as panicked if `work` unwinds: by the time it is dropped, nobody can tell.
pub(super) fn mark_panic<T>(in_flight: &mut Option<Box<InFlight>>, work: impl FnOnce() -> T) -> T {
    struct Watch<'a>(&'a mut Option<Box<InFlight>>);
    impl Drop for Watch<'_> {
        fn drop(&mut self) {
            if let Some(in_flight) = self.0 {
                in_flight.has_panicked = std::thread::panicking();
            }
        }
    }
    let watch = Watch(in_flight);
    let done = work();
    drop(watch);
    done
}

pub(super) fn write_headers(
    config: &LayerConfig,
    requests: &BucketRequests,
    decisions: &[Decision],
    headers: &mut HeaderMap,
) {
    if decisions.is_empty()
        || config.headers.are_none() && decisions.iter().all(Decision::is_allowed)
    {
        return;
    }
    let now = time_to_tell(config);
    if decisions.len() == config.rules.len() {
        config.writer.write(headers, decisions, now);
        return;
    }
    let parts = requests.named(config, decisions);
    config.headers.write(headers, &parts, now);
}

/// The same, of the only limit and in values.
pub(super) fn write_values(config: &LayerConfig, values: &FieldValues, headers: &mut HeaderMap) {
    config
        .writer
        .write_values(headers, values, time_to_tell(config));
}

fn time_to_tell(config: &LayerConfig) -> SystemTime {
    if config.writer.needs_time() {
        clock::time_of_day()
    } else {
        SystemTime::UNIX_EPOCH
    }
}
