//! What a limiter tells the outside: metrics, lines in a log, spans.
//!
//! Nothing here changes a decision, and no key, address, password or salt gets out: keys appear as
//! SHA-256 under a salt ([`RateLimiterBuilder::log_salt`](crate::RateLimiterBuilder::log_salt)), in logs and spans only.
//!
//! | Name | Feature | What it is |
//! |--|--|--|
//! | `Metrics` | `prometheus` | counts of many limiters, for Prometheus to scrape |
//! | `json_logs`, `json_logs_to`, `json_logs_at` | `logs` | one JSON object per line |
//! | `Otlp`, `OtlpGuard` | `otlp` | spans to a collector |
//! | `continue_trace` | `otlp`, `http` | a trace that began elsewhere |
//!
//! Lines and spans go through the `tracing` crate whatever the features, under the target `balde`:
//! lines at INFO and above, spans at DEBUG. Where nobody listens they cost a load and a branch.

mod joint_watch;
#[cfg(feature = "logs")]
mod json_logs;
mod key_hash;
#[cfg_attr(not(feature = "prometheus"), path = "no_meter.rs")]
mod meter;
#[cfg(feature = "prometheus")]
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
pub(crate) mod span;
mod watch;

use balde_core::{Command, Limit, Strategy, Wait};

use crate::decision::{Decision, Reason};

pub(crate) use joint_watch::JointWatch;
#[cfg(feature = "logs")]
pub use json_logs::{json_logs, json_logs_at, json_logs_to};
pub(crate) use key_hash::{KeyHash, KeyHasher};
#[cfg(feature = "redis")]
pub(crate) use meter::Meter;
#[cfg(feature = "prometheus")]
pub use metrics::{
    DurationHistogram, METRICS_CONTENT_TYPE, Metrics, MetricsWriter, POLICIES_MAX,
    POLICY_NAME_BYTES_MAX, metrics_text,
};
#[cfg(all(feature = "otlp", feature = "http"))]
pub use otlp::continue_trace;
#[cfg(feature = "otlp")]
pub use otlp::{Otlp, OtlpError, OtlpGuard};
pub(crate) use watch::Watch;

/// Where a limiter's buckets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Memory,
    #[cfg(feature = "redis")]
    Redis,
}

impl Mode {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            #[cfg(feature = "redis")]
            Self::Redis => "redis",
        }
    }
}

/// The strategy in a word: stepwise or not, a bucket is a bucket.
pub(crate) fn strategy(limit: &Limit) -> &'static str {
    match limit.strategy() {
        Strategy::FixedWindow => "fixed_window",
        Strategy::Continuous | Strategy::Stepwise => "token_bucket",
    }
}

/// What was decided, in a word.
pub(crate) fn verdict(decision: &Decision) -> &'static str {
    match (decision.is_fallback(), decision.is_allowed()) {
        (true, _) => "fallback",
        (false, true) => "allow",
        (false, false) => "deny",
    }
}

/// Why, in a word.
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

/// Whole milliseconds to wait, rounded up so that they suffice; nothing where there is no wait.
pub(crate) fn retry_after_ms(decision: &Decision) -> Option<u64> {
    match decision.wait() {
        Wait::Us(us) => Some(us.div_ceil(1_000)),
        Wait::None | Wait::Never => None,
    }
}

/// What a command that is no decision is called.
pub(crate) fn operation(command: Command) -> &'static str {
    match command {
        Command::Peek => "peek",
        Command::Charge { .. } => "charge",
        Command::Credit { .. } => "credit",
        Command::SetLevel { .. } => "set_level",
        Command::Take { .. } | Command::TakeUpTo { .. } => "take",
    }
}
