//! Metrics, log lines and spans of limiters.
//!
//! Nothing here changes a decision. No key, address, password or salt is exported: keys appear as
//! salted SHA-256 hashes
//! ([`RateLimiterBuilder::log_salt`](crate::RateLimiterBuilder::log_salt)), in logs and spans only.
//!
//! | Name | Feature | What it is |
//! |--|--|--|
//! | `Metrics` | `prometheus` | counters of many limiters, for Prometheus to scrape |
//! | [`Denials`], [`flush_denials`] | | a line for every denial, or a summary |
//! | `Logs`, `LogsGuard`, [`LogFormat`] | `logs` | log lines: text on a terminal, else JSON |
//! | `LogWriter`, [`dropped_log_lines`] | `logs` | the bounded writer of these lines, which nobody waits for |
//! | `json_logs`, `json_logs_to`, `json_logs_at` | `logs` | one JSON object per line |
//! | `Otlp`, `OtlpGuard` | `otlp` | exports spans to a collector |
//! | `continue_trace` | `otlp`, `http` | continues a trace that began in another process |
//! | [`key_hash`] | | the hash under which logs show a key |
//! | [`LogThrottle`] | | at most one log line a second, with a count of the rest |
//!
//! Lines and spans are emitted through the `tracing` crate with any features, under the target
//! `balde`: lines at INFO and above, spans at DEBUG. Without a subscriber they cost a load and a
//! branch.

mod denials;
#[cfg(feature = "prometheus")]
mod histogram;
mod key_hash;
#[cfg(feature = "logs")]
mod lines;
pub(crate) mod log;
mod log_format;
mod log_thread;
#[cfg(feature = "logs")]
mod log_writer;
#[cfg(feature = "logs")]
mod logs;
#[cfg_attr(not(feature = "prometheus"), path = "no_meter.rs")]
mod meter;
#[cfg(feature = "prometheus")]
mod metrics;
mod observer;
#[cfg(feature = "otlp")]
mod otlp;
pub(crate) mod span;
#[cfg(feature = "prometheus")]
mod stripe;
mod timestamp;
mod trace_ids;
#[cfg(feature = "prometheus")]
mod unit;

use std::time::Duration;

use balde_core::{Command, Limit, Strategy, Wait};

use crate::decision::{Decision, Reason};

pub use denials::Denials;
pub(crate) use key_hash::KeyHasher;
pub use key_hash::{key_hash, process_key_hash};
pub use log_format::LogFormat;
#[cfg(feature = "logs")]
pub use log_writer::LogWriter;
#[cfg(feature = "logs")]
pub use logs::{Logs, LogsGuard, json_logs, json_logs_at, json_logs_to};
#[cfg(any(feature = "redis", not(feature = "prometheus")))]
pub(crate) use meter::Meter;
#[cfg(feature = "prometheus")]
pub(crate) use metrics::LimiterReading;
#[cfg(all(feature = "prometheus", feature = "redis"))]
pub(crate) use metrics::StoreReading;
#[cfg(all(feature = "prometheus", feature = "tokio"))]
pub(crate) use metrics::WaitCounts;
#[cfg(feature = "prometheus")]
pub use metrics::{
    DurationHistogram, METRICS_CONTENT_TYPE, Metrics, MetricsWriter, prometheus_text,
};
pub(crate) use observer::Observer;
#[cfg(all(feature = "otlp", feature = "http"))]
pub use otlp::continue_trace;
#[cfg(feature = "otlp")]
pub use otlp::{Otlp, OtlpError, OtlpGuard};
#[cfg(feature = "prometheus")]
pub use unit::MetricsUnit;

pub use crate::log_throttle::LogThrottle;

/// Waits until the lines of all denials so far are written ([`Denials::Every`]). Call it before the
/// program ends. Returns whether that took no longer than `within`.
pub fn flush_denials(within: Duration) -> bool {
    log_thread::flush(within)
}

/// Returns how many log lines this process has dropped because standard output did not keep up with
/// its `LogWriter` (feature `logs`).
pub fn dropped_log_lines() -> u64 {
    log_thread::dropped_lines()
}

/// Where a limiter keeps its buckets, as logs and metrics show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageMode {
    Memory,
    #[cfg(feature = "redis")]
    Redis,
}

impl StorageMode {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            #[cfg(feature = "redis")]
            Self::Redis => "redis",
        }
    }
}

/// The strategy as logs show it. Stepwise refill is a token bucket too.
pub(crate) fn strategy(limit: &Limit) -> &'static str {
    match limit.strategy() {
        Strategy::FixedWindow => "fixed_window",
        Strategy::Continuous | Strategy::Stepwise => "token_bucket",
    }
}

/// The decision as logs show it.
pub(crate) fn verdict(decision: &Decision) -> &'static str {
    match (decision.is_fallback(), decision.is_allowed()) {
        (true, _) => "fallback",
        (false, true) => "allow",
        (false, false) => "deny",
    }
}

/// The reason as logs show it.
pub(crate) fn reason(decision: &Decision) -> &'static str {
    if let Some(failure) = decision.failure() {
        return failure.as_str();
    }
    match decision.reason() {
        Reason::Granted => "granted",
        Reason::OverLimit => "over_limit",
        Reason::OverCapacity => "over_capacity",
        Reason::BadKey(_) => "bad_key",
        Reason::StoreUnavailable(failure) => failure.as_str(),
    }
}

/// Whole milliseconds to wait, rounded up so that they suffice; `None` where there is no wait.
pub(crate) fn retry_after_ms(decision: &Decision) -> Option<u64> {
    match decision.wait() {
        Wait::Us(us) => Some(us.div_ceil(1_000)),
        Wait::None | Wait::Never => None,
    }
}

/// The name of a command that is not a check.
pub(crate) fn operation(command: Command) -> &'static str {
    match command {
        Command::Peek => "peek",
        Command::Charge { .. } => "charge",
        Command::Credit { .. } => "credit",
        Command::SetLevel { .. } => "set_level",
        Command::Take { .. } | Command::TakeIf { .. } | Command::TakeUpTo { .. } => "take",
        Command::Hold { .. } => "hold",
        Command::Settle { .. } => "settle",
    }
}
