//! Lists by participant, filtered and in the order of their last change.

use std::sync::Arc;

use super::Directory;
use super::world::{Kept, WorldError};
use crate::wire::Moment;

/// How many a list shows unless told otherwise.
pub const LIST_LIMIT_DEFAULT: usize = 20;

/// The most a list shows.
pub const LIST_LIMIT_MAX: usize = 200;

/// Records that are looked at for one list, whether they fit or not.
const LOOKS_MAX: usize = 20_000;

/// Which side of something a participant is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Who began it: claimer, reporter, requesting.
    Beginner,
    /// The other: donor, counterparty, contested.
    Other,
}

/// What a list shows.
#[derive(Clone, Debug)]
pub(crate) struct ListFilter {
    pub(crate) participant: String,
    /// The sides the participant may be on; both, unless told otherwise.
    pub(crate) sides: Vec<Side>,
    pub(crate) modified_after: Option<Moment>,
    pub(crate) modified_before: Option<Moment>,
    pub(crate) limit: usize,
}

impl Directory {
    /// Records of an index that fit, at most as many as the filter says, and whether there are more.
    pub(super) async fn list<T: Kept + Clone>(
        &self,
        index: &str,
        kind: &str,
        filter: &ListFilter,
        fits: impl Fn(&T) -> bool,
    ) -> Result<(Vec<T>, bool), WorldError> {
        let from = filter.modified_after.map_or(0, |after| after.ms() + 1);
        let until = filter
            .modified_before
            .map_or(u64::MAX >> 11, |before| before.ms().saturating_sub(1));
        let mut shown: Vec<T> = Vec::new();
        let mut skip = 0;
        while skip < LOOKS_MAX && from <= until {
            let page = self
                .world
                .members(index, from..=until, skip, LIST_LIMIT_MAX)
                .await?;
            let names: Vec<_> = page.iter().map(|(_, id)| format!("{kind}:{id}")).collect();
            let records: Vec<Arc<T>> = self.world.get_all(&names).await?;
            for record in records {
                if !fits(&record) {
                    continue;
                }
                if shown.len() == filter.limit {
                    return Ok((shown, true));
                }
                shown.push((*record).clone());
            }
            if page.len() < LIST_LIMIT_MAX {
                break;
            }
            skip += page.len();
        }
        Ok((shown, false))
    }
}
