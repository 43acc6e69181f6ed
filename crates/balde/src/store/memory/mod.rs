//! Buckets in the memory of this process.
//!
//! | File | Holds |
//! |--|--|
//! | `fingerprint` | keys as 128 keyed bits |
//! | `word` | a bucket as one 64-bit word |
//! | `region` | slots in groups of two cache lines |
//! | `shard` | slots, read without a lock and rearranged under one |
//! | `directory` | which shard a key is in; shards that split |
//! | `tag` | the tier of a key, in its slot |
//! | `table` | the shards of one limiter, bounded and swept |
//! | `held` | tokens that are held of buckets |
//! | `multi` | several buckets in one decision |
//! | `sync` | atomics and locks, or loom's |

mod directory;
mod fingerprint;
mod held;
mod multi;
mod region;
mod shard;
mod sync;
mod table;
mod tag;
mod word;

pub(crate) use multi::{MemoryStep, run, run_all, run_locked};
pub use table::MemoryStats;
pub(crate) use table::{Assignment, Table};
pub(crate) use tag::TierId;

#[cfg(all(test, not(balde_loom)))]
mod tests;

#[cfg(all(test, balde_loom))]
mod loom_tests;
