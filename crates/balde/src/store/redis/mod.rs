//! Buckets in Redis, shared by processes.

pub mod script;
