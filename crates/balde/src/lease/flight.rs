//! A question to the store that is under way, for everybody who waits for its answer.

use std::sync::OnceLock;

use tokio::sync::Notify;

use crate::failure::StoreFailure;

#[derive(Debug, Default)]
pub(super) struct Flight {
    outcome: OnceLock<Result<(), StoreFailure>>,
    landing: Notify,
}

impl Flight {
    /// The answer is there: what it brought is with the holding.
    pub(super) fn land(&self, outcome: Result<(), StoreFailure>) {
        // Only the one who asked lands it.
        let _first = self.outcome.set(outcome);
        self.landing.notify_waiters();
    }

    pub(super) async fn landed(&self) -> Result<(), StoreFailure> {
        loop {
            let notified = self.landing.notified();
            tokio::pin!(notified);
            // Whoever lands after this line wakes us, whoever did before is seen below.
            notified.as_mut().enable();
            if let Some(outcome) = self.outcome.get() {
                return *outcome;
            }
            notified.await;
        }
    }
}
