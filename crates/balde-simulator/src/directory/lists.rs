//! Filtered lists of records, ordered by the time of their last change.

use std::sync::Arc;

use super::error::DirectoryError;
use super::handle::Directory;
use super::store::{Record, RecordStoreError};
use crate::wire::Timestamp;

/// The most records in a list.
pub(crate) const LIST_LIMIT_MAX: usize = 200;

/// The most records that are read from one index, including those that the filter drops.
const SCANNED_MAX: usize = 20_000;

/// Which side of a claim, report or refund a participant is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Claimer, reporter or requesting participant.
    Initiator,
    /// Donor, counterparty or contested participant.
    Counterparty,
}

/// A position in a list: the time of a record's last change, in milliseconds, and its id.
pub(crate) type Cursor = (u64, String);

/// Which records a list contains.
#[derive(Clone, Debug)]
pub(crate) struct ListFilter {
    /// The participant and, if asked for, the indirect participants that it settles for.
    pub(crate) participants: Vec<String>,
    /// The sides that the participants may be on.
    pub(crate) sides: Vec<Side>,
    /// The first and the last time of the last change.
    pub(crate) modified_after: Option<Timestamp>,
    pub(crate) modified_before: Option<Timestamp>,
    pub(crate) limit: usize,
    /// Only records after this position are listed.
    pub(crate) after: Option<Cursor>,
}

/// A record that lists are made of.
pub(super) trait Listed: Record + Clone {
    /// Its position in a list.
    fn cursor(&self) -> Cursor;
}

/// Passes if one of the participants passes the check; the error is that of the last.
pub(super) fn require_any(
    participants: &[String],
    check: impl Fn(&str) -> Result<(), DirectoryError>,
) -> Result<(), DirectoryError> {
    let mut outcome = Ok(());
    for participant in participants {
        outcome = check(participant);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

impl ListFilter {
    /// Returns true if one of the participants is on one of the sides of a record.
    pub(super) fn is_on_side(&self, initiator: &str, counterparty: Option<&str>) -> bool {
        let has = |participant: &str| self.participants.iter().any(|own| own == participant);
        self.sides.iter().any(|side| match side {
            Side::Initiator => has(initiator),
            Side::Counterparty => counterparty.is_some_and(has),
        })
    }

    /// The indexes of all participants.
    pub(super) fn indexes(&self, prefix: &str) -> Vec<String> {
        let names = self.participants.iter();
        names.map(|own| format!("{prefix}:{own}")).collect()
    }
}

impl Directory {
    /// Returns the records of some indexes that match, at most `filter.limit`, and the position after
    /// which there are more.
    pub(super) async fn list<T: Listed>(
        &self,
        indexes: &[String],
        kind: &str,
        filter: &ListFilter,
        matches: impl Fn(&T) -> bool,
    ) -> Result<(Vec<T>, Option<Cursor>), RecordStoreError> {
        let mut listed = Vec::new();
        for index in indexes {
            self.scan(index, kind, filter, &matches, &mut listed)
                .await?;
        }
        listed.sort_by(|(a, _), (b, _)| a.cmp(b));
        listed.dedup_by(|(a, _), (b, _)| a == b);
        let has_more = listed.len() > filter.limit;
        listed.truncate(filter.limit);
        let next = listed.last().filter(|_| has_more);
        let next = next.map(|(cursor, _)| cursor.clone());
        Ok((listed.into_iter().map(|(_, record)| record).collect(), next))
    }

    /// Appends the matching records of one index, up to one more than the limit.
    async fn scan<T: Listed>(
        &self,
        index: &str,
        kind: &str,
        filter: &ListFilter,
        matches: &impl Fn(&T) -> bool,
        listed: &mut Vec<(Cursor, T)>,
    ) -> Result<(), RecordStoreError> {
        let after_ms = filter.after.as_ref().map_or(0, |(ms, _)| *ms);
        let from = filter.modified_after.map_or(0, Timestamp::ms).max(after_ms);
        let until = filter.modified_before.map_or(u64::MAX >> 11, Timestamp::ms);
        let (mut skip, mut found) = (0, 0);
        while skip < SCANNED_MAX && from <= until {
            let page = self
                .records
                .members(index, from..=until, skip, LIST_LIMIT_MAX)
                .await?;
            let names: Vec<_> = page.iter().map(|(_, id)| format!("{kind}:{id}")).collect();
            let records: Vec<Arc<T>> = self.records.get_all(&names).await?;
            for record in records {
                let cursor = record.cursor();
                let is_before = filter.after.as_ref().is_some_and(|after| cursor <= *after);
                if is_before || !matches(&record) {
                    continue;
                }
                listed.push((cursor, (*record).clone()));
                found += 1;
                if found > filter.limit {
                    return Ok(());
                }
            }
            if page.len() < LIST_LIMIT_MAX {
                break;
            }
            skip += page.len();
        }
        Ok(())
    }
}
