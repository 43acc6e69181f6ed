//! A request between admission and settlement.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use ::http::HeaderMap;

use super::bucket_request::{BucketRequests, Decisions};
use super::config::LimitRules;
use crate::clock;
use crate::decision::Decision;
use crate::hold::{Hold, Settling, settle_in_memory};
use crate::http::headers::FieldValues;
use crate::http::outcome::Outcome;
use crate::http::pipeline::RequestTicket;

/// An admitted request.
pub struct LayerTicket(After);

/// What is left to do after the response.
enum After {
    /// It gets the header fields of one limit, and there is nothing to settle.
    Headers {
        config: Arc<LimitRules>,
        /// The index of the limit.
        limit: usize,
        values: FieldValues,
    },
    /// The request has to be settled, or its response gets the header fields of several limits.
    Settle(Box<InFlight>),
}

impl LayerTicket {
    #[inline]
    pub(super) fn headers(config: Arc<LimitRules>, limit: usize, values: FieldValues) -> Self {
        Self(After::Headers {
            config,
            limit,
            values,
        })
    }

    pub(super) fn in_flight(in_flight: InFlight) -> Self {
        Self(After::Settle(Box::new(in_flight)))
    }
}

impl RequestTicket for LayerTicket {
    fn panicked(&mut self) {
        if let After::Settle(in_flight) = &mut self.0 {
            in_flight.has_panicked = true;
        }
    }

    #[inline]
    fn settle(&mut self, outcome: &Outcome<'_>) {
        if let After::Settle(in_flight) = &mut self.0 {
            in_flight.settle(outcome);
        }
    }

    #[inline]
    fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            After::Headers { .. } => Poll::Ready(()),
            After::Settle(in_flight) => in_flight.poll_settled(cx),
        }
    }

    #[inline]
    fn write_headers(&self, headers: &mut HeaderMap) {
        match &self.0 {
            After::Headers {
                config,
                limit,
                values,
            } => {
                let now = time_of_day(config);
                config.writer.write_values(headers, *limit, values, now);
            }
            After::Settle(in_flight) => {
                let decisions = in_flight.decisions.as_slice();
                write_headers(&in_flight.config, &in_flight.buckets, decisions, headers);
            }
        }
    }
}

/// A request that is settled once, by its outcome; dropping it settles it as abandoned, or as panicked
/// if a panic is the reason.
pub(super) struct InFlight {
    config: Arc<LimitRules>,
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
    /// The settlement has begun.
    Settling(Settling),
}

impl InFlight {
    pub(super) fn new(
        config: &Arc<LimitRules>,
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

    fn settle(&mut self, outcome: &Outcome<'_>) {
        match mem::replace(&mut self.unsettled, Unsettled::Nothing) {
            Unsettled::Nothing => {}
            Unsettled::InMemory => self.settle_in_memory(outcome),
            Unsettled::Held(hold) => {
                let buckets = self.buckets.as_slice();
                let settling = hold.settle_each(|index, taken| {
                    self.config.rules[buckets[index].rule].price_of(outcome, taken)
                });
                self.unsettled = Unsettled::Settling(settling);
            }
            // It continues by itself.
            settling @ Unsettled::Settling(_) => self.unsettled = settling,
        }
    }

    fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Unsettled::Settling(settling) = &mut self.unsettled {
            ready!(settling.poll_attempt(cx));
            for (index, decision) in settling.decisions().enumerate() {
                self.decisions.replace(index, *decision);
            }
            self.unsettled = Unsettled::Nothing;
        }
        Poll::Ready(())
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
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.settle(&if self.has_panicked || std::thread::panicking() {
            Outcome::Panicked
        } else {
            Outcome::Abandoned
        });
    }
}

/// Writes the header fields for these decisions.
pub(super) fn write_headers(
    config: &LimitRules,
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

/// The time of day, read only if a header field needs it.
fn time_of_day(config: &LimitRules) -> SystemTime {
    if config.writer.needs_time() {
        clock::time_of_day()
    } else {
        SystemTime::UNIX_EPOCH
    }
}
