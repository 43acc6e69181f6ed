//! Several buckets in one call.

use std::sync::Arc;

use balde_core::{Command, Decision};
use tokio::time::Instant;

use super::call::Call;
use super::script;
use super::shared::{Shared, header};
use super::undo::GiveBack;
use crate::failure::StoreFailure;

/// One command on one bucket, as a part of a whole.
#[derive(Clone, Copy)]
pub(crate) struct Together<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) key: &'a [u8],
    pub(crate) command: Command,
}

impl Together<'_> {
    /// Whether one call can decide both: the same store, the same slot, the same time.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let reach = |part: &Self| part.shared.store().reach(&part.shared.bucket(part.key));
        self.shared.store().is_same(other.shared.store())
            && reach(self) == reach(other)
            && self.shared.now_us() == other.shared.now_us()
    }
}

/// Runs all commands in one call, or none. Where any is refused, the decisions of the others say
/// what would have been. All parts meet.
pub(crate) async fn run_together(
    parts: &[Together<'_>],
    deadline: Instant,
) -> Result<Vec<Decision>, StoreFailure> {
    let Some(first) = parts.first() else {
        return Ok(Vec::new());
    };
    let call = Arc::new(call_of(parts));
    let reply = first.shared.call(&call, deadline).await?;
    match script::decode(&call.steps, &reply) {
        Ok(reply) => Ok(reply.decisions),
        Err(_) => Err(StoreFailure::Script),
    }
}

/// What gives back what was taken. The parts are credits, and meet.
pub(crate) fn give_back(parts: &[Together<'_>]) -> Option<GiveBack> {
    let store = parts.first()?.shared.store();
    let Call {
        keys,
        steps,
        header,
    } = call_of(parts);
    GiveBack::new(store, keys, steps, header)
}

fn call_of(parts: &[Together<'_>]) -> Call {
    let now_us = parts.first().and_then(|part| part.shared.now_us());
    Call {
        keys: parts
            .iter()
            .map(|part| part.shared.bucket(part.key))
            .collect(),
        steps: parts
            .iter()
            .map(|part| part.shared.step(part.command))
            .collect(),
        header: header(now_us),
    }
}
