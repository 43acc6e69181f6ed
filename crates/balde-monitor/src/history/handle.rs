//! The handle to the database: opening, checking and closing it.

use std::fmt;
use std::sync::Arc;

use super::address::Address;
use super::database::{Database, values};
use super::error::HistoryError;
use super::{postgres, sqlite};

/// A handle to the monitor's database. Clones share its connections.
#[derive(Clone)]
pub struct History {
    pub(super) database: Database,
}

impl History {
    /// Opens the database at `address` and migrates its schema.
    ///
    /// `monitor.db` or `sqlite:monitor.db` is a `SQLite` file, created if it does not exist;
    /// `postgres://user:password@host/database` is a `PostgreSQL` database. Only one process can
    /// open a file; any other gets [`InUse`](HistoryError::InUse) until that handle is closed or its
    /// process ends.
    pub async fn open(address: &str) -> Result<Self, HistoryError> {
        let database = match Address::parse(address)? {
            Address::File(path) => {
                let pools = sqlite::Pools::open(path).await;
                Database::Sqlite(pools.map_err(|error| with_path(path, error))?)
            }
            Address::Postgres(url) => {
                Database::Postgres(Arc::new(postgres::Server::open(url).await?))
            }
        };
        Ok(Self { database })
    }

    /// Runs a trivial query, to check that the database responds.
    pub async fn ping(&self) -> Result<(), HistoryError> {
        self.database.fetch("SELECT 1", values![]).await.map(drop)
    }

    /// Closes all connections once the running queries have finished. Later calls, also on clones,
    /// are [`Rejected`](HistoryError::Rejected).
    pub async fn close(&self) {
        match &self.database {
            Database::Sqlite(pools) => pools.close().await,
            Database::Postgres(server) => server.pool().close().await,
        }
    }
}

/// Adds the path to an error that does not name it.
fn with_path(path: &str, error: HistoryError) -> HistoryError {
    match error {
        HistoryError::Rejected { reason } if !reason.contains(path) => HistoryError::Rejected {
            reason: format!("{path}: {reason}; fix the file or its permissions, or name another"),
        },
        error => error,
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match &self.database {
            Database::Sqlite(pools) => format!("sqlite:{}", pools.path().display()),
            Database::Postgres(server) => format!("postgres://{}", server.address()),
        };
        f.debug_tuple("History").field(&address).finish()
    }
}
