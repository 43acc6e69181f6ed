//! Where buckets are kept: in memory, or in Redis.

pub(crate) mod memory;
#[cfg(feature = "redis")]
pub mod redis;

pub(crate) use memory::TierId;
