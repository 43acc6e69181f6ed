//! The simulated directory: entries, claims, infraction reports, refunds and fraud markers, and the
//! rules by which they change.
//!
//! | File | Holds |
//! |--|--|
//! | `store` | records in memory or in Redis, and transactions on them |
//! | `handle`, `error`, `ids` | [`Directory`] and its transactions, why it rejects a request, ids |
//! | `entries`, `claims`, `infractions`, `refunds`, `markers` | the life cycle of each kind of record |
//! | `cids`, `statistics`, `transactions`, `lists` | content ids, statistics, payment transactions, lists |
//! | `seed` | entries from a file |

mod cids;
mod claims;
mod entries;
mod error;
mod handle;
mod ids;
mod infractions;
mod lists;
mod markers;
mod refunds;
mod seed;
mod statistics;
mod store;
mod transactions;

pub use cids::CID_FILES_MAX;
pub(crate) use claims::ClaimAction;
pub use entries::{ENTRIES_MAX, KEYS_PER_COMPANY_ACCOUNT, KEYS_PER_PERSON_ACCOUNT};
pub(crate) use error::DirectoryError;
pub use handle::{Directory, DirectoryRules, RECORDS_MAX};
pub(crate) use infractions::InfractionAction;
pub use lists::{LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX};
pub(crate) use lists::{ListFilter, Side};
pub(crate) use refunds::RefundAction;
pub use seed::{SEED_LINES_MAX, SeedError};
pub(crate) use store::RedisRecords;
pub use store::{EVENTS_MAX, RecordStoreError};
pub(crate) use transactions::Transaction;
