//! The handle to the database: opening, checking and closing it.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use super::address::Address;
use super::database::{Database, values};
use super::error::HistoryError;
use super::health::Health;
use super::{migrations, postgres, sqlite};

/// A handle to the monitor's database. Clones share its connections.
#[derive(Clone)]
pub struct History {
    inner: Arc<Inner>,
}

struct Inner {
    address: String,
    database: RwLock<Option<Database>>,
    health: Health,
}

impl History {
    /// Opens the database at `address` and migrates its schema.
    ///
    /// `monitor.db` or `sqlite:monitor.db` is a `SQLite` file, created if it does not exist;
    /// `postgres://user:password@host/database` is a `PostgreSQL` database. Only one process can
    /// open a file; any other gets [`InUse`](HistoryError::InUse) until that handle is closed or its
    /// process ends.
    pub async fn open(address: &str) -> Result<Self, HistoryError> {
        let history = Self::closed(address)?;
        history.reopen().await?;
        Ok(history)
    }

    /// Returns a handle that is not open yet: every call fails as
    /// [`Unavailable`](HistoryError::Unavailable) until [`reopen`](History::reopen) succeeds.
    pub fn closed(address: &str) -> Result<Self, HistoryError> {
        Address::parse(address)?;
        Ok(Self {
            inner: Arc::new(Inner {
                address: address.to_owned(),
                database: RwLock::new(None),
                health: Health::new(),
            }),
        })
    }

    /// Opens the database, or opens it again after a fault, and migrates its schema. A file is opened
    /// by its path, so a file that was replaced is found. If this fails, the connections that were
    /// open before stay in use: a full disk can still be read.
    pub async fn reopen(&self) -> Result<(), HistoryError> {
        let current = self.inner.database.read().clone();
        let database = match (Address::parse(&self.inner.address)?, current) {
            (Address::File(path), current) => {
                let held = match &current {
                    Some(Database::Sqlite(pools)) => Some(pools),
                    _ => None,
                };
                let pools = sqlite::Pools::open(path, held).await;
                let pools = pools.map_err(|error| with_path(path, error))?;
                if let Some(Database::Sqlite(old)) = current {
                    // Queries on the old connections are finished, and nobody has to wait for that.
                    tokio::spawn(async move { old.close_connections().await });
                }
                Database::Sqlite(pools)
            }
            (Address::Postgres(_), Some(Database::Postgres(server))) => {
                return server.migrate(&migrations::postgres()).await;
            }
            (Address::Postgres(url), _) => {
                Database::Postgres(Arc::new(postgres::Server::open(url).await?))
            }
        };
        *self.inner.database.write() = Some(database);
        Ok(())
    }

    /// Returns true once the database has been opened.
    pub fn is_open(&self) -> bool {
        self.inner.database.read().is_some()
    }

    /// Whether the database accepts writes, as last seen.
    pub fn health(&self) -> &Health {
        &self.inner.health
    }

    /// Runs a trivial query, to check that the database responds.
    pub async fn ping(&self) -> Result<(), HistoryError> {
        let database = self.database()?;
        database.fetch("SELECT 1", values![]).await.map(drop)
    }

    /// Commits a small change, to check that the database accepts writes.
    pub async fn probe(&self, now_us: u64) -> Result<(), HistoryError> {
        let sql = "INSERT INTO write_probe (id, at_us) VALUES (1, $1)
             ON CONFLICT (id) DO UPDATE SET at_us = excluded.at_us";
        let database = self.database()?;
        database.execute(sql, values![now_us]).await.map(drop)
    }

    /// Closes all connections once the running queries have finished. Later calls, also on clones,
    /// are [`Rejected`](HistoryError::Rejected).
    pub async fn close(&self) {
        match self.database() {
            Ok(Database::Sqlite(pools)) => pools.close().await,
            Ok(Database::Postgres(server)) => server.pool().close().await,
            Err(_) => {}
        }
    }

    pub(super) fn database(&self) -> Result<Database, HistoryError> {
        let database = self.inner.database.read().clone();
        database.ok_or_else(|| HistoryError::Unavailable {
            reason: "it has not been opened yet".to_owned(),
        })
    }
}

/// Adds the path to an error that does not name it.
fn with_path(path: &str, error: HistoryError) -> HistoryError {
    match error {
        HistoryError::Rejected { reason } if !reason.contains(path) => HistoryError::Rejected {
            reason: format!("{path}: {reason}; fix the file or its permissions, or name another"),
        },
        HistoryError::Corrupt { reason } => HistoryError::Corrupt {
            reason: format!("{path}: {reason}; restore it from a backup, or name another file"),
        },
        HistoryError::Unavailable { reason } if !reason.contains(path) => {
            HistoryError::Unavailable {
                reason: format!("{path}: {reason}"),
            }
        }
        error => error,
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match self.database() {
            Ok(Database::Sqlite(pools)) => format!("sqlite:{}", pools.path().display()),
            Ok(Database::Postgres(server)) => format!("postgres://{}", server.address()),
            Err(_) => "not open".to_owned(),
        };
        f.debug_tuple("History").field(&address).finish()
    }
}
