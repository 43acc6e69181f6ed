//! Answers that the database has not taken yet.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::history::{History, HistoryError};
use crate::sample::Poll;

/// The most answers that wait in memory for a database that is away: some four hours of one
/// participant at the fastest pace.
pub const PENDING_POLLS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct PendingPolls {
    polls: Mutex<VecDeque<Poll>>,
    /// One at a time, so that they are stored in their order.
    storing: tokio::sync::Mutex<()>,
}

impl PendingPolls {
    pub(super) fn push(&self, poll: Poll) {
        let mut polls = self.polls.lock();
        // Whoever tries a step again brings the same answer again.
        if polls.contains(&poll) {
            return;
        }
        if polls.len() >= PENDING_POLLS_MAX
            && let Some(lost) = polls.pop_front()
        {
            tracing::error!(
                event_type = "answer_lost",
                participant = lost.participant(),
                taken_us = lost.taken_us(),
                "an answer was thrown away: the database has been away for too long"
            );
        }
        polls.push_back(poll);
    }

    /// Stores all that wait, the oldest first.
    pub(super) async fn store(&self, history: &History) -> Result<(), HistoryError> {
        let _in_order = self.storing.lock().await;
        loop {
            let Some(poll) = self.polls.lock().front().cloned() else {
                return Ok(());
            };
            // Whatever the database has against it, it stays: a full disk is emptied some day, and
            // nothing is lost before the room in memory ends.
            history.store(&poll).await?;
            self.polls.lock().pop_front_if(|front| *front == poll);
        }
    }
}
