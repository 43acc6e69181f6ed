//! What the source of each participant answered last.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use super::FetchError;
use crate::sample::Poll;

/// The last answers of all sources. They are in memory only: after a restart, every source is asked
/// again at once.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The participants whose buckets have been listed since the start.
    listed: BTreeSet<String>,
    /// The errors of the newest polls that failed, by participant.
    errors: BTreeMap<String, LastError>,
}

#[derive(Debug)]
struct LastError {
    text: String,
    is_refusal: bool,
}

impl Answers {
    /// Records the result of a fetch. The first list of a participant's buckets, and the first one after
    /// an error, are logged with what is in them. `is_list` is false for a single bucket.
    pub(super) fn record(
        &self,
        participant: &str,
        fetched: &Result<Poll, FetchError>,
        is_list: bool,
    ) {
        let mut known = self.0.lock();
        let poll = match fetched {
            Ok(poll) => poll,
            Err(error) => {
                let error = LastError {
                    text: error.to_string(),
                    is_refusal: error.is_refusal(),
                };
                known.errors.insert(participant.to_owned(), error);
                return;
            }
        };
        let had_failed = known.errors.remove(participant).is_some();
        let is_first = is_list && known.listed.insert(participant.to_owned());
        drop(known);
        if is_list && (is_first || had_failed) {
            let category = poll.samples().first().and_then(|one| one.category());
            tracing::info!(
                event_type = "source_answers",
                participant,
                category = category.unwrap_or("none"),
                buckets = poll.samples().len(),
                "the source lists the participant's buckets"
            );
        }
    }

    /// The error of a participant's newest poll; `None` if it succeeded.
    pub(super) fn error(&self, participant: &str) -> Option<String> {
        let known = self.0.lock();
        known
            .errors
            .get(participant)
            .map(|error| error.text.clone())
    }

    /// Returns true if the source refused the newest poll of a participant, and will refuse the next
    /// one, too.
    pub(super) fn is_refused(&self, participant: &str) -> bool {
        let known = self.0.lock();
        let error = known.errors.get(participant);
        error.is_some_and(|error| error.is_refusal)
    }
}
