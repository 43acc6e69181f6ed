//! Where buckets are kept.

pub(crate) mod memory;
#[cfg(feature = "redis")]
pub mod redis;
