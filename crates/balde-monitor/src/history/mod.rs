//! The monitor's database: samples, alert states, events, incidents, silences and the outbox.
//!
//! It is a `SQLite` file, which one process opens at a time, or a `PostgreSQL` database, which
//! several monitors share while one of them [leads](History::lead). Both have the same tables and
//! pass the same test suite.
//!
//! ```
//! use balde_monitor::history::{History, Resolution};
//! use balde_monitor::sample::{BucketId, Poll, Sample, ReportedLimit};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("monitor.db");
//! let history = History::open(file.to_str().unwrap()).await?;
//!
//! let bucket = BucketId::new("12345678", "ENTRIES_WRITE")?;
//! let limit = ReportedLimit::per_seconds(36_000, 1_200, 60)?;
//! let sample = Sample::new(bucket.clone(), limit, 35_000, 1_000_000)?;
//! let poll = Poll::new(vec![sample])?;
//! assert!(history.store(&poll).await?);
//! // Storing the same poll again changes nothing.
//! assert!(!history.store(&poll).await?);
//!
//! let series = history.series(&bucket, 0, 2_000_000, 1_000).await?;
//! assert_eq!(series.resolution, Resolution::Samples);
//! assert_eq!(series.points[0].level, 35_000);
//! history.close().await;
//! # Ok(())
//! # }
//! ```

mod address;
mod database;
mod encoding;
mod error;
mod events;
mod handle;
mod health;
mod incidents;
mod leader;
mod maintenance;
mod migrations;
mod month;
mod outbox;
mod partitions;
mod postgres;
mod records;
mod roll_up;
mod samples;
mod series;
mod silences;
mod sqlite;
mod states;
mod store;

pub use error::HistoryError;
pub use events::EVENTS_MAX;
pub use handle::History;
pub use health::{Failure, Health};
pub use incidents::{INCIDENTS_MAX, TIMELINE_MAX};
pub use leader::Leadership;
pub use outbox::{ERROR_CHARS_MAX, MESSAGES_MAX};
pub use records::{
    AlertCount, Backlog, EventFilter, Gap, Incident, Maintenance, ParticipantState, Point,
    Resolution, Retention, RoutedEvent, Series, StateUpdate,
};
pub use series::{GAP_US, POINTS_MAX};
pub use silences::{SILENCES_MAX, SilenceChange};
