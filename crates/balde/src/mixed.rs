//! Several buckets in one decision that are not all in memory.
//!
//! Questions that one place can decide at once make a group. Groups are asked in order; when one
//! refuses, those before it get back what they gave, and those after it are only looked at.

use balde_core::Command;
use tokio::runtime::Handle;
use tokio::time::{Duration, Instant, timeout_at};
use tracing::Instrument;

use crate::decision::Decision;
use crate::error::BadKey;
use crate::failure::StoreFailure;
use crate::joint::TokenRequest;
use crate::limiter::{Place, RateLimiter};
use crate::remote;
use crate::store::memory::{Part, run_all};
use crate::store::redis::{self, RedisStore, Shared, Together, run_together};

/// A question that need not stay where it was asked.
struct Question {
    limiter: RateLimiter,
    key: Vec<u8>,
    n: u64,
}

impl Question {
    fn part(&self, command: Command) -> Option<Together<'_>> {
        self.limiter.shared().map(|shared| Together {
            shared,
            key: &self.key,
            command,
        })
    }

    fn take(&self) -> Command {
        Command::Take { n: self.n }
    }

    fn is_same_bucket(&self, other: &Self) -> bool {
        std::ptr::eq(self.limiter.place(), other.limiter.place()) && self.key == other.key
    }

    fn of_failure(&self, failure: StoreFailure, command: Command) -> Decision {
        match self.limiter.shared() {
            Some(shared) => shared.fall_back(&self.key, command, failure),
            None => Decision::of_denial(&self.limiter.limit(), failure, Duration::ZERO, 0),
        }
    }
}

pub(crate) async fn decide(asks: &[TokenRequest<'_>]) -> Vec<Decision> {
    let questions = owned(asks);
    if Handle::try_current().is_ok() {
        return Box::pin(decide_owned(questions)).await;
    }
    let Some(store) = slowest_store(asks) else {
        return Vec::new();
    };
    let task = store
        .handle()
        .spawn(decide_owned(questions).in_current_span());
    match task.await {
        Ok(decisions) => decisions,
        Err(_) => all_failed(&owned(asks), StoreFailure::Disconnected),
    }
}

pub(crate) fn decide_blocking(asks: &[TokenRequest<'_>]) -> Vec<Decision> {
    let Some(store) = slowest_store(asks) else {
        return Vec::new();
    };
    remote::wait(store, decide_owned(owned(asks)))
        .unwrap_or_else(|| all_failed(&owned(asks), StoreFailure::Timeout))
}

fn owned(asks: &[TokenRequest<'_>]) -> Vec<Question> {
    asks.iter()
        .map(|ask| Question {
            limiter: ask.limiter.clone(),
            key: ask.key.to_vec(),
            n: ask.n,
        })
        .collect()
}

fn slowest_store<'a>(asks: &[TokenRequest<'a>]) -> Option<&'a RedisStore> {
    asks.iter()
        .filter_map(|ask| ask.limiter.shared().map(Shared::store))
        .max_by_key(|store| store.timeout())
}

/// Nobody could be asked, and nothing was taken.
fn all_failed(questions: &[Question], failure: StoreFailure) -> Vec<Decision> {
    questions
        .iter()
        .map(|question| question.of_failure(failure, question.take()))
        .collect()
}

async fn decide_owned(questions: Vec<Question>) -> Vec<Decision> {
    // The whole decision has the time of one call to the slowest store.
    let timeouts = questions.iter().filter_map(|q| q.limiter.shared());
    let timeout = timeouts.map(|shared| shared.store().timeout()).max();
    let deadline = Instant::now() + timeout.unwrap_or_default();

    let mut decisions: Vec<Option<Decision>> = vec![None; questions.len()];
    let mut asked: Vec<Vec<usize>> = Vec::new();
    let mut is_refused = false;
    for (index, question) in questions.iter().enumerate() {
        if let Err(bad) = BadKey::check(&question.key) {
            let limit = question.limiter.limit();
            decisions[index] = Some(Decision::of_bad_key(&limit, bad, 0));
            is_refused = true;
        }
    }
    for group in groups(&questions) {
        if is_refused {
            for index in group {
                if decisions[index].is_none() {
                    decisions[index] = Some(look(&questions[index], deadline).await);
                }
            }
            continue;
        }
        let members: Vec<_> = group.iter().map(|index| &questions[*index]).collect();
        let outcome = take(&members, deadline).await;
        is_refused = !outcome.iter().all(Decision::is_allowed);
        for (index, decision) in group.iter().zip(outcome) {
            decisions[*index] = Some(decision);
        }
        if is_refused {
            for group in asked.drain(..) {
                give_back(&questions, &group, &mut decisions, deadline).await;
            }
        } else {
            asked.push(group);
        }
    }
    decisions.into_iter().flatten().collect()
}

