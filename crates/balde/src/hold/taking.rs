//! Holds tokens in Redis for a caller that may go away meanwhile.
//!
//! Tokens that are held for nobody would stay held as long as the process holds others of the same
//! bucket. So the call runs in a task of its own, which gives the tokens back if nobody waits for them.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::Instrument;

use super::Hold;
use crate::failure::StoreFailure;
use crate::limiter::{OwnedRequest, TokenRequest};
use crate::multi::{self, MultiDecision, check_all};
use crate::store::redis::RedisStore;

/// How long a blocking caller waits beyond the store's own timeout, for its thread to wake up.
const SLACK: Duration = Duration::from_millis(5);

type Taken = Result<Hold, MultiDecision>;

/// The slowest of the stores in which tokens are held; `None` if they are held nowhere.
pub(super) fn store<'a>(requests: &[TokenRequest<'a>]) -> Option<&'a RedisStore> {
    let held = requests.iter().filter(|request| request.holder.is_some());
    let stores = held.filter_map(|request| Some(request.limiter.redis()?.store()));
    stores.max_by_key(|store| store.timeout())
}

pub(super) async fn take(store: &RedisStore, requests: &[TokenRequest<'_>]) -> Taken {
    let (sender, receiver) = oneshot::channel();
    spawn(store, requests, |taken| sender.send(taken).is_ok());
    match receiver.await {
        Ok(taken) => received(taken),
        Err(_) => failed(requests, StoreFailure::Disconnected),
    }
}

pub(super) fn take_blocking(store: &RedisStore, requests: &[TokenRequest<'_>]) -> Taken {
    let (sender, receiver) = mpsc::sync_channel(1);
    spawn(store, requests, move |taken| sender.send(taken).is_ok());
    match receiver.recv_timeout(store.timeout() + SLACK) {
        Ok(taken) => received(taken),
        Err(_) => failed(requests, StoreFailure::Timeout),
    }
}

/// From now on the tokens belong to the caller.
fn received(taken: Taken) -> Taken {
    taken.map(|hold| hold.if_dropped(|_, taken| taken))
}

/// The failure policy of each limiter decides.
fn failed(requests: &[TokenRequest<'_>], failure: StoreFailure) -> Taken {
    Hold::new(requests, multi::failed(requests, failure))
}

/// Takes the tokens in a task of the store's runtime. Until the caller has received them, they are given
/// back when they are dropped.
fn spawn(
    store: &RedisStore,
    requests: &[TokenRequest<'_>],
    send: impl FnOnce(Taken) -> bool + Send + 'static,
) {
    let owned: Vec<OwnedRequest> = requests.iter().map(OwnedRequest::new).collect();
    let taking = async move {
        let requests: Vec<_> = owned.iter().map(OwnedRequest::request).collect();
        let taken = Hold::new(&requests, check_all(&requests).await);
        let _is_received = send(taken.map(|hold| hold.if_dropped(|_, _| 0)));
    };
    store.handle().spawn(taking.in_current_span());
}
