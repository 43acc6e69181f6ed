//! Filtered lists of a participant's records, ordered by the time of their last change.

use std::sync::Arc;

use super::handle::Directory;
use super::store::{Record, RecordStoreError};
use crate::wire::Timestamp;

/// The default number of records in a list.
pub(crate) const LIST_LIMIT_DEFAULT: usize = 20;

/// The most records in a list.
pub(crate) const LIST_LIMIT_MAX: usize = 200;

/// The most records that are read for one list, including those that the filter drops.
const SCANNED_MAX: usize = 20_000;

/// Which side of a claim, report or refund a participant is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Claimer, reporter or requesting participant.
    Initiator,
    /// Donor, counterparty or contested participant.
    Counterparty,
}

/// Which records a list contains.
#[derive(Clone, Debug)]
pub(crate) struct ListFilter {
    pub(crate) participant: String,
    /// The sides that the participant may be on.
    pub(crate) sides: Vec<Side>,
    pub(crate) modified_after: Option<Timestamp>,
    pub(crate) modified_before: Option<Timestamp>,
    pub(crate) limit: usize,
}

impl Directory {
    /// Returns the records of an index that match, at most `filter.limit`, and whether there are more.
    pub(super) async fn list<T: Record + Clone>(
        &self,
        index: &str,
        kind: &str,
        filter: &ListFilter,
        matches: impl Fn(&T) -> bool,
    ) -> Result<(Vec<T>, bool), RecordStoreError> {
        let from = filter.modified_after.map_or(0, |after| after.ms() + 1);
        let until = filter
            .modified_before
            .map_or(u64::MAX >> 11, |before| before.ms().saturating_sub(1));
        let mut listed: Vec<T> = Vec::new();
        let mut skip = 0;
        while skip < SCANNED_MAX && from <= until {
            let page = self
                .records
                .members(index, from..=until, skip, LIST_LIMIT_MAX)
                .await?;
            let names: Vec<_> = page.iter().map(|(_, id)| format!("{kind}:{id}")).collect();
            let records: Vec<Arc<T>> = self.records.get_all(&names).await?;
            for record in records {
                if !matches(&record) {
                    continue;
                }
                if listed.len() == filter.limit {
                    return Ok((listed, true));
                }
                listed.push((*record).clone());
            }
            if page.len() < LIST_LIMIT_MAX {
                break;
            }
            skip += page.len();
        }
        Ok((listed, false))
    }
}
