//! Outbound work as fast as the other side allows, and not faster.
//!
//! A [`Throttler`] has a global rate and a rate for each partition. Requests wait for both, in order;
//! errors degrade a partition's rate, successes raise it again, and at the floor its circuit opens.
//! One partition's trouble never slows another.
//!
//! | Name | What it is |
//! |--|--|
//! | [`Throttler`], [`ThrottlerBuilder`] | the throttler, and how to make one |
//! | [`Partition`] | a handle for one partition |
//! | [`Rate`], [`Pace`] | tokens in a second, and the burst that goes with them |
//! | [`Degradation`], [`Circuit`] | what errors do, and whether calls pass |
//! | [`Outcome`], [`Report`], [`Permit`] | how a request ended, and who has to tell |
//! | [`Refused`], [`RunError`] | why there are no tokens |
//! | [`Oversize`] | more than the burst: in slices, or refused |
//! | [`PartitionStats`] | a partition as it is now |
//! | `ThrottleLayer` (feature `tower`) | the same around a client |
//! | `ThrottleMetrics` (feature `prometheus`) | the same as numbers |
//!
//! | File | Holds |
//! |--|--|
//! | `rate`, `settings`, `builder`, `error` | what can be asked for, and what can be wrong with it |
//! | `bucket` | one bucket, by the core's arithmetic |
//! | `health` | a partition's rate and circuit: a pure machine |
//! | `signal` | what the other side says about its limits |
//! | `waiters`, `core`, `tokens`, `settle`, `reporting`, `part` | who gets tokens when: pure, with time as an argument |
//! | `ahead` | tokens that can be had without the lock |
//! | `shared`, `acquire`, `permit`, `throttler` | the lock, the timer, the futures and the handles |
//! | `note`, `metrics` | what is told |
//! | `layer` | the tower layer for clients |
//! | `feed`, `common_health` | the buckets and the health that processes share |

mod acquire;
mod bucket;
mod error;
mod event;
mod health;
mod inner;
#[cfg(feature = "tower")]
mod layer;
#[cfg(feature = "prometheus")]
mod metrics;
mod permit;
mod rate;
#[cfg(feature = "redis")]
mod remote;
mod scheduler;
mod settings;
mod signal;
mod throttler;

pub use error::{Refused, RunError, SettingsError};
pub use health::{Circuit, Degradation, PROBES_MAX};
#[cfg(feature = "tower")]
pub use layer::{ThrottleLayer, ThrottleService};
#[cfg(feature = "prometheus")]
pub use metrics::{LABELS_MAX, ThrottleMetrics};
pub use permit::Permit;
pub use rate::{Pace, RATE_MAX, Rate};
pub use scheduler::partition::PartitionStats;
pub use settings::{
    Oversize, PARTITION_BYTES_MAX, PARTITIONS_MAX_DEFAULT, PAUSE_MAX_DEFAULT, WAITERS_MAX_DEFAULT,
};
pub use signal::{Outcome, Report};
pub use throttler::builder::ThrottlerBuilder;
pub use throttler::{Partition, Throttler};

/// The examples on the page about throttling are run, too.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../../../docs/throttle.md")]
struct Page;
