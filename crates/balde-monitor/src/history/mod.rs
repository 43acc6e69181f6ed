//! What the monitor remembers: samples, the state of its machines, what it told and what is still
//! to be delivered.
//!
//! Kept in a `SQLite` file, which one process owns, or in a `PostgreSQL` database, which several
//! monitors may share while one of them [leads](History::lead). Both hold the same tables and pass
//! the same suite.
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
//! // The same answer again is no news.
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
mod events;
mod incidents;
mod leader;
mod states;
mod migrations;
mod month;
mod outbox;
mod partitions;
mod postgres;
mod records;
mod refusal;
mod samples;
mod series;
mod silences;
mod sqlite;
mod store;
mod maintenance;

use std::fmt;
use std::sync::Arc;

use self::address::Address;
use self::database::{Database, values};

pub use events::EVENTS_MAX;
pub use incidents::{INCIDENTS_MAX, TIMELINE_MAX};
pub use leader::Leadership;
pub use outbox::{ERROR_MAX, MESSAGES_MAX};
pub use records::{
    Backlog, AlertCount, EventFilter, Gap, HistoryError, Incident, OutboxMessage, ParticipantState, Point, Resolution,
    Retention, Series, StateUpdate, RoutedEvent, Maintenance,
};
pub use series::{GAP_US, POINTS_MAX};
pub use silences::SILENCES_MAX;

/// A handle to the database; clones share it.
#[derive(Clone)]
pub struct History {
    database: Database,
}

impl History {
    /// Opens the history at `address` and brings its tables up to date: `monitor.db` or
    /// `sqlite:monitor.db` for a file, which is made if it is not there, and
    /// `postgres://user:password@host/database` for a server.
    ///
    /// A file has one owner, whoever opened it first; for anybody else it is
    /// [`Owned`](HistoryError::InUse) until that handle is closed or its process ends.
    pub async fn open(address: &str) -> Result<Self, HistoryError> {
        let database = match Address::parse(address)? {
            Address::File(path) => {
                let place = path.to_owned();
                let pools = sqlite::Pools::open(path).await;
                Database::Sqlite(pools.map_err(|error| with_place(&place, error))?)
            }
            Address::Postgres(url) => {
                Database::Postgres(Arc::new(postgres::Server::open(url).await?))
            }
        };
        Ok(Self { database })
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), HistoryError> {
        self.database.fetch("SELECT 1", values![]).await.map(drop)
    }

    /// Ends all connections, after what is being asked. Whoever asks later is refused.
    pub async fn close(&self) {
        match &self.database {
            Database::Sqlite(pools) => pools.close().await,
            Database::Postgres(server) => server.pool().close().await,
        }
    }
}

/// A refusal that says which file it is about.
fn with_place(place: &str, error: HistoryError) -> HistoryError {
    match error {
        HistoryError::Rejected { why } if !why.contains(place) => HistoryError::Rejected {
            why: format!("{place}: {why}; mend the file or its permissions, or name another"),
        },
        error => error,
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.database {
            Database::Sqlite(pools) => format!("sqlite:{}", pools.path().display()),
            Database::Postgres(server) => format!("postgres://{}", server.place()),
        };
        f.debug_tuple("History").field(&place).finish()
    }
}
