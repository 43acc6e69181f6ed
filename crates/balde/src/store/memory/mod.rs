//! Buckets in the memory of this process.
//!
//! | File | Holds |
//! |--|--|
//! | `fingerprint` | keys as 128 keyed bits |
//! | `word` | a bucket as one 64-bit word |
//! | `region` | slots in groups of two cache lines |
//! | `shard` | slots, read without a lock and rearranged under one |
//! | `directory` | which shard a key is in; shards that split |
//! | `table` | the shards of one limit, bounded and swept |
//! | `together` | several buckets in one decision |
//! | `sync` | atomics and locks, or loom's |

mod directory;
mod fingerprint;
mod region;
mod shard;
mod sync;
mod table;
mod together;
mod word;

pub use table::MemoryStats;
pub(crate) use table::{KEYS_MAX_MAX, Table};
pub(crate) use together::{Part, run_all};

#[cfg(all(test, not(balde_loom)))]
mod tests;

#[cfg(all(test, balde_loom))]
mod loom_tests;
