//! From what is seen to what is told: per bucket a state machine, per participant a watch over the
//! data itself.
//!
//! Both are pure: state and observation in, new state and events out. Whoever runs them commits
//! the new state and the events together, and only then delivers. Then a crash at any line either
//! lost both, and the same step gives the same events with the same keys, or kept both, and the
//! same observation gives no event again.

mod machine;
mod event;
mod forecast;
mod route;
mod rule;
mod silence;
mod staleness;

pub use machine::{AlertState, Clearing, evaluate, resolve_vanished};
pub use event::{Event, EventKind, ForecastResult, ResolveReason};
pub use forecast::Forecast;
pub use route::{Routes, SinkClass};
pub use rule::{AlertRule, AlertRules, StalenessRule};
pub use silence::{SILENCE_MAX_US, Silence, SilenceError};
pub use staleness::{Staleness, StalenessCheck, check_staleness};
