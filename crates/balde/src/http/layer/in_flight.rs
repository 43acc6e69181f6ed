//! A request that was let in, until it is settled.

use std::sync::Arc;
use std::time::SystemTime;

use ::http::HeaderMap;

use super::outcome::Outcome;
use super::question::{Decisions, Questions};
use super::rules::Rules;
use crate::clock;
use crate::decision::Decision;
use crate::hold::Hold;

/// A request that was let in. It is settled once, by its outcome; dropping it settles it as
/// abandoned, or as panicked where that is why.
pub(super) struct InFlight {
    rules: Arc<Rules>,
    decisions: Decisions,
    /// Only where it will be needed: most requests are done with their keys now.
    kept: Option<Box<Kept>>,
    has_panicked: bool,
}

struct Kept {
    questions: Questions,
    /// Only where some rule has a price, and until it is settled.
    hold: Option<Hold>,
}

impl InFlight {
    #[inline]
    pub(super) fn new(rules: Arc<Rules>, questions: Questions, decisions: Decisions) -> Self {
        let is_priced = rules.is_priced;
        let is_partial = questions.as_slice().len() < rules.list.len();
        let kept = (is_priced || is_partial).then(|| {
            let hold = is_priced.then(|| {
                let taken = questions.as_slice().iter().zip(decisions.as_slice());
                Hold::of_taken(taken.map(|(question, decision)| {
                    let limiter = question.limiter(&rules);
                    (limiter, question.key(), question.n, decision)
                }))
            });
            Box::new(Kept { questions, hold })
        });
        Self {
            rules,
            decisions,
            kept,
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
        let kept = self.kept.as_mut()?;
        let hold = kept.hold.take()?;
        let taken = hold.taken().zip(kept.questions.as_slice());
        let costs: Vec<u64> = taken
            .map(|(taken, question)| self.rules.list[question.rule].priced(outcome, taken))
            .collect();
        Some(hold.settle_at(&costs))
    }

    /// Writes how the caller stands.
    #[inline]
    pub(super) fn write_headers(&self, headers: &mut HeaderMap, settled: Option<&[Decision]>) {
        let decisions = settled.unwrap_or_else(|| self.decisions.as_slice());
        let kept = self.kept.as_ref();
        let questions = kept.map_or(&Questions::None, |kept| &kept.questions);
        write_headers(&self.rules, questions, decisions, headers);
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
    if decisions.is_empty()
        || rules.headers.are_none() && decisions.iter().all(Decision::is_allowed)
    {
        return;
    }
    let now = if rules.writer.needs_time() {
        clock::time_of_day()
    } else {
        SystemTime::UNIX_EPOCH
    };
    if decisions.len() == rules.list.len() {
        rules.writer.write(headers, decisions, now);
        return;
    }
    let parts = questions.named(rules, decisions);
    rules.headers.write(headers, &parts, now);
}
