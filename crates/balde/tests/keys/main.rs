//! What a limiter can do with one key: wait for its tokens, move it to another tier, forget it.

mod acquire;
mod tiers;

#[path = "../support/redis_server.rs"]
#[expect(dead_code, reason = "other tests pause the server")]
mod redis_server;
