//! What the script must answer and keep, said with the core alone.

use balde::store::redis::script::Holder;
use balde_core::{Command, Decision, DecisionParts, EXACT_MAX, Held, Limit, Start, State};

/// What is kept for a bucket.
pub(crate) type Kept = Option<Bucket>;

/// The limit that a bucket was written under, its state, and what is held of it. A bucket without a
/// state equals one that was never used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bucket {
    pub(crate) limit: Limit,
    pub(crate) state: Option<State>,
    pub(crate) held: Vec<([u8; 8], Held)>,
}

impl Bucket {
    pub(crate) fn new(limit: Limit, state: State) -> Self {
        Self {
            limit,
            state: Some(state),
            held: Vec::new(),
        }
    }

    /// Charges what has expired.
    fn at(mut self, now_us: u64) -> Self {
        let (mut expired, held): (Vec<_>, Vec<_>) =
            (self.held.into_iter()).partition(|(_, held)| held.expires_us <= now_us);
        expired.sort_by_key(|(_, held)| held.expires_us);
        for (_, held) in &expired {
            self.state = self.limit.expire(self.state, held);
        }
        self.held = held;
        self
    }

    fn tokens_held(&self) -> u64 {
        let tokens = self.held.iter().map(|(_, held)| held.tokens);
        tokens.fold(0, |sum, tokens| (sum + tokens).min(EXACT_MAX))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Which of the buckets.
    pub(crate) bucket: usize,
    pub(crate) limit: Limit,
    pub(crate) command: Command,
    pub(crate) holder: Option<Holder>,
}

/// Decides all steps or none, and leaves in `buckets` what is kept afterwards.
pub(crate) fn decide(buckets: &mut [Kept], steps: &[Step], now_us: u64) -> Vec<Decision> {
    let mut after = buckets.to_vec();
    let mut decisions = Vec::new();
    for step in steps {
        let found = under(&step.limit, after[step.bucket].clone(), now_us);
        let (decision, left) = run(step, found, now_us);
        if decision.is_allowed() && step.command.is_write() {
            after[step.bucket] = left;
        }
        decisions.push(decision);
    }
    if decisions.iter().all(Decision::is_allowed) {
        buckets.clone_from_slice(&after);
        return decisions;
    }
    // Refused: but what a write command found new to its limit is kept as it was found.
    for step in steps.iter().filter(|step| step.command.is_write()) {
        let is_new = match &buckets[step.bucket] {
            None => step.limit.start() == Start::Empty,
            Some(bucket) => bucket.limit != step.limit,
        };
        if is_new {
            let found = under(&step.limit, buckets[step.bucket].clone(), now_us);
            let peek = Step {
                command: Command::Peek,
                ..*step
            };
            buckets[step.bucket] = run(&peek, found, now_us).1;
        }
    }
    decisions
}

/// Runs a step on a bucket under its limit, and returns what is left.
fn run(step: &Step, bucket: Bucket, now_us: u64) -> (Decision, Kept) {
    let limit = step.limit;
    let snapshot = limit.snapshot(bucket.state, now_us);
    let tokens = bucket.tokens_held();
    let Some(holder) = step.holder else {
        let command = step.command.without_holds();
        let decision = limit.decide_held(snapshot, tokens, command);
        return (decision, kept(bucket, &decision));
    };
    let mut left = bucket;
    let own = left.held.iter().position(|(id, _)| *id == holder.id);
    let own = own.unwrap_or_else(|| {
        let none = Held {
            tokens: 0,
            expires_us: 0,
            on_expiry: holder.on_expiry,
        };
        left.held.push((holder.id, none));
        left.held.len() - 1
    });
    let record = &mut left.held[own].1;
    let decision = match step.command {
        Command::Hold { n, needed } => {
            let n = n.min(EXACT_MAX);
            let decision = limit.decide_held(snapshot, tokens, Command::Hold { n, needed });
            if !decision.is_allowed() {
                return (decision_with(&decision, step.command, tokens), None);
            }
            record.tokens = (record.tokens + n).min(EXACT_MAX);
            decision
        }
        Command::Settle { held, price } => {
            record.on_expiry = holder.on_expiry;
            let price = record.settle(held.min(EXACT_MAX), price.min(EXACT_MAX));
            limit.decide_held(snapshot, 0, Command::Charge { n: price })
        }
        command => {
            let decision = limit.decide_held(snapshot, tokens, command);
            return (decision, kept(left, &decision));
        }
    };
    record.on_expiry = holder.on_expiry;
    record.expires_us = record.expires_us.max(now_us + holder.ttl_us);
    let held = left.tokens_held();
    let decision = decision_with(&decision, step.command, held);
    (decision, kept(left, &decision))
}

fn decision_with(decision: &Decision, command: Command, held: u64) -> Decision {
    let parts = DecisionParts {
        is_allowed: decision.is_allowed(),
        before: decision.owed_before(),
        after: decision.owed(),
        at_us: decision.at_us(),
        now_us: decision.now_us(),
        held,
    };
    Decision::from_parts(decision.limit(), command, parts).expect("the core's own numbers")
}

fn kept(mut bucket: Bucket, decision: &Decision) -> Kept {
    bucket.held.retain(|(_, held)| held.tokens > 0);
    bucket.state = decision.state();
    bucket.limit = *decision.limit();
    (bucket.state.is_some() || !bucket.held.is_empty()).then_some(bucket)
}

/// The bucket as of now, under another limit if it has changed.
fn under(limit: &Limit, kept: Kept, now_us: u64) -> Bucket {
    let Some(bucket) = kept else {
        return Bucket {
            limit: *limit,
            state: None,
            held: Vec::new(),
        };
    };
    let bucket = bucket.at(now_us);
    let state = bucket.state;
    Bucket {
        state: state.and_then(|state| bucket.limit.change_to(limit, Some(state), now_us)),
        limit: *limit,
        held: bucket.held,
    }
}
