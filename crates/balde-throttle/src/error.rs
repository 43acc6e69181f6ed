//! Why tokens are refused, and why a throttler cannot be built.

use std::time::Duration;

use thiserror::Error;

use crate::name::PARTITION_BYTES_MAX;
use crate::rate::RATE_MAX;

/// Why a request for tokens was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// There are too few tokens now. Only [`try_acquire`](crate::Throttler::try_acquire) returns this;
    /// the other methods wait.
    #[error("too few tokens now{}", when(*retry_after))]
    NotNow {
        /// How long until the same request could pass if no other takes tokens. `None` if that depends
        /// on requests that are already waiting.
        retry_after: Option<Duration>,
    },
    /// The partition's circuit is open: requests are refused until it half-opens.
    #[error("the partition's circuit is open; retry in {retry_after:?}")]
    CircuitOpen {
        /// The time until the circuit half-opens.
        retry_after: Duration,
    },
    /// The tokens were not available within the caller's time limit. Nothing was taken.
    #[error("the tokens were not available before the deadline")]
    Deadline,
    /// More tokens than the burst, with [`Oversize::Refuse`](crate::Oversize::Refuse).
    #[error(
        "{n} tokens are more than the burst of {burst}; request fewer at a time, or build the \
         throttler with Oversize::Slices"
    )]
    TooLarge {
        /// The tokens that were requested.
        n: u64,
        /// The most that can be taken at once at the current rates.
        burst: u64,
    },
    /// `waiters_max` requests are waiting already.
    #[error(
        "{waiters_max} requests are waiting already; start fewer at a time, or raise waiters_max"
    )]
    TooManyWaiters {
        /// The configured maximum.
        waiters_max: usize,
    },
    /// `partitions_max` partitions exist, and none of them is idle.
    #[error("{partitions_max} partitions are in use; raise partitions_max, or use fewer names")]
    TooManyPartitions {
        /// The configured maximum.
        partitions_max: usize,
    },
    /// The partition's name is empty or longer than 128 bytes.
    #[error("a partition's name must have 1 to {PARTITION_BYTES_MAX} bytes")]
    BadPartition,
    /// The throttler was closed or dropped.
    #[error("the throttler is closed")]
    Closed,
    /// Waiting needs a tokio runtime with its timer enabled, and there is none on this thread.
    #[error("waiting for tokens needs a tokio runtime with time enabled; there is none here")]
    NoRuntime,
}

impl Refusal {
    /// When to try again, where that is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotNow { retry_after } => *retry_after,
            Self::CircuitOpen { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    /// The reason as one word, for logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotNow { .. } => "not_now",
            Self::CircuitOpen { .. } => "circuit_open",
            Self::Deadline => "deadline",
            Self::TooLarge { .. } => "too_large",
            Self::TooManyWaiters { .. } => "too_many_waiters",
            Self::TooManyPartitions { .. } => "too_many_partitions",
            Self::BadPartition => "bad_partition",
            Self::Closed => "closed",
            Self::NoRuntime => "no_runtime",
        }
    }
}

fn when(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(wait) => format!("; there may be enough in {wait:?}"),
        None => ", and other requests are waiting for the next ones".to_owned(),
    }
}

/// Why [`Throttler::run`](crate::Throttler::run) returned no result.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RunError<E> {
    /// The work was not started, because no tokens were granted.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The work was started and failed.
    #[error("{0}")]
    Failed(#[source] E),
}

/// Why a throttler cannot be built.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// The global rate or the rate of partitions is missing.
    #[error("{which}: a throttler needs this rate; set it on the builder")]
    NoRate {
        /// The builder's method.
        which: &'static str,
    },
    /// A rate of zero tokens, or of more than 1,000,000,000.
    #[error("{which}: a rate of {tokens} tokens; it must be between 1 and {RATE_MAX}")]
    Rate {
        /// The builder's method.
        which: &'static str,
        /// The tokens that were given.
        tokens: u64,
    },
    /// A share that is zero or more than the whole, or a ratio that would change nothing.
    #[error("{which}: {advice}")]
    Share {
        /// The setting.
        which: &'static str,
        /// What it must be.
        advice: &'static str,
    },
    /// A duration that is zero or too long.
    #[error("{which}: {interval:?}; it must be between 1 ms and a day")]
    Interval {
        /// The setting.
        which: &'static str,
        /// The duration that was given.
        interval: Duration,
    },
    /// A number that is zero or too large.
    #[error("{which}: {number}; it must be between 1 and {max}")]
    Number {
        /// The setting.
        which: &'static str,
        /// The number that was given.
        number: usize,
        /// The largest number that is allowed.
        max: usize,
    },
    /// The name of a partition with its own rate is empty or longer than 128 bytes.
    #[error("partition: a partition's name must have 1 to {PARTITION_BYTES_MAX} bytes")]
    PartitionName,
    /// The buckets in Redis cannot be set up.
    #[error("the shared buckets cannot be set up: {0}")]
    Store(#[source] balde::BuildError),
}
