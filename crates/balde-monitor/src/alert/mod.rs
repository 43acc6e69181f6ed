//! Alerts: a state machine for each bucket, and one for each participant's data.
//!
//! Both are pure functions from a state and an observation to a new state and events. The caller
//! commits the new state and the events in one transaction and delivers the events afterwards. If it
//! crashes before the commit, repeating the evaluation gives the same events with the same keys; if
//! it crashes after the commit, the same observation gives no events again.

mod event;
mod forecast;
mod machine;
mod message;
mod open;
mod operator;
mod route;
mod rule;
mod silence;
mod staleness;
mod state;
mod storage;
mod transition;

pub use event::{Event, EventKind, ForecastResult, MONITOR, ResolveReason, Via};
pub use machine::{evaluate, resolve, resolve_vanished};
pub use message::OutboxMessage;
pub use open::OpenAlert;
pub use operator::{acknowledged, close, close_stale, silence_ended, silenced, unacknowledged};
pub use route::{Routes, SinkClass};
pub use rule::{AlertRule, AlertRules, StalenessRule};
pub use silence::{SILENCE_MAX_US, Silence, SilenceError};
pub use staleness::{SourceAnswer, Staleness, StalenessCheck, check_staleness, close_staleness};
pub use state::{AlertState, Clearing, Forecast};
pub use storage::StorageAlert;
pub(crate) use storage::WITHOUT_STORAGE;
