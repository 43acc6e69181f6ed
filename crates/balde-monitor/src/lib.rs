//! Monitors rate-limit buckets and sends an alert before one is empty.
//!
//! A monitor polls DICT (or a gateway) for the bucket states of its participants, stores them,
//! forecasts when each bucket will be empty, and delivers alerts. Every alert is delivered exactly
//! once to each sink that detects duplicates by its key, even if the monitor crashes in between.
//!
//! | Module | What it does |
//! |--|--|
//! | [`sample`], [`severity`] | the state of a bucket at one time, and how severe it is |
//! | [`analyse`] | consumption between samples as bounds, burn rates, forecasts, changes |
//! | [`alert`] | alert rules, alert states, reminders, silences, routes; every event has a stable key |
//! | [`schedule`] | when to poll next within a budget; the embedded and the Temporal scheduler |
//! | [`coverage`] | what the schedule can miss of a bucket |
//! | [`source`] | DICT or a gateway, from which bucket states are fetched |
//! | [`history`] | samples, roll-ups, alert states and the outbox, in `SQLite` or `PostgreSQL` |
//! | [`cycle`] | the four steps of a cycle: fetch, store, analyse, publish |
//! | [`sink`], [`delivery`] | the receivers of alerts, and the dispatchers that deliver with retries |
//! | [`http`] | the web page, the JSON API, metrics and health checks |
//! | [`config`] | the configuration file, from which a [`Monitor`] is built |
//!
//! `sample`, `severity`, `analyse`, `alert` and the planner in `schedule` are pure: no clock, no I/O,
//! no logging. Time is an argument (microseconds since 1970, UTC), tokens are integers, and equal
//! inputs give equal results. That is why a monitor can repeat a step after a crash without losing or
//! duplicating an alert.
//!
//! ```
//! use balde_monitor::alert::{self, AlertState, EventKind, AlertRule};
//! use balde_monitor::analyse::{Assessment, AnalysisSettings};
//! use balde_monitor::sample::{BucketId, Sample, ReportedLimit};
//! use balde_monitor::severity::Severity;
//!
//! const MINUTE_US: u64 = 60_000_000;
//! let bucket = BucketId::new("12345678", "CLAIMS_LIST_WITHOUT_ROLE")?;
//! let limit = ReportedLimit::per_seconds(50, 10, 60)?;
//! let history = [
//!     Sample::new(bucket.clone(), limit, 50, 0)?,
//!     Sample::new(bucket.clone(), limit, 20, MINUTE_US)?,
//! ];
//! let rule = AlertRule::default();
//! let assessment = Assessment::of(&history, rule.thresholds(), &AnalysisSettings::default()).unwrap();
//!
//! // The level fell by 30 in a minute, in which about 10 tokens were refilled.
//! let burn = assessment.burn_rates()[0];
//! assert_eq!((burn.at_least(), burn.at_most()), (30, 50));
//! assert_eq!(burn.expected(), 40);
//! let empty = assessment.time_to_empty().unwrap();
//! assert_eq!(empty.expected_us(), Some(40_000_000));
//!
//! // 40 % of the tokens are left, which is NORMAL. A minute later 10 % are.
//! assert_eq!(assessment.severity(), Severity::Normal);
//! let low = [Sample::new(bucket.clone(), limit, 5, 2 * MINUTE_US)?];
//! let low = Assessment::of(&low, rule.thresholds(), &AnalysisSettings::default()).unwrap();
//! let alert = AlertState::new(bucket, 0);
//! let (_alert, events) = alert::evaluate(&alert, Some(&low), 2 * MINUTE_US, &rule, &[]);
//! let raised = EventKind::Raised { from: Severity::Normal, to: Severity::Critical };
//! assert_eq!(events[0].kind, raised);
//! # Ok::<(), balde_monitor::sample::SampleError>(())
//! ```
#![deny(clippy::float_arithmetic)]

pub mod alert;
pub mod analyse;
pub mod config;
pub mod coverage;
pub mod cycle;
pub mod delivery;
mod gateway_reports;
pub mod history;
pub mod http;
mod http_client;
mod monitor;
pub mod sample;
pub mod schedule;
pub mod severity;
pub mod sink;
mod sink_test;
pub mod source;
mod source_check;
pub mod status;
mod storage_check;
mod time_source;

pub use config::Config;
pub use monitor::{BuildError, Monitor, RunError};
pub use sink_test::{SinkTest, SinkTestError, test_sink};
pub use source_check::{SourceCheck, SourceCheckError, SourceSummary, check_sources};
pub use storage_check::StorageTiming;
pub use time_source::TimeSource;
