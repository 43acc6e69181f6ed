//! The parts of the monitor that need neither a clock nor I/O: analysis, alert states, scheduling.

mod alert_stories;
mod alerts;
mod consumption;
mod cron;
mod documents;
mod peak;
mod planner;
