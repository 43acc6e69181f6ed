#![doc = include_str!("../../../README.md")]
//!
//! # The names
//!
//! | Name | What it is |
//! |--|--|
//! | [`RateLimiter`] | one limit over many keys; clones share their buckets |
//! | [`RateLimiterBuilder`] | how to make one |
//! | [`Limit`] | the numbers, written as `"10/s burst 20"` or built from integers |
//! | [`Decision`] | the answer, with its [`Reason`] |
//! | [`Blocking`] | the same questions without `await` |
//! | [`check_all`], [`TokenRequest`], [`MultiDecision`] | several buckets, all or nothing |
//! | [`Hold`], [`settled`] | tokens taken for work whose price is known only afterwards |
//! | [`Clock`], [`ManualClock`] | real time, cheap time, and time for tests |
//! | [`MemoryStats`] | what the memory store holds and has let go |
//! | [`OpId`] | what makes a charge or credit happen once |
//! | `RedisStore` (feature `redis`) | buckets that processes share |
//! | `Leases`, `LeaseStats` (feature `redis`) | tokens of busy keys taken ahead |
//! | `throttle` (feature `throttle`) | waiting for tokens instead of being refused |
//! | [`telemetry`] | metrics, lines in a log, spans |
//! | [`OnFailure`], [`StoreFailure`] | what happens when that is away, and why |

mod blocking;
mod builder;
mod clock;
mod decision;
mod env;
mod error;
mod failure;
mod hold;
#[cfg(feature = "http")]
pub mod http;
mod joint;
#[cfg(feature = "http")]
mod key;
#[cfg(feature = "redis")]
mod lease;
mod limiter;
mod log;
#[cfg(feature = "redis")]
mod mixed;
mod once;
#[cfg(feature = "options")]
pub mod options;
#[cfg(feature = "redis")]
mod remote;
#[doc(hidden)]
pub mod store;
pub mod telemetry;
#[cfg(feature = "throttle")]
pub mod throttle;

pub use balde_core::{Limit, LimitError, ParseLimitError, Start, Strategy, Wait};
pub use blocking::Blocking;
pub use builder::{KEYS_MAX_DEFAULT, RateLimiterBuilder};
pub use clock::{Clock, ManualClock};
pub use decision::{Decision, Reason};
pub use error::{BadKey, BuildError, Error, KEY_BYTES_MAX};
pub use failure::{OnFailure, Share, StoreFailure};
pub use hold::{Hold, SETTLE_WITHIN, SETTLING_MAX, settled};
pub use joint::{MultiDecision, TOKEN_REQUESTS_MAX, TokenRequest, check_all, check_all_blocking};
#[cfg(feature = "redis")]
pub use lease::{LeaseStats, Leases};
pub use limiter::RateLimiter;
pub use once::{BadOpId, OP_ID_BYTES_MAX, OpId};
#[cfg(feature = "options")]
pub use options::Options;
pub use store::memory::MemoryStats;
#[cfg(feature = "redis")]
pub use store::redis::{REDIS_TIMEOUT_MAX, RedisBuilder, RedisStats, RedisStore};
