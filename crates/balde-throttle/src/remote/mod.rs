//! Buckets and partition health that several processes share through Redis.

pub(crate) mod health;
pub(crate) mod tokens;
