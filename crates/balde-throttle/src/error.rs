//! Why a throttler says no, and why one cannot be built.

use std::fmt;
use std::time::Duration;

use crate::rate::RATE_MAX;
use balde::StoreFailure;

/// Why no tokens were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// There are too few tokens now. Only [`try_acquire`](crate::Throttler::try_acquire) says so:
    /// everybody else waits.
    NotNow {
        /// When the same request could pass, if nobody else took anything. Nothing where that
        /// depends on others: the request would have to queue behind them.
        retry_after: Option<Duration>,
    },
    /// The partition's circuit is open: the other side is not asked until then.
    CircuitOpen {
        /// When it will be asked again.
        retry_after: Duration,
    },
    /// The time that the caller gave has run out. Nothing was taken.
    Deadline,
    /// More tokens than the burst, and [`Oversize::Refuse`](crate::Oversize::Refuse) was chosen.
    TooLarge {
        /// What was asked for.
        n: u64,
        /// The most that can be had at once at the present rates.
        burst: u64,
    },
    /// As many are waiting as there may be.
    TooManyWaiters {
        /// How many.
        waiters_max: usize,
    },
    /// As many partitions are in use as there may be, and none of them is idle.
    TooManyPartitions {
        /// How many.
        partitions_max: usize,
    },
    /// The partition's name is empty or longer than
    /// [`PARTITION_BYTES_MAX`](crate::PARTITION_BYTES_MAX).
    BadPartition,
    /// The shared store could not be asked, and its failure policy is to refuse.
    Store(StoreFailure),
    /// The throttler was dropped or closed.
    Closed,
    /// Waiting needs a tokio runtime with its timer enabled, and there is none here.
    NoRuntime,
}

impl Refused {
    /// When it is worth trying again, where that is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotNow { retry_after } => *retry_after,
            Self::CircuitOpen { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    /// One word for logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotNow { .. } => "not_now",
            Self::CircuitOpen { .. } => "circuit_open",
            Self::Deadline => "deadline",
            Self::TooLarge { .. } => "too_large",
            Self::TooManyWaiters { .. } => "too_many_waiters",
            Self::TooManyPartitions { .. } => "too_many_partitions",
            Self::BadPartition => "bad_partition",
            Self::Store(_) => "store",
            Self::Closed => "closed",
            Self::NoRuntime => "no_runtime",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNow {
                retry_after: Some(wait),
            } => write!(f, "too few tokens now; there may be enough in {wait:?}"),
            Self::NotNow { retry_after: None } => {
                f.write_str("too few tokens now, and others are waiting for the next ones")
            }
            Self::CircuitOpen { retry_after } => write!(
                f,
                "the partition's circuit is open; it is tried again in {retry_after:?}"
            ),
            Self::Deadline => f.write_str("the tokens did not come before the deadline"),
            Self::TooLarge { n, burst } => write!(
                f,
                "{n} tokens are more than the burst of {burst}; ask for fewer at a time, or build \
                 the throttler with Oversize::Slices"
            ),
            Self::TooManyWaiters { waiters_max } => write!(
                f,
                "{waiters_max} are waiting already; wait for some of them before asking for more, \
                 or raise waiters_max"
            ),
            Self::TooManyPartitions { partitions_max } => write!(
                f,
                "{partitions_max} partitions are in use; raise partitions_max, or use fewer names"
            ),
            Self::BadPartition => write!(
                f,
                "a partition's name has 1 to {} bytes",
                crate::PARTITION_BYTES_MAX
            ),
            Self::Store(failure) => failure.fmt(f),
            Self::Closed => f.write_str("the throttler is closed"),
            Self::NoRuntime => {
                f.write_str("waiting needs a tokio runtime with time enabled; there is none here")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// What became of [`run`](crate::Throttler::run) when it did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError<E> {
    /// It was not begun.
    Refused(Refused),
    /// It was begun and failed.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RunError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::Failed(error) => Some(error),
        }
    }
}

impl<E> From<Refused> for RunError<E> {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Why a throttler cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// The global rate, or that of partitions, was not given.
    NoRate {
        /// Which one.
        which: &'static str,
    },
    /// A rate of nothing, or of more than [`RATE_MAX`].
    Rate {
        /// Which one.
        which: &'static str,
        /// What was asked for.
        tokens: u64,
    },
    /// A share that is nothing or more than all; or a ratio that would change nothing.
    Share {
        /// Which one.
        which: &'static str,
        /// What it has to be.
        advice: &'static str,
    },
    /// A duration that is zero or too long.
    Interval {
        /// Which one.
        which: &'static str,
        /// What was asked for.
        interval: Duration,
    },
    /// A number that is zero or too large.
    Number {
        /// Which one.
        which: &'static str,
        /// What was asked for.
        number: usize,
        /// The most there may be.
        max: usize,
    },
    /// A partition with a rate of its own whose name cannot be used.
    PartitionName,
    /// The shared buckets cannot be set up.
    Shared(balde::BuildError),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRate { which } => write!(f, "{which}: a throttler needs this rate"),
            Self::Rate { which, tokens } => write!(
                f,
                "{which}: a rate of {tokens} tokens; it must be between 1 and {RATE_MAX}"
            ),
            Self::Share { which, advice } => write!(f, "{which}: {advice}"),
            Self::Interval { which, interval } => write!(
                f,
                "{which}: {interval:?}; it must be between 1 ms and a day"
            ),
            Self::Number { which, number, max } => {
                write!(f, "{which}: {number}; it must be between 1 and {max}")
            }
            Self::PartitionName => Refused::BadPartition.fmt(f),
            Self::Shared(error) => write!(f, "the shared buckets: {error}"),
        }
    }
}

impl std::error::Error for SettingsError {}
