//! When to ask next: by the calendar, faster while it matters, and never more often than asking
//! itself may cost.

mod cron;
pub mod embedded;
mod failure;
mod field;
mod leader;
mod planner;
mod poll_schedule;
#[cfg(feature = "temporal")]
pub mod temporal;

pub use cron::{Cron, CronError};
pub use field::Field;
pub use planner::{NextAction, PARTICIPANTS_MAX, Planner, PlannerError, PollBudget};
pub use poll_schedule::{POLICIES_LIST, POLL_INTERVAL_MIN_US, PeakDetection, PollSchedule};
