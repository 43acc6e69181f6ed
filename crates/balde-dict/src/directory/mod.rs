//! The directory itself: entries, claims, reports, refunds and markers, each with its life cycle.
//!
//! | File | Holds |
//! |--|--|
//! | `world`, `here`, `shared`, `commit.lua` | where records are, and changes that happen wholly or not at all |
//! | `entries`, `claims`, `infractions`, `refunds`, `markers` | what may happen to each, and by whom |
//! | `cids`, `statistics`, `transactions` | what follows from it |
//! | `seed` | entries from a file |

mod cids;
mod claims;
mod entries;
mod here;
mod infractions;
mod lists;
mod markers;
mod refunds;
mod seed;
mod shared;
mod statistics;
mod transactions;
mod world;

use std::fmt;
use std::sync::Arc;

pub use cids::CID_FILES_MAX;
pub(crate) use claims::ClaimStep;
pub use entries::{ENTRIES_MAX, KEYS_PER_COMPANY_ACCOUNT, KEYS_PER_PERSON_ACCOUNT};
pub(crate) use infractions::InfractionStep;
pub use lists::{LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX};
pub(crate) use lists::{ListFilter, Side};
pub(crate) use refunds::RefundStep;
pub use seed::{SEED_LINES_MAX, SeedError};
pub(crate) use shared::Shared as SharedTexts;
pub(crate) use transactions::Transaction;
pub use world::{EVENTS_MAX, WorldError};

use crate::wire::Problem;
use here::Here;
use shared::Shared;
use world::{Change, Committed, World};

/// How often a change that others got in the way of is tried.
const TRIES_MAX: usize = 32;

/// The most records of each kind but entries.
pub const RECORDS_MAX: u64 = 100_000;

/// Everything that DICT knows, and the rules by which it changes.
#[derive(Debug)]
pub struct Directory {
    world: World,
    rules: Rules,
}

/// What the published rules leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether a refund for fraud needs an infraction report on the same transaction that was
    /// closed as agreed.
    pub refunds_need_a_report: bool,
    /// Whether reports and refunds are only for transactions that a payment order made known. If
    /// not, whoever first answers for the other side is the other side.
    pub transactions_must_be_known: bool,
}

impl Directory {
    /// An empty directory in this process.
    pub fn in_memory(rules: Rules) -> Self {
        Self {
            world: World::Here(Here::default()),
            rules,
        }
    }

    /// A directory in Redis, under a name that all who share it use.
    pub fn in_redis(client: redis::Client, name: &str, rules: Rules) -> Result<Self, WorldError> {
        Ok(Self {
            world: World::Shared(Shared::new(client, name)?),
            rules,
        })
    }

    /// Changes a record that has a default, whoever else is changing it.
    pub(crate) async fn update<T: world::Kept + Default + Clone>(
        &self,
        name: &str,
        change_it: impl Fn(&mut T),
    ) -> Result<T, Refusal> {
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let found: Option<Arc<T>> = self.world.read(&mut change, name).await?;
            let mut value = found.map_or_else(T::default, |found| (*found).clone());
            change_it(&mut value);
            let kept = Arc::new(value.clone());
            self.world.put(&mut change, name.to_owned(), kept)?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(value);
            }
        }
    }

    /// Where texts beside the records are kept, if others share them.
    pub(crate) fn shared_texts(&self) -> Option<SharedTexts> {
        match &self.world {
            World::Here(_) => None,
            World::Shared(shared) => Some(shared.clone()),
        }
    }
}

/// Why the directory does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It must not be done.
    Problem(Problem),
    /// It cannot be done now.
    World(WorldError),
}

impl Refusal {
    /// A problem of one of DICT's types, with an explanation.
    fn new(error_type: &str, detail: &str) -> Self {
        Self::Problem(Problem::new(400, error_type).with_detail(detail))
    }

    pub(crate) fn into_problem(self) -> Problem {
        match self {
            Self::Problem(problem) => problem,
            Self::World(error) => Problem::unavailable(error.to_string()),
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<WorldError> for Refusal {
    fn from(error: WorldError) -> Self {
        Self::World(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => problem.fmt(f),
            Self::World(error) => error.fmt(f),
        }
    }
}

/// Counts how often a change was tried.
#[derive(Default)]
struct Tries(usize);

/// Whether a change has happened or has to be worked out again.
#[derive(PartialEq, Eq)]
enum Try {
    Done,
    Again,
}

impl Tries {
    async fn commit(&mut self, world: &World, change: Change) -> Result<Try, Refusal> {
        self.0 += 1;
        match world.commit(change).await? {
            Committed::Done => Ok(Try::Done),
            Committed::Conflict if self.0 < TRIES_MAX => Ok(Try::Again),
            Committed::Conflict => {
                let detail = "Others change the same; try again";
                Err(Problem::new(409, "ResourceConflict")
                    .with_detail(detail)
                    .into())
            }
            Committed::Full(name) if name.starts_with("account:") => Err(Refusal::new(
                "EntryLimitExceeded",
                "The account has as many keys as it may have",
            )),
            Committed::Full(_) => {
                let detail = "The simulated directory holds as much as it may";
                Err(Problem::unavailable(detail).into())
            }
        }
    }
}

/// A random id as DICT makes them: a UUID of version 4.
fn new_id() -> String {
    let random = (fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{random:032x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_are_uuids_of_version_4() {
        for _ in 0..1_000 {
            let id = new_id();
            assert!(crate::wire::is_uuid(&id), "{id}");
            assert_eq!(&id[14..15], "4", "{id}");
            assert!("89ab".contains(&id[19..20]), "{id}");
        }
    }
}
