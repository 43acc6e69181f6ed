#![doc = include_str!("../../../README.md")]
//!
//! # The names
//!
//! | Name | What it is |
//! |--|--|
//! | [`RateLimiter`] | one limit over many keys; clones share their buckets |
//! | [`Builder`] | how to make one |
//! | [`Limit`] | the numbers, written as `"10/s burst 20"` or built from integers |
//! | [`Decision`] | the answer, with its [`Reason`] |
//! | [`Blocking`] | the same questions without `await` |
//! | [`check_all`], [`Ask`], [`Joint`] | several buckets, all or nothing |
//! | [`Clock`], [`ManualClock`] | real time, cheap time, and time for tests |
//! | [`MemoryStats`] | what the memory store holds and has let go |

mod builder;
mod clock;
mod decision;
mod error;
mod joint;
mod limiter;
#[doc(hidden)]
pub mod store;

pub use balde_core::{Limit, LimitError, ParseLimitError, Start, Strategy, Wait};
pub use builder::{Builder, KEYS_MAX_DEFAULT};
pub use clock::{Clock, ManualClock};
pub use decision::{Decision, Reason};
pub use error::{BadKey, BuildError, Error, KEY_BYTES_MAX};
pub use joint::{ASKS_MAX, Ask, Joint, check_all, check_all_blocking};
pub use limiter::{Blocking, RateLimiter};
pub use store::memory::MemoryStats;
