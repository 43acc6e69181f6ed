//! The simulated directory: entries, claims, infraction reports, refunds, fraud markers and funds
//! recoveries, and the rules by which they change.
//!
//! | File | Holds |
//! |--|--|
//! | `store` | records in memory or in Redis, and transactions on them |
//! | `handle`, `error`, `ids` | [`Directory`] and its transactions, why it rejects a request, ids |
//! | `entries`, `claims`, `infractions`, `refunds`, `markers` | the life cycle of each kind of record |
//! | `funds_recoveries`, `recovery_flow`, `graph` | funds recoveries, what DICT does in them itself, and the transactions that they follow |
//! | `events` | event notifications |
//! | `cids`, `statistics`, `transactions`, `lists` | content ids, statistics, payment transactions, lists |
//! | `seed` | entries from a file |

mod cids;
mod claims;
mod entries;
mod error;
mod events;
mod funds_recoveries;
mod graph;
mod handle;
mod ids;
mod infractions;
mod lists;
mod markers;
mod recovery_flow;
mod refunds;
mod seed;
mod statistics;
mod store;
mod transactions;

pub(crate) use claims::ClaimAction;
pub(crate) use entries::EntryRecord;
pub(crate) use error::DirectoryError;
pub(crate) use funds_recoveries::FundsRecoveryAction;
pub use handle::{Directory, DirectoryRules};
pub(crate) use infractions::InfractionAction;
pub(crate) use lists::{Cursor, LIST_LIMIT_MAX, ListFilter, Side};
pub(crate) use markers::MarkerFilter;
pub(crate) use refunds::RefundAction;
pub use seed::SeedError;
pub use store::RecordStoreError;
pub(crate) use store::RedisRecords;
pub(crate) use transactions::{Transaction, TransactionKind};
