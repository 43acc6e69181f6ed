//! The engine: admission, settlement, credits, assignments and other profiles, in memory and in a
//! real Redis.

mod admission;
mod assignments;
mod credits;
#[cfg(feature = "axum")]
mod example;
mod fixture;
#[cfg(feature = "tower")]
mod layer;
mod matching;
mod model;
mod on_redis;
mod replacing;
mod shadow;
mod spellings;
mod store_failures;
mod tickets;

#[path = "../../../balde/tests/support/redis_server.rs"]
#[expect(dead_code, reason = "other tests do more to their servers")]
mod redis_server;
