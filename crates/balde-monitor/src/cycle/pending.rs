//! Polls that wait in memory until the database accepts them.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::history::{History, HistoryError};
use crate::sample::Poll;

/// The most samples that wait in memory while the database is unavailable, about 50 MB. For a
/// participant with 23 buckets that is a month of polls every five minutes, or a day and a half at the
/// shortest interval.
const PENDING_SAMPLES_MAX: usize = 250_000;

#[derive(Debug, Default)]
pub(super) struct PendingPolls {
    polls: Mutex<VecDeque<Poll>>,
    /// Held while storing, so that polls are stored in their order.
    storing: tokio::sync::Mutex<()>,
}

impl PendingPolls {
    pub(super) fn push(&self, poll: Poll) {
        let mut polls = self.polls.lock();
        // A retried step pushes the same poll again.
        if polls.contains(&poll) {
            return;
        }
        let mut samples: usize = polls.iter().map(|poll| poll.samples().len()).sum();
        samples += poll.samples().len();
        while samples > PENDING_SAMPLES_MAX
            && let Some(dropped) = polls.pop_front()
        {
            samples -= dropped.samples().len();
            tracing::error!(
                event_type = "poll_dropped",
                participant = dropped.participant(),
                taken_us = dropped.taken_us(),
                "dropped a poll: the database has been unavailable for too long"
            );
        }
        polls.push_back(poll);
    }

    /// The number of polls that wait.
    pub(super) fn len(&self) -> usize {
        self.polls.lock().len()
    }

    /// Stores all pending polls, the oldest first.
    pub(super) async fn store(&self, history: &History) -> Result<(), HistoryError> {
        let _in_order = self.storing.lock().await;
        loop {
            let Some(poll) = self.polls.lock().front().cloned() else {
                return Ok(());
            };
            // After any error the poll stays in the queue: even a permanent error, such as a full
            // disk, may be repaired before the queue is full.
            history.store(&poll).await?;
            self.polls.lock().pop_front_if(|front| *front == poll);
        }
    }
}
