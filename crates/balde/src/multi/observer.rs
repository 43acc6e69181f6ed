//! Metrics, log lines and spans of a decision over several buckets.
//!
//! Each limiter counts its part: a grant if all buckets granted, a denial if it denied, and nothing
//! if it would have granted and another one denied. The duration is counted once.

use std::time::Duration;

use tracing::Span;
use tracing::field::Empty;

use super::MultiDecision;
use crate::clock::Stopwatch;
use crate::limiter::TokenRequest;
use crate::telemetry::{StorageMode, log, span};

pub(super) struct MultiObserver {
    spans: Spans,
    /// Whether the duration is counted. Otherwise it may still be measured for a log line.
    is_timed: bool,
    stopwatch: Option<Stopwatch>,
}

impl MultiObserver {
    pub(super) fn begin(requests: &[TokenRequest<'_>]) -> Self {
        let timed = slowest(requests).and_then(|request| request.limiter.observer().begin());
        Self {
            spans: Spans::new(requests),
            is_timed: timed.is_some(),
            stopwatch: timed.or_else(|| log::is_on().then(Stopwatch::start)),
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn span(&self) -> Span {
        self.spans.whole.clone()
    }

    pub(super) fn end(self, requests: &[TokenRequest<'_>], decision: &MultiDecision) {
        let took = self.stopwatch.map(Stopwatch::elapsed);
        for (request, part) in requests.iter().zip(decision.parts()) {
            let observer = request.limiter.observer();
            let has_decided = decision.is_allowed() || !part.is_allowed();
            if has_decided || part.is_fallback() {
                observer.count(part, None);
            }
            if !part.is_allowed() || part.is_fallback() {
                let took = || took.unwrap_or(Duration::ZERO);
                let now_us = || request.limiter.now_us();
                let log = || observer.log(request.key, part, took, now_us);
                self.spans.whole.in_scope(log);
            }
        }
        if self.is_timed
            && let Some((request, took)) = slowest(requests).zip(took)
        {
            request.limiter.observer().count_latency(took);
        }
        self.spans.record(decision);
    }
}

/// The request whose store the duration is counted for: one in Redis, if there is one.
fn slowest<'a, 'k>(requests: &'a [TokenRequest<'k>]) -> Option<&'a TokenRequest<'k>> {
    let is_remote =
        |request: &&TokenRequest<'_>| request.limiter.observer().mode() != StorageMode::Memory;
    requests.iter().find(is_remote).or(requests.first())
}

/// One span for the whole decision, and below it one for each request. A single request has the
/// span of a check.
struct Spans {
    whole: Span,
    parts: Vec<Span>,
}

impl Spans {
    fn new(requests: &[TokenRequest<'_>]) -> Self {
        if !span::is_on() {
            return Self {
                whole: Span::none(),
                parts: Vec::new(),
            };
        }
        let check = |request: &TokenRequest<'_>| {
            let limiter = request.limiter;
            limiter
                .observer()
                .check_span(|| limiter.limit(), request.key)
        };
        if let [only] = requests {
            let whole = check(only);
            let parts = vec![whole.clone()];
            return Self { whole, parts };
        }
        let whole = tracing::debug_span!(
            target: "balde",
            "rate_limiter.check_all",
            requests = requests.len(),
            decision = Empty,
            refused_by = Empty,
        );
        let part = |request: &TokenRequest<'_>| whole.in_scope(|| check(request));
        Self {
            parts: requests.iter().map(part).collect(),
            whole,
        }
    }

    fn record(&self, decision: &MultiDecision) {
        for (span, part) in self.parts.iter().zip(decision.parts()) {
            span::record(span, part);
        }
        if self.parts.len() != 1 && !self.whole.is_disabled() {
            let verdict = if decision.is_allowed() {
                "allow"
            } else {
                "deny"
            };
            self.whole.record("decision", verdict);
            if let Some(name) = decision.refused_by() {
                self.whole.record("refused_by", name);
            }
        }
    }
}
