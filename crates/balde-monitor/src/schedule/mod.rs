//! When to poll: by a cron expression, more often while a bucket is low, and never beyond the rate
//! limit of polling itself.

mod budget;
mod cron;
mod cron_field;
pub mod embedded;
mod failure;
mod leader;
mod plan;
mod planner;
mod poll_schedule;
#[cfg(feature = "temporal")]
pub mod temporal;
mod temporal_settings;
mod unchanged;

pub use budget::PollBudget;
pub use cron::{Cron, CronError};
pub use cron_field::CronField;
pub use plan::PollPlan;
pub use planner::{NextAction, PARTICIPANTS_MAX, Planner, PlannerError};
pub use poll_schedule::{
    POLICIES_LIST, POLICIES_READ, POLL_INTERVAL_MIN_US, PeakDetection, PollSchedule,
    READ_INTERVAL_MIN_US,
};
pub use temporal_settings::TemporalSettings;
pub use unchanged::UnchangedReads;
