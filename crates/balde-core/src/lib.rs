//! The arithmetic and the meaning of balde: what a limit is, what can be asked of a bucket, and
//! what the answer says.
//!
//! Nothing here reads a clock, does I/O, awaits or rounds through a float: time comes in as whole
//! microseconds, and every quantity is an integer. That is why the same command gives the same
//! answer in a process's memory, in a Redis script and in a test's model.
//!
//! ```
//! use balde_core::{Command, Limit};
//!
//! let limit: Limit = "10/s burst 100".parse()?;
//! let now_us = 0;
//!
//! // A bucket that was never touched is full, and has no state at all.
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
//! | [`Limit`] | the numbers: capacity, refill, period, strategy; a limit that exists is exact |
//! | [`Command`] | what can be asked: peek, take, take up to, charge, credit, set the level |
//! | [`State`] | what a store keeps for a bucket: two integers |
//! | [`Snapshot`] | a bucket as of one moment, refilled |
//! | [`Decision`] | the answer: allowed or not, levels, waits, the state to keep |
#![no_std]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

mod bucket;
mod change;
mod command;
mod decision;
mod limit;
mod span;
mod text;

pub use bucket::{Snapshot, State};
pub use command::Command;
pub use decision::{Decision, Wait};
pub use limit::{DEBT_DEFAULT, EXACT_MAX, Limit, LimitError, PERIOD_MAX_US, REFILL_UNITS_MAX};
pub use limit::{Start, Strategy};
pub use text::ParseLimitError;
