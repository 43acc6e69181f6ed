//! Several buckets in one call.

use std::sync::Arc;

use balde_core::{Command, Decision};
use tokio::time::Instant;

use super::buckets::{RedisBuckets, header};
use super::call::Call;
use super::script;
use super::undo::Refund;
use crate::failure::StoreFailure;
use crate::store::memory::TierId;

/// One command on one bucket of a decision over several.
#[derive(Clone, Copy)]
pub(crate) struct RedisStep<'a> {
    pub(crate) buckets: &'a RedisBuckets,
    pub(crate) key: &'a [u8],
    /// The tier of the key, if the caller knows it.
    pub(crate) tier: Option<TierId>,
    pub(crate) command: Command,
    /// Who holds the tokens. Without it, they are taken.
    pub(crate) holder: Option<u64>,
}

impl RedisStep<'_> {
    /// Returns whether one call can decide both: the same store, the same slot, the same time.
    pub(crate) fn is_reachable_with(&self, other: &Self) -> bool {
        let reach = |step: &Self| step.buckets.store().reach(&step.buckets.bucket(step.key));
        self.buckets.store().is_same(other.buckets.store())
            && reach(self) == reach(other)
            && self.buckets.fixed_now_us() == other.buckets.fixed_now_us()
    }
}

/// Runs all commands in one call, or none. If one is refused, the decisions of the others are what
/// would have happened without it. All steps must be within reach of one call.
pub(crate) async fn run_all(
    steps: &[RedisStep<'_>],
    deadline: Instant,
) -> Result<Vec<Decision>, StoreFailure> {
    let Some(first) = steps.first() else {
        return Ok(Vec::new());
    };
    let call = Arc::new(call_of(steps));
    let decode = |reply: &[u8]| script::decode(&call.steps, reply);
    let reply = first.buckets.call(&call, deadline, decode).await?;
    Ok(reply.decisions)
}

/// Builds the call that gives tokens back. The steps do that, within reach of one call.
pub(crate) fn refund(steps: &[RedisStep<'_>]) -> Option<Refund> {
    let store = steps.first()?.buckets.store();
    let Call {
        keys,
        steps,
        header,
    } = call_of(steps);
    Refund::new(store, keys, steps, header)
}

fn call_of(steps: &[RedisStep<'_>]) -> Call {
    let now_us = steps.first().and_then(|step| step.buckets.fixed_now_us());
    Call {
        keys: steps
            .iter()
            .map(|step| step.buckets.bucket(step.key))
            .collect(),
        steps: steps
            .iter()
            .map(|step| {
                let RedisStep {
                    key,
                    tier,
                    command,
                    holder,
                    ..
                } = *step;
                step.buckets.step(key, tier, command, holder)
            })
            .collect(),
        header: header(now_us),
    }
}
