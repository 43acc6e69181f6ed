//! A request that was let in, until it is settled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use ::http::HeaderMap;

use super::outcome::Outcome;
use super::question::{Decisions, Questions};
use super::rules::Rules;
use crate::decision::Decision;
use crate::hold::Hold;

/// A request that was let in. It is settled once, by its outcome; dropping it settles it as
/// abandoned, or as panicked where that is why.
pub(super) struct InFlight {
    rules: Arc<Rules>,
    questions: Questions,
    decisions: Decisions,
    /// Only where some rule has a price.
    hold: Option<Hold>,
    has_panicked: bool,
}

impl InFlight {
    pub(super) fn new(rules: Arc<Rules>, questions: Questions, decisions: Decisions) -> Self {
        let hold = rules.has_prices().then(|| {
            let taken = questions.as_slice().iter().zip(decisions.as_slice());
            Hold::of_taken(taken.map(|(question, decision)| {
                let limiter = question.limiter(&rules);
                (limiter, question.key(), question.n, decision)
            }))
        });
        Self {
            rules,
            questions,
            decisions,
            hold,
            has_panicked: false,
        }
    }

    /// Marks the request as panicked if `work` unwinds: by the time it is dropped, nobody can tell.
    pub(super) fn watch<T>(&mut self, work: impl FnOnce() -> T) -> T {
        struct Watch<'a>(&'a mut bool);
        impl Drop for Watch<'_> {
            fn drop(&mut self) {
                *self.0 = std::thread::panicking();
            }
        }
        let watch = Watch(&mut self.has_panicked);
        let done = work();
        drop(watch);
        done
    }

    /// Settles by the outcome. What it returns is to be awaited before the answer goes out, so that
    /// whoever has the answer finds the bucket settled; nothing, where that is so already.
    pub(super) fn settle(
        &mut self,
        outcome: &Outcome<'_>,
    ) -> Option<impl Future<Output = Vec<Decision>> + Send + use<>> {
        let hold = self.hold.take()?;
        let taken = hold.taken().enumerate();
        let costs: Vec<u64> = taken
            .map(|(index, taken)| self.price(index, outcome, taken))
            .collect();
        Some(hold.settle_at(&costs))
    }

    fn price(&self, index: usize, outcome: &Outcome<'_>, taken: u64) -> u64 {
        let rule = &self.rules.list[self.questions.as_slice()[index].rule];
        let Some(price) = &rule.price else {
            return taken;
        };
        // A price that panics while a request unwinds would take the process down.
        catch_unwind(AssertUnwindSafe(|| price(outcome, taken))).unwrap_or(taken)
    }

    /// Writes how the caller stands.
    pub(super) fn write_headers(&self, headers: &mut HeaderMap, settled: Option<&[Decision]>) {
        let decisions = settled.unwrap_or_else(|| self.decisions.as_slice());
        write_headers(&self.rules, &self.questions, decisions, headers);
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

pub(super) fn write_headers(
    rules: &Rules,
    questions: &Questions,
    decisions: &[Decision],
    headers: &mut HeaderMap,
) {
    if decisions.is_empty() {
        return;
    }
    let now = SystemTime::now();
    if decisions.len() == rules.list.len() {
        rules.writer.write(headers, decisions, now);
        return;
    }
    let names = questions.as_slice().iter();
    let names = names.map(|question| question.limiter(rules).name());
    let parts: Vec<_> = names.zip(decisions).collect();
    rules.headers.write(headers, &parts, now);
}