/// Indices of questions, by what can be decided at once, in the order of asking.
fn groups(questions: &[Question]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, question) in questions.iter().enumerate() {
        let part = question.part(Command::Peek);
        let meets = |group: &&mut Vec<usize>| match (&part, questions[group[0]].part(Command::Peek))
        {
            (None, None) => true,
            (Some(part), Some(first)) => part.meets(&first),
            _ => false,
        };
        match groups.iter_mut().find(meets) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// Takes for a whole group, or for none of it.
async fn take(group: &[&Question], deadline: Instant) -> Vec<Decision> {
    let parts: Option<Vec<_>> = group.iter().map(|q| q.part(q.take())).collect();
    let Some(parts) = parts else {
        return run_all(&in_memory(group))
            .into_iter()
            .map(Decision::of)
            .collect();
    };
    match run_together(&parts, deadline).await {
        Ok(decided) if decided.iter().all(balde_core::Decision::is_allowed) => {
            decided.into_iter().map(Decision::of).collect()
        }
        Ok(decided) => {
            // The script says what would have been; callers want to know what is.
            let untouched = |index: usize| {
                let first = group.iter().position(|q| q.is_same_bucket(group[index]));
                let decision = Decision::of(decided[index]);
                decision.as_look(&decided[first.unwrap_or(index)])
            };
            let told = |(index, decision): (usize, &balde_core::Decision)| {
                if decision.is_allowed() {
                    untouched(index)
                } else {
                    Decision::of(*decision)
                }
            };
            decided.iter().enumerate().map(told).collect()
        }
        Err(failure) => fall_back_together(group, failure),
    }
}

/// Each question's own failure policy; local buckets get theirs back if any of them refuses.
fn fall_back_together(group: &[&Question], failure: StoreFailure) -> Vec<Decision> {
    let mut decisions: Vec<_> = group
        .iter()
        .map(|question| question.of_failure(failure, question.take()))
        .collect();
    if !decisions.iter().all(Decision::is_allowed) {
        for (question, decision) in group.iter().zip(&mut decisions) {
            if decision.is_allowed() {
                return_local(question, decision);
            }
        }
    }
    decisions
}

fn return_local(question: &Question, decision: &mut Decision) {
    if let Some(shared) = question.limiter.shared() {
        shared.credit_local(&question.key, decision.moved());
    }
    *decision = decision.as_look(decision.core());
}

/// Gives a group back what it took, as far as that is possible in time, and says so.
async fn give_back(
    questions: &[Question],
    group: &[usize],
    decisions: &mut [Option<Decision>],
    deadline: Instant,
) {
    let mut credits = Vec::new();
    for index in group {
        let question = &questions[*index];
        let Some(decision) = &mut decisions[*index] else {
            continue;
        };
        let n = decision.moved();
        if decision.is_fallback() {
            return_local(question, decision);
            continue;
        }
        match question.limiter.place() {
            Place::Memory(table, _) => {
                let now_us = question.limiter.now_us();
                table.run(&question.key, Command::Credit { n }, now_us);
            }
            Place::Redis(_) => credits.extend(question.part(Command::Credit { n })),
        }
        // The same bucket asked twice stood as the first of the two found it.
        let same = |first: &&usize| questions[**first].is_same_bucket(question);
        let first = group.iter().find(same).copied().unwrap_or(*index);
        let before = decisions[first].map(|first| *first.core());
        decisions[*index] = decisions[*index]
            .zip(before)
            .map(|(decision, before)| decision.as_look(&before));
    }
    if let Some(give_back) = redis::give_back(&credits) {
        // It goes on without us where the store is slow.
        let task = tokio::spawn(give_back.run());
        let _late = timeout_at(deadline, task).await;
    }
}

/// How a bucket stands, and whether it would have refused, too.
async fn look(question: &Question, deadline: Instant) -> Decision {
    let found = match question.limiter.place() {
        Place::Memory(table, _) => {
            table.run(&question.key, Command::Peek, question.limiter.now_us())
        }
        Place::Redis(shared) => {
            match shared
                .run(&question.key, Command::Peek, None, deadline)
                .await
            {
                Ok(found) => found,
                Err(failure) => return question.of_failure(failure, Command::Peek),
            }
        }
    };
    let taken = found
        .limit()
        .apply(found.state(), question.take(), found.now_us());
    Decision::of(if taken.is_allowed() { found } else { taken })
}

fn in_memory<'a>(group: &[&'a Question]) -> Vec<Part<'a>> {
    group
        .iter()
        .filter_map(|question| match question.limiter.place() {
            Place::Memory(table, _) => Some(Part {
                table,
                key: &question.key,
                command: question.take(),
                now_us: question.limiter.now_us(),
            }),
            Place::Redis(_) => None,
        })
        .collect()
}
