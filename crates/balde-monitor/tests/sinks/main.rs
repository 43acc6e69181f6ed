//! Alerts on their way to receivers that check them, fail, hang and lie.

mod answers;
mod bodies;
mod database;
mod email;
mod http_receivers;
mod kafka;
mod log;
mod messages;
#[path = "../support/postgres.rs"]
#[expect(dead_code, reason = "the tests of history need more of it")]
mod postgres;
mod receiver;
mod retries;
mod secrets;
mod servers;
mod shutdown;
mod signature;
mod stories;
mod tls;
