//! Where buckets live.

pub(crate) mod memory;
