//! Gives back tokens that no caller got: those of a decision that was refused as a whole, and those of
//! a call whose reply came too late.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use balde_core::Command;
use tokio::time::{Instant, sleep, timeout};

use super::RedisStore;
use super::buckets::OWN_ID_TTL_MS;
use super::call::Call;
use super::key;
use super::script::{self, Header, Step};
use crate::failure::StoreFailure;
use crate::idempotency::OpId;

/// Attempts to give back, each with the timeout of a call. The operation id makes it happen once.
const ATTEMPTS_MAX: u32 = 8;
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// How long, and for how many calls at once, a late reply is awaited. Tokens that are not given back
/// are missing until the bucket refills: it grants less than it could, never more.
const LATE_WITHIN: Duration = Duration::from_secs(10);
const LATE_MAX: u64 = 1_024;

/// A call that gives tokens back.
pub(crate) struct Refund {
    store: RedisStore,
    call: Call,
}

impl Refund {
    /// `steps` give tokens back to the buckets of these names.
    pub(super) fn new(
        store: &RedisStore,
        mut keys: Vec<Vec<u8>>,
        steps: Vec<Step>,
        header: Header,
    ) -> Option<Self> {
        let first = keys.first()?;
        let id = OpId::random();
        keys.push(key::refund(&store.0.settings.prefix, first, id.as_bytes()));
        Some(Self {
            store: store.clone(),
            call: Call {
                keys,
                steps,
                header: header.with_operation(OWN_ID_TTL_MS),
            },
        })
    }

    /// Gives the tokens back, with retries while the store is unavailable. It ignores the circuit
    /// breaker: there are few of these calls, and each undoes one that was let through.
    pub(crate) async fn run(self) {
        for _ in 0..ATTEMPTS_MAX {
            let deadline = Instant::now() + self.store.timeout();
            match self.store.request(&self.call, deadline).await {
                Err(failure) if failure.is_transient() => sleep(RETRY_AFTER).await,
                _ => return,
            }
        }
    }
}

/// The command that gives back what a decision took or holds.
pub(crate) fn undoing(decision: &balde_core::Decision) -> Command {
    match decision.command() {
        Command::Hold { n, .. } => Command::Settle { held: n, price: 0 },
        _ => Command::Credit {
            n: decision.moved(),
        },
    }
}

impl RedisStore {
    /// Awaits the reply that is too late for its caller, and undoes the call.
    pub(super) fn undo_when_answered(
        &self,
        call: Arc<Call>,
        requesting: impl Future<Output = Result<Vec<u8>, StoreFailure>> + Send + 'static,
    ) {
        let late = &self.0.late;
        if late.fetch_add(1, Ordering::Relaxed) >= LATE_MAX {
            late.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let store = self.clone();
        let undoing = async move {
            if let Ok(Ok(reply)) = timeout(LATE_WITHIN, requesting).await
                && let Some(refund) = store.reverse(&call, &reply)
            {
                refund.run().await;
            }
            store.0.late.fetch_sub(1, Ordering::Relaxed);
        };
        self.0.handle.spawn(undoing);
    }

    /// Builds the refund of all tokens that a call took; `None` if it took none.
    fn reverse(&self, call: &Call, reply: &[u8]) -> Option<Refund> {
        let decisions = script::decode(&call.steps, reply).ok()?.decisions;
        if !decisions.iter().all(balde_core::Decision::is_allowed) {
            return None;
        }
        let give_back =
            |(step, decision): (&Step, &balde_core::Decision)| step.with_command(undoing(decision));
        let steps: Vec<_> = call.steps.iter().zip(&decisions).map(give_back).collect();
        let keys = call.keys[..steps.len()].to_vec();
        Refund::new(self, keys, steps, call.header)
    }
}
