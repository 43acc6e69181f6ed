//! The layer around real services: what clients receive, and what buckets contain however a request
//! ends.

mod contract;
mod fast_path;
mod fixture;
mod missing_keys;
mod outcomes;
mod refusals;
mod services;

#[path = "../support/redis_server.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod redis_server;
