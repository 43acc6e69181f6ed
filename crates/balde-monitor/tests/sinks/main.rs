//! Alerts on their way to receivers that check them, fail, hang and lie.

mod answers;
mod bodies;
mod database;
mod letters;
mod log;
mod receiver;
mod retries;
mod secrets;
mod shutdown;
mod signature;
mod stories;
