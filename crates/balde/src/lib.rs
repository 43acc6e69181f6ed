//! Exact rate limiting.

pub mod store;
