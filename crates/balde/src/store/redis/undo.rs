//! Giving back what was taken for nobody: by a part of a decision that was refused as a whole, or by
//! a call whose answer came too late.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use balde_core::Command;
use tokio::time::{Instant, sleep, timeout};

use super::RedisStore;
use super::call::Call;
use super::key;
use super::script::{self, Header, Step};
use super::shared::OWN_ID_TTL_MS;
use crate::failure::StoreFailure;
use crate::once::OpId;

/// Attempts to give back, each with a call's own time. The id keeps it from happening twice.
const ATTEMPTS_MAX: u32 = 8;
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// How long, and for how many calls at once, a late answer is waited for. What is not given back
/// comes back with time: buckets then granted less than they might have, never more.
const LATE_WITHIN: Duration = Duration::from_secs(10);
const LATE_MAX: u64 = 1_024;

/// A call that gives back, for whenever the store can be asked.
pub(crate) struct GiveBack {
    store: RedisStore,
    call: Call,
}

impl GiveBack {
    /// `steps` are credits on the buckets of these names.
    pub(super) fn new(
        store: &RedisStore,
        mut keys: Vec<Vec<u8>>,
        steps: Vec<Step>,
        header: Header,
    ) -> Option<Self> {
        let first = keys.first()?;
        let id = OpId::random();
        keys.push(key::give_back(
            &store.0.settings.prefix,
            first,
            id.as_bytes(),
        ));
        Some(Self {
            store: store.clone(),
            call: Call {
                keys,
                steps,
                header: header.with_operation(OWN_ID_TTL_MS),
            },
        })
    }

    /// Gives back, and keeps trying for a while where the store is away. It does not ask the
    /// breaker: there are few of these, and each is one that was let through.
    pub(crate) async fn run(self) {
        for _ in 0..ATTEMPTS_MAX {
            let deadline = Instant::now() + self.store.timeout();
            match self.store.request(&self.call, deadline).await {
                Err(failure) if failure.is_transient() => sleep(AGAIN_AFTER).await,
                _ => return,
            }
        }
    }
}

impl RedisStore {
    /// Waits for the answer that came too late for its caller, and undoes what it says.
    pub(super) fn undo_when_answered(
        &self,
        call: Arc<Call>,
        asking: impl Future<Output = Result<Vec<u8>, StoreFailure>> + Send + 'static,
    ) {
        let late = &self.0.late;
        if late.fetch_add(1, Ordering::Relaxed) >= LATE_MAX {
            late.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let store = self.clone();
        let undoing = async move {
            if let Ok(Ok(reply)) = timeout(LATE_WITHIN, asking).await
                && let Some(give_back) = store.reverse(&call, &reply)
            {
                give_back.run().await;
            }
            store.0.late.fetch_sub(1, Ordering::Relaxed);
        };
        self.0.handle.spawn(undoing);
    }

    /// What gives back all that a call took; nothing, if it took nothing.
    fn reverse(&self, call: &Call, reply: &[u8]) -> Option<GiveBack> {
        let decisions = script::decode(&call.steps, reply).ok()?.decisions;
        if !decisions.iter().all(balde_core::Decision::is_allowed) {
            return None;
        }
        let credit = |(step, decision): (&Step, &balde_core::Decision)| {
            let n = decision.moved();
            Step::new(*step.limit(), *step.limit_blob(), Command::Credit { n })
        };
        let steps: Vec<_> = call.steps.iter().zip(&decisions).map(credit).collect();
        let keys = call.keys[..steps.len()].to_vec();
        GiveBack::new(self, keys, steps, call.header)
    }
}
