//! Sees a bucket run dry before it does.
//!
//! All but [`history`], [`sink`] and [`delivery`] is pure: nothing there reads a clock, opens a file
//! or a connection, awaits or logs. Time is an argument (microseconds since 1970, UTC), tokens are
//! whole numbers, and the same inputs give the same answers, which is what lets a monitor that
//! crashed carry on without losing or doubling an alert.
//!
//! | Module | What it answers |
//! |--|--|
//! | [`sample`] | what a bucket was at a time; a sample that exists is valid, debts included |
//! | [`analyse`] | how much was consumed between samples, as bounds; how fast; when it runs dry; what changed |
//! | [`alert`] | which alerts that raises, reminds of and resolves, each with a stable key; silences; routes |
//! | [`schedule`] | when to ask next: cron, faster while it matters, within the budget of asking |
//! | [`history`] | what was seen and told, in a database, with the outbox of what is to be delivered |
//! | [`sink`] | how one alert gets to a log, a webhook, Slack, `PagerDuty`, an incident or a topic |
//! | [`delivery`] | when to try, in which order, and until when: until it has arrived |
//!
//! ```
//! use balde_monitor::alert::{self, Alarm, Kind, Rule};
//! use balde_monitor::analyse::{Assessment, Settings};
//! use balde_monitor::sample::{BucketId, Sample, Terms};
//! use balde_monitor::severity::Severity;
//!
//! const MINUTE_US: u64 = 60_000_000;
//! let bucket = BucketId::new("12345678", "CLAIMS_LIST_WITHOUT_ROLE")?;
//! let terms = Terms::per_seconds(50, 10, 60)?;
//! let history = [
//!     Sample::new(bucket.clone(), terms, 50, 0)?,
//!     Sample::new(bucket.clone(), terms, 20, MINUTE_US)?,
//! ];
//! let rule = Rule::default();
//! let seen = Assessment::of(&history, rule.thresholds(), &Settings::default()).unwrap();
//!
//! // Thirty went in a minute, or forty with what came back meanwhile.
//! let burn = &seen.burns()[0];
//! assert_eq!((burn.at_least(), burn.at_most()), (30, 50));
//! assert_eq!(burn.expected(), 40);
//! let empty = seen.to_empty().unwrap();
//! assert_eq!(empty.expected_us(), Some(40_000_000));
//!
//! // Still 40 % left, and yet somebody is told.
//! assert_eq!(seen.severity(), Severity::Normal);
//! let alarm = Alarm::new(bucket, 0);
//! let (_alarm, events) = alert::step(&alarm, Some(&seen), MINUTE_US, &rule, &[]);
//! assert!(matches!(events[0].kind, Kind::Predicted { .. }));
//! # Ok::<(), balde_monitor::sample::SampleError>(())
//! ```
//!
//! **Not here yet:** polling DICT or a gateway, metrics, the running schedule (embedded leader or
//! Temporal), the HTTP pages and `balde monitor`.
#![deny(clippy::float_arithmetic)]

pub mod alert;
pub mod analyse;
pub mod delivery;
pub mod history;
pub mod sample;
pub mod schedule;
pub mod severity;
pub mod sink;
