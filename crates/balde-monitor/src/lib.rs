//! Sees a bucket run dry before it does.
//!
//! A monitor asks DICT (or a gateway) how the buckets of its participants stand, remembers it, works
//! out when each will be empty, and tells somebody in time: once, by the right channel, whatever
//! crashes in between.
//!
//! | Module | What it does |
//! |--|--|
//! | [`sample`], [`severity`] | what a bucket was at a time, and how bad that is |
//! | [`analyse`] | how much was consumed between samples, as bounds; how fast; when it runs dry; what changed |
//! | [`alert`] | which alerts that raises, reminds of and resolves, each with a stable key; silences; routes |
//! | [`schedule`] | when to ask next, within what asking may cost; the loop that runs it all |
//! | [`source`] | whom to ask |
//! | [`history`] | samples, roll-ups, state and outbox, in `SQLite` or `PostgreSQL` |
//! | [`cycle`] | ask, store, analyse, publish: the four steps |
//! | [`sink`], [`delivery`] | where alerts go, and who carries them there until they have arrived |
//! | [`http`] | the page, the JSON API, metrics, health |
//! | [`config`] | the file; [`Monitor`] is what it makes |
//!
//! The first four rows are pure, but for the loop: no clock, no I/O, no log. Time is an argument
//! (microseconds since 1970, UTC), tokens are whole numbers, and the same inputs give the same
//! answers, which is what lets a monitor that crashed carry on without losing or doubling an alert.
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
//! let seen = Assessment::of(&history, rule.thresholds(), &AnalysisSettings::default()).unwrap();
//!
//! // Thirty went in a minute, or forty with what came back meanwhile.
//! let burn = &seen.burn_rates()[0];
//! assert_eq!((burn.at_least(), burn.at_most()), (30, 50));
//! assert_eq!(burn.expected(), 40);
//! let empty = seen.time_to_empty().unwrap();
//! assert_eq!(empty.expected_us(), Some(40_000_000));
//!
//! // Still 40 % left, and yet somebody is told.
//! assert_eq!(seen.severity(), Severity::Normal);
//! let alert = AlertState::new(bucket, 0);
//! let (_alarm, events) = alert::evaluate(&alert, Some(&seen), MINUTE_US, &rule, &[]);
//! assert!(matches!(events[0].kind, EventKind::Predicted { .. }));
//! # Ok::<(), balde_monitor::sample::SampleError>(())
//! ```
#![deny(clippy::float_arithmetic)]

pub mod alert;
pub mod analyse;
pub mod config;
pub mod cycle;
pub mod delivery;
pub mod history;
pub mod http;
mod http_client;
mod monitor;
pub mod sample;
pub mod schedule;
pub mod severity;
pub mod sink;
pub mod source;
pub mod status;
mod time_source;

pub use config::Config;
pub use monitor::{BuildError, Monitor, RunError};
pub use time_source::TimeSource;
