//! Asking a store over the network, from wherever the caller is.
//!
//! Inside a tokio runtime a call runs where it is awaited. On any other executor, and for callers
//! who have no `await`, it runs in the store's runtime and the caller waits for the outcome.

use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

use balde_core::Command;
use tokio::runtime::Handle;
use tracing::Instrument;

use crate::decision::Decision;
use crate::error::Error;
use crate::failure::StoreFailure;
use crate::limiter::RateLimiter;
use crate::once::OpId;
use crate::store::redis::{RedisStore, Shared};

/// What a caller without `await` waits beyond the store's own timeout, for its thread to wake.
const SLACK: Duration = Duration::from_millis(5);

/// A take.
pub(crate) async fn decide(
    limiter: &RateLimiter,
    shared: &Shared,
    key: &[u8],
    command: Command,
) -> Decision {
    if Handle::try_current().is_ok() {
        return match take(limiter, shared, key, command).await {
            Ok(decision) => decision,
            Err(failure) => shared.fall_back(key, command, failure),
        };
    }
    let task = shared
        .store()
        .handle()
        .spawn(running(limiter, key, command, None).in_current_span());
    match task.await {
        Ok(Ok(decision)) => decision,
        Ok(Err(Error::Store(failure))) => shared.fall_back(key, command, failure),
        Ok(Err(Error::BadKey(_))) | Err(_) => {
            shared.fall_back(key, command, StoreFailure::Disconnected)
        }
    }
}

/// Any other command.
pub(crate) async fn run(
    limiter: &RateLimiter,
    shared: &Shared,
    key: &[u8],
    command: Command,
    id: Option<&OpId>,
) -> Result<Decision, Error> {
    if Handle::try_current().is_ok() {
        let outcome = shared.run(key, command, id, shared.deadline()).await;
        return Ok(Decision::of(outcome?));
    }
    let task = shared
        .store()
        .handle()
        .spawn(running(limiter, key, command, id).in_current_span());
    task.await.unwrap_or(Err(StoreFailure::Disconnected.into()))
}

/// A take, for callers without `await`.
pub(crate) fn decide_blocking(
    limiter: &RateLimiter,
    shared: &Shared,
    key: &[u8],
    command: Command,
) -> Decision {
    let running = running(limiter, key, command, None);
    let failure = match wait(shared.store(), running) {
        Some(Ok(decision)) => return decision,
        Some(Err(Error::Store(failure))) => failure,
        Some(Err(Error::BadKey(_))) | None => StoreFailure::Timeout,
    };
    shared.fall_back(key, command, failure)
}

/// Any other command, for callers without `await`.
pub(crate) fn run_blocking(
    limiter: &RateLimiter,
    shared: &Shared,
    key: &[u8],
    command: Command,
    id: Option<&OpId>,
) -> Result<Decision, Error> {
    wait(shared.store(), running(limiter, key, command, id))
        .unwrap_or(Err(StoreFailure::Timeout.into()))
}

/// Runs `future` in the store's runtime and waits for it, a little longer than the store may take.
///
/// Nothing here can panic inside a runtime, as waiting in tokio's own way would. There it holds up
/// the thread, and where the store lives on that very thread nothing can arrive: then the call ends
/// as timed out, without having been made.
pub(crate) fn wait<T: Send + 'static>(
    store: &RedisStore,
    future: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let running = async move {
        // Nobody may be waiting any more.
        let _gone = sender.send(future.await);
    };
    let task = store.handle().spawn(running.in_current_span());
    let outcome = receiver.recv_timeout(store.timeout() + SLACK).ok();
    if outcome.is_none() {
        task.abort();
    }
    outcome
}

fn running(
    limiter: &RateLimiter,
    key: &[u8],
    command: Command,
    id: Option<&OpId>,
) -> impl Future<Output = Result<Decision, Error>> + Send + 'static {
    let (limiter, key, id) = (limiter.clone(), key.to_vec(), id.cloned());
    async move {
        let Some(shared) = limiter.shared() else {
            return Err(StoreFailure::Disconnected.into());
        };
        if matches!(command, Command::Take { .. }) {
            return Ok(take(&limiter, shared, &key, command).await?);
        }
        let deadline = shared.deadline();
        let outcome = shared.run(&key, command, id.as_ref(), deadline).await;
        Ok(Decision::of(outcome?))
    }
}

/// A take that what is held on lease, or remembered, can answer.
pub(crate) fn held(
    limiter: &RateLimiter,
    shared: &Shared,
    key: &[u8],
    command: Command,
) -> Option<Decision> {
    match (command, shared.lessee()) {
        (Command::Take { n }, Some(lessee)) => lessee.try_take(limiter, key, n),
        _ => None,
    }
}

/// A take, on lease where there are leases.
async fn take(
    limiter: &RateLimiter,
    shared: &Shared,
    key: &[u8],
    command: Command,
) -> Result<Decision, StoreFailure> {
    let deadline = shared.deadline();
    if let (Command::Take { n }, Some(lessee)) = (command, shared.lessee())
        && let Some(outcome) = lessee.take(limiter, key, n, deadline).await
    {
        return outcome;
    }
    let outcome = shared.run(key, command, None, deadline).await;
    outcome.map(Decision::of)
}
