//! A request for a block of tokens that is in flight, and the callers that wait for its end.

use std::sync::OnceLock;

use tokio::sync::Notify;

use crate::failure::StoreFailure;

/// What a request brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    /// All tokens that were requested.
    Enough,
    /// Fewer: the bucket was empty then.
    Short,
}

#[derive(Debug, Default)]
pub(super) struct InFlightRequest {
    result: OnceLock<Result<Supply, StoreFailure>>,
    ended: Notify,
}

impl InFlightRequest {
    /// Ends the request. The tokens it brought are in the key's lease already.
    pub(super) fn end(&self, result: Result<Supply, StoreFailure>) {
        // Only the task that made the request ends it.
        let _first = self.result.set(result);
        self.ended.notify_waiters();
    }

    pub(super) async fn wait(&self) -> Result<Supply, StoreFailure> {
        loop {
            let notified = self.ended.notified();
            tokio::pin!(notified);
            // An end after this line wakes us; an end before it is seen below.
            notified.as_mut().enable();
            if let Some(result) = self.result.get() {
                return *result;
            }
            notified.await;
        }
    }
}
