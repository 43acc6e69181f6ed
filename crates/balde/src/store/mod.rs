//! Where buckets are kept.

#[cfg(feature = "redis")]
pub mod redis;
