//! Alerts on their way to receivers that check them, fail, hang and lie.

mod answers;
mod bodies;
mod database;
mod log;
mod messages;
#[path = "../support/postgres.rs"]
#[expect(dead_code, reason = "the tests of history need more of it")]
mod postgres;
mod receiver;
mod retries;
mod secrets;
mod shutdown;
mod signature;
mod stories;
mod tls;
