//! Leader election: of the monitors that share a database, one polls and alerts.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgConnection;
use tokio::time::timeout;

use super::database::Database;
use super::error::{HistoryError, with_timeout};
use super::handle::History;

/// How long the server may take to confirm that the connection, and so the lock, still exists.
const RESPONSE_MAX: Duration = Duration::from_secs(5);

/// The id of the leader's advisory lock, less the oid of a table. The oid gives every schema of a
/// database a lock id that differs from the others'.
const LOCK: i64 = 0x62_61_6c << 32;

/// The right to poll and alert. It lasts until this value is dropped or [lost](Leadership::is_held).
#[derive(Debug)]
pub struct Leadership {
    lock: LeaderLock,
}

#[derive(Debug)]
enum LeaderLock {
    /// Only one process can open a `SQLite` file, so the process that has opened it leads.
    File,
    /// An advisory lock, which lasts as long as this connection.
    Session(Box<PgConnection>),
    Lost,
}

impl History {
    /// Becomes the leader, or returns `None` if another monitor leads.
    ///
    /// On `PostgreSQL` a dedicated connection holds an advisory lock, which the server releases when
    /// that connection ends for any reason. On `SQLite` the process that opened the file leads.
    pub async fn lead(&self) -> Result<Option<Leadership>, HistoryError> {
        let lock = match &self.database()? {
            Database::Sqlite(_) => LeaderLock::File,
            Database::Postgres(server) => {
                let mut connection = server.connect().await?;
                let sql =
                    "SELECT pg_try_advisory_lock($1 + 'participant_state'::regclass::oid::bigint)";
                let row = sqlx::query(sql).bind(LOCK).fetch_one(&mut connection);
                let is_leader: bool = with_timeout(row)
                    .await?
                    .try_get(0)
                    .map_err(HistoryError::from_sql)?;
                if !is_leader {
                    return Ok(None);
                }
                LeaderLock::Session(Box::new(connection))
            }
        };
        Ok(Some(Leadership { lock }))
    }
}

impl Leadership {
    /// Checks that this monitor is still the leader, by a query on the connection that holds the
    /// lock.
    ///
    /// If the query fails, the server may have given the lock to another monitor, so the leadership
    /// counts as lost from then on. Call [`History::lead`] to become the leader again.
    pub async fn is_held(&mut self) -> bool {
        let LeaderLock::Session(connection) = &mut self.lock else {
            return matches!(self.lock, LeaderLock::File);
        };
        let response = sqlx::query("SELECT 1").execute(&mut **connection);
        let is_held = matches!(timeout(RESPONSE_MAX, response).await, Ok(Ok(_)));
        if !is_held {
            self.lock = LeaderLock::Lost;
        }
        is_held
    }
}
