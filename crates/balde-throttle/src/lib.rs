//! Sends outbound requests at the pace that a server allows.
//!
//! A [`Throttler`] has a global rate and a rate for each partition. Requests wait for tokens from both,
//! first come, first served. Errors lower a partition's rate, successes raise it again, and at a floor
//! its circuit breaker opens. One partition's errors never slow another.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use balde_throttle::Throttler;
//!
//! // 12,000 records a second in all, 2,000 in each partition.
//! let throttler = Throttler::new(12_000, 2_000)?;
//! let batch = [1, 2, 3];
//! let written = throttler
//!     .run("orders", 3, async { Ok::<_, std::io::Error>(batch.len()) })
//!     .await?;
//! assert_eq!(written, 3);
//! # Ok(()) }) }
//! ```
//!
//! | Name | What it is |
//! |--|--|
//! | [`Throttler`], [`ThrottlerBuilder`] | the throttler, and its settings |
//! | [`Partition`], [`PartitionStats`] | a handle for one partition; its state at one moment |
//! | [`Rate`], [`Pace`] | tokens per second, minute or hour; a rate with its burst |
//! | [`Degradation`], [`Circuit`] | how errors change a rate; the state of a circuit breaker |
//! | [`Outcome`], [`Report`], [`Permit`] | how a request ended, and how that is reported |
//! | [`Refusal`], [`RunError`] | why tokens were refused; why work has no result |
//! | [`RetryPolicy`], [`RetryBudget`], [`RetryError`] | sending again until a request succeeds |
//! | [`Progress`], [`Checkpoint`] | how far a job is; going on after it was killed |
//! | [`Oversize`] | requests above the burst: in slices, or refused |
//! | [`SettingsError`] | why a throttler cannot be built |
//! | `ThrottleLayer`, `ThrottleService` (feature `tower`) | a layer for HTTP clients |
//! | `ThrottleMetrics` (feature `prometheus`) | metrics of throttlers |
//! | `ThrottlerOptions`, `Throttlers` (feature `options`) | throttlers from a TOML file |
//!
//! With the feature `redis`, several processes share rates and the health of partitions.

mod acquire;
mod bucket;
mod error;
mod event;
mod health;
mod hints;
mod inner;
mod job;
#[cfg(feature = "tower")]
mod layer;
#[cfg(feature = "prometheus")]
mod metrics;
mod micros;
mod name;
#[cfg(feature = "options")]
mod options;
mod outcome;
mod permit;
mod rate;
#[cfg(feature = "redis")]
mod remote;
mod retry;
mod scheduler;
mod settings;
mod throttler;

pub use error::{Refusal, RunError, SettingsError};
pub use health::{Circuit, Degradation};
pub use job::{Checkpoint, CheckpointError, Progress, ProgressReport};
#[cfg(feature = "tower")]
pub use layer::{ThrottleLayer, ThrottleService};
#[cfg(feature = "prometheus")]
pub use metrics::ThrottleMetrics;
#[cfg(feature = "options")]
pub use options::{ThrottlerOptions, Throttlers};
pub use outcome::{Outcome, Report};
pub use permit::Permit;
pub use rate::{InvalidRate, Pace, Rate};
pub use retry::{GaveUp, RetryBudget, RetryError, RetryPolicy};
pub use scheduler::partition::PartitionStats;
pub use settings::Oversize;
pub use throttler::{Partition, Throttler, ThrottlerBuilder};

/// Runs the examples of the page about throttling.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../../../docs/throttle.md")]
struct Page;

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
