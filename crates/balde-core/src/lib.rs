//! The exact arithmetic of balde: limits, commands on buckets, and the decisions on them.
//!
//! Nothing here reads a clock, does I/O, awaits or uses a float: time is an argument in whole
//! microseconds, and every quantity is an integer. So the same command gives the same decision in
//! memory, in a Redis script and in a test's model.
//!
//! ```
//! use balde_core::{Command, Limit};
//!
//! let limit: Limit = "10/s burst 100".parse()?;
//! let now_us = 0;
//!
//! // A bucket that was never used is full, and has no state.
//! let first = limit.apply(None, Command::Take { n: 100 }, now_us);
//! assert!(first.is_allowed());
//!
//! let second = limit.apply(first.state(), Command::Take { n: 1 }, now_us);
//! assert!(!second.is_allowed());
//! assert_eq!(second.retry_after_us(), Some(100_000));
//! # Ok::<(), balde_core::ParseLimitError>(())
//! ```
//!
//! | Name | What it is |
//! |--|--|
//! | [`Limit`] | capacity, refill, period and strategy, checked to be exact |
//! | [`Command`] | an operation: peek, take, take up to, charge, credit, hold, settle, set the level |
//! | [`State`] | what a store keeps for a bucket: two integers |
//! | [`Snapshot`] | a bucket refilled to one moment |
//! | [`Decision`] | the result: allowed or not, levels, waits, the state to store |
//! | [`Held`] | what one process holds of a bucket, until when |
#![no_std]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

mod bucket;
mod change;
mod command;
mod decision;
mod hold;
mod limit;
mod snapshot;
mod span;
mod text;

pub use command::Command;
pub use decision::{Decision, DecisionParts, HELD_RETRY_US, Wait};
pub use hold::{Held, OnExpiry};
pub use limit::{DEBT_DEFAULT, EXACT_MAX, Limit, LimitError, PERIOD_MAX_US, REFILL_UNITS_MAX};
pub use limit::{Start, Strategy};
pub use snapshot::{Snapshot, State};
pub use text::ParseLimitError;
