//! The layer before real services: what clients read, and what buckets hold however a request ends.

mod contract;
mod fast_path;
mod fixture;
mod outcomes;
mod refusals;
mod services;

#[path = "../support/redis_server.rs"]
#[expect(dead_code, reason = "other tests do more to their servers")]
mod redis_server;
