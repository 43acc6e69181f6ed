//! The parts of the monitor that need neither a clock nor I/O: analysis, alert states, scheduling.

mod alert_stories;
mod alerts;
mod consumption;
mod cron;
mod documents;
mod forecasts;
mod peak;
mod planner;
#[path = "../support/stories.rs"]
#[expect(dead_code, reason = "the benchmark reads more of a story")]
mod stories;
