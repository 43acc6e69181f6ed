//! When to ask next: by the calendar, faster while it matters, and never more often than asking
//! itself may cost.

mod cron;
pub mod embedded;
mod field;
mod leader;
mod pace;
mod planner;
#[cfg(feature = "temporal")]
pub mod temporal;
mod trouble;

pub use cron::{Cron, CronError};
pub use field::Field;
pub use pace::{PACE_MIN_US, POLICIES_LIST, Pace, Peaks};
pub use planner::{Budget, Next, PARTICIPANTS_MAX, Planner, PlannerError};
