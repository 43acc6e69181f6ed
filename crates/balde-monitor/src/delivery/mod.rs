//! Delivery: sends messages from the outbox to the sinks until each is delivered.
//!
//! Every sink has a worker, so a sink that is down delays no other. A worker sends the oldest
//! undelivered message of each episode, several episodes at once, and marks what was delivered. Failed
//! deliveries are retried with exponential backoff and without limit. If the process crashes between
//! a delivery and the mark, the message is delivered twice, with the same key.
//!
//! While the database accepts no writes, messages are delivered from memory. When it is back, they
//! appear in the outbox, and those that were delivered are marked instead of being sent again.

mod counters;
mod dispatcher;
mod log;
mod memory_queue;
mod retry;
mod settings;
mod summary;
mod worker;

pub use balde::Backoff;
pub use counters::Counters;
pub use dispatcher::Dispatcher;
pub use settings::{CONCURRENT_MAX, DeliveryError, DeliverySettings, SINK_NAME_MAX, SINKS_MAX};
pub use summary::DeliverySummary;
