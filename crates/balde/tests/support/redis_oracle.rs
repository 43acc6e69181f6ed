//! What the script must answer and keep, said with the core alone.

use balde_core::{Command, Decision, Limit, Start, State};

/// What is kept for a bucket: the limit it was written under, and its state.
pub(crate) type Kept = Option<(Limit, State)>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Which of the buckets.
    pub(crate) bucket: usize,
    pub(crate) limit: Limit,
    pub(crate) command: Command,
}

/// Decides all steps or none, and leaves in `buckets` what is kept afterwards.
pub(crate) fn decide(buckets: &mut [Kept], steps: &[Step], now_us: u64) -> Vec<Decision> {
    let mut after = buckets.to_vec();
    let mut decisions = Vec::new();
    for step in steps {
        let state = state_under(&step.limit, after[step.bucket], now_us);
        let decision = step.limit.apply(state, step.command, now_us);
        if decision.is_allowed() && step.command.is_write() {
            after[step.bucket] = decision.state().map(|state| (step.limit, state));
        }
        decisions.push(decision);
    }
    if decisions.iter().all(Decision::is_allowed) {
        buckets.clone_from_slice(&after);
        return decisions;
    }
    // Refused: but what a write command found new to its limit is kept as it was found.
    for step in steps.iter().filter(|step| step.command.is_write()) {
        let is_new = match buckets[step.bucket] {
            None => step.limit.start() == Start::Empty,
            Some((old, _)) => old != step.limit,
        };
        if is_new {
            let state = state_under(&step.limit, buckets[step.bucket], now_us);
            let found = step.limit.apply(state, Command::Peek, now_us);
            buckets[step.bucket] = found.state().map(|state| (step.limit, state));
        }
    }
    decisions
}

fn state_under(limit: &Limit, kept: Kept, now_us: u64) -> Option<State> {
    kept.and_then(|(old, state)| old.change_to(limit, Some(state), now_us))
}
