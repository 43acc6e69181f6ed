//! The layer before real services: what clients read, and what buckets hold however a request ends.

mod contract;
mod endings;
mod plain;
mod refusals;
mod services;
mod world;

#[path = "../support/redis_server.rs"]
#[expect(dead_code, reason = "other tests do more to their servers")]
mod redis_server;
