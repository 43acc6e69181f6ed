//! Several buckets in one call, and giving back what a part of a refused whole took.

use balde_core::{Command, Decision};
use tokio::time::{Duration, Instant, sleep};

use super::RedisStore;
use super::call::Call;
use super::script;
use super::shared::{OWN_ID_TTL_MS, Shared};
use crate::failure::StoreFailure;
use crate::once::OpId;

/// Attempts to give back, each with a call's own time. The id keeps it from happening twice.
const GIVE_BACK_ATTEMPTS: u32 = 8;
const GIVE_BACK_AGAIN_AFTER: Duration = Duration::from_millis(250);

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
    let call = call_of(parts);
    let reply = first.shared.store().run(&call, deadline).await?;
    match script::decode(&call.steps, &reply) {
        Ok(reply) => Ok(reply.decisions),
        Err(_) => Err(StoreFailure::Script),
    }
}

/// A call that gives back what was taken, for whenever the store can be asked.
pub(crate) struct GiveBack {
    store: RedisStore,
    call: Call,
}

impl GiveBack {
    /// The parts are credits, and meet.
    pub(crate) fn new(parts: &[Together<'_>]) -> Option<Self> {
        let first = parts.first()?;
        let mut call = call_of(parts);
        let id = OpId::random();
        call.keys.push(first.shared.operation(first.key, b'c', &id));
        call.header = call.header.with_operation(OWN_ID_TTL_MS);
        Some(Self {
            store: first.shared.store().clone(),
            call,
        })
    }

    /// Gives back, and keeps trying for a while where the store is away. What cannot be given back
    /// comes back with time: the buckets granted less than they might have, never more.
    pub(crate) async fn run(self) {
        for _ in 0..GIVE_BACK_ATTEMPTS {
            let deadline = Instant::now() + self.store.timeout();
            match self.store.run(&self.call, deadline).await {
                Err(failure) if failure.is_transient() => sleep(GIVE_BACK_AGAIN_AFTER).await,
                _ => return,
            }
        }
    }
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
        header: super::shared::header(now_us),
    }
}
