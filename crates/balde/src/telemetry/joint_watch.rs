//! A decision over several buckets, watched as one.
//!
//! Each limiter counts its part: a grant, if all gave; a refusal, if it was the one that refused;
//! nothing, if it would have given and another one refused. The duration counts once.

use std::time::Duration;

#[cfg(feature = "redis")]
use tracing::Span;

use super::Mode;
use super::span::JointSpan;
use crate::clock::Stopwatch;
use crate::joint::{MultiDecision, TokenRequest};
use crate::log;

pub(crate) struct JointWatch {
    span: JointSpan,
    /// Whether the time is to be counted; it may also be for a line in a log.
    is_timed: bool,
    stopwatch: Option<Stopwatch>,
}

impl JointWatch {
    pub(crate) fn begin(asks: &[TokenRequest<'_>]) -> Self {
        let timed = slowest(asks).and_then(|ask| ask.limiter.watch().begin());
        Self {
            span: JointSpan::new(asks),
            is_timed: timed.is_some(),
            stopwatch: timed.or_else(|| log::is_heard().then(Stopwatch::start)),
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn span(&self) -> Span {
        self.span.whole.clone()
    }

    pub(crate) fn end(self, asks: &[TokenRequest<'_>], joint: &MultiDecision) {
        let took = self.stopwatch.map(Stopwatch::elapsed);
        for (ask, decision) in asks.iter().zip(joint.parts()) {
            let watch = ask.limiter.watch();
            let has_decided = joint.is_allowed() || !decision.is_allowed();
            if has_decided || decision.is_fallback() {
                watch.count(decision, None);
            }
            if !decision.is_allowed() || decision.is_fallback() {
                let took = || took.unwrap_or(Duration::ZERO);
                let now_us = || ask.limiter.now_us();
                let tell = || watch.tell(ask.limiter, ask.key, decision, took, now_us);
                self.span.whole.in_scope(tell);
            }
        }
        if self.is_timed
            && let Some((ask, took)) = slowest(asks).zip(took)
            && let Some(meter) = ask.limiter.watch().meter()
        {
            meter.took(ask.limiter.watch().mode(), took);
        }
        self.span.answer(joint);
    }
}

/// The question whose place the time belongs to: one in Redis, if there is one.
fn slowest<'a, 'k>(asks: &'a [TokenRequest<'k>]) -> Option<&'a TokenRequest<'k>> {
    let is_remote = |ask: &&TokenRequest<'_>| ask.limiter.watch().mode() != Mode::Memory;
    asks.iter().find(is_remote).or(asks.first())
}
