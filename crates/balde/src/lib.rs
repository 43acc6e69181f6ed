#![doc = include_str!("../README.md")]
//!
//! # The names
//!
//! | Name | What it is |
//! |--|--|
//! | [`RateLimiter`], [`RateLimiterBuilder`] | one limit over many keys; clones share their buckets |
//! | [`Limit`] | capacity, refill and period, written as `"10/s burst 20"` or built from integers |
//! | [`Decision`] | the result of a check, with its [`Reason`] |
//! | [`Blocking`] | the limiter for callers without `await` |
//! | [`check_all`], [`TokenRequest`], [`MultiDecision`] | several buckets, all or nothing |
//! | [`Hold`] | tokens taken for work whose price is known only afterwards |
//! | [`Clock`], [`ManualClock`] | real time, and time for tests |
//! | [`OpId`] | makes a charge or credit happen once |
//! | `RedisStore`, `RedisBuilder` (feature `redis`) | buckets that processes share |
//! | [`OnFailure`], [`StoreFailure`] | what decides while Redis is unavailable, and why it is |
//! | `Leases`, `LeaseStats` (feature `redis`) | tokens of busy keys taken ahead of use |
//! | `StoredBucket`, `BucketScan` (feature `redis`) | buckets read out of Redis, for tools |
//! | `Registers` (feature `redis`) | small values that processes share, changed by compare-and-set |
//! | [`telemetry`] | metrics, log lines, spans |

mod backoff;
mod clock;
mod decision;
mod env;
mod error;
mod failure;
#[cfg(any(feature = "http", feature = "redis"))]
mod hex;
mod hold;
mod holds;
#[cfg(feature = "http")]
pub mod http;
mod idempotency;
mod key;
#[cfg(feature = "redis")]
mod lease;
mod limiter;
mod log_throttle;
mod multi;
#[cfg(feature = "options")]
pub mod options;
#[doc(hidden)]
pub mod store;
pub mod telemetry;

pub use backoff::Backoff;
pub use balde_core::{Limit, LimitError, OnExpiry, ParseLimitError, Start, Strategy, Wait};
pub use clock::{Clock, ManualClock};
pub use decision::{Decision, Reason};
pub use env::StorageMode;
#[cfg(feature = "tokio")]
pub use error::AcquireError;
pub use error::{BuildError, Error, InvalidLimit, RedisConfigError, TierError};
pub use failure::{InvalidShare, OnFailure, Share, StoreFailure};
pub use hold::{Hold, SETTLE_WITHIN, Settling};
pub use holds::Holds;
pub use idempotency::{InvalidOpId, OP_ID_BYTES_MAX, OpId};
pub use key::{BadKey, KEY_BYTES_MAX};
#[cfg(feature = "redis")]
pub use lease::{LeaseStats, Leases};
pub use limiter::{Blocking, RateLimiter, RateLimiterBuilder, Tier, TokenRequest};
pub use multi::{MultiDecision, TOKEN_REQUESTS_MAX, check_all, check_all_blocking};
#[cfg(feature = "options")]
pub use options::Options;
pub use store::memory::MemoryStats;
#[cfg(feature = "redis")]
pub use store::redis::{
    BucketScan, REDIS_TIMEOUT_MAX, RedisBuilder, RedisStats, RedisStore, RegisterValues, Registers,
    StoredBucket,
};

/// Runs the examples of the page about keys.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/keys.md")]
struct KeysPage;
