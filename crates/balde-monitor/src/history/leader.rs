//! One leader per database.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgConnection;
use tokio::time::timeout;

use super::History;
use super::database::{Database, answered};
use super::records::HistoryError;

/// How long the server may take to say that the leader still is one.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What the leader's lock is called in `PostgreSQL`: this and the number of a table, so that
/// monitors in other schemas of the same database have one of their own.
const LOCK: i64 = 0x62_61_6c << 32;

/// The right to poll and alert, for as long as this lives and [is held](Leadership::is_held).
#[derive(Debug)]
pub struct Leadership {
    holding: Holding,
}

#[derive(Debug)]
enum Holding {
    /// The file has one owner anyway.
    File,
    /// A lock that lasts as long as the connection.
    Session(Box<PgConnection>),
    Lost,
}

impl History {
    /// Becomes the leader, if nobody else is. A `PostgreSQL` database has one at a time: a connection
    /// holds a lock there, and the lock ends with the connection, however that ends. Whoever has
    /// the file of a `SQLite` history is its leader.
    pub async fn lead(&self) -> Result<Option<Leadership>, HistoryError> {
        let holding = match &self.database {
            Database::Sqlite(_) => Holding::File,
            Database::Postgres(server) => {
                let mut connection = server.connect().await?;
                let sql = "SELECT pg_try_advisory_lock($1 + 'participant_state'::regclass::oid::bigint)";
                let row = sqlx::query(sql).bind(LOCK).fetch_one(&mut connection);
                let is_leader: bool = answered(row)
                    .await?
                    .try_get(0)
                    .map_err(HistoryError::from_sql)?;
                if !is_leader {
                    return Ok(None);
                }
                Holding::Session(Box::new(connection))
            }
        };
        Ok(Some(Leadership { holding }))
    }
}

impl Leadership {
    /// Whether it still is. Asks on the connection that holds the lock: whoever cannot reach the
    /// server does not know what happened there, and is no leader any more. Once lost it stays
    /// lost; [`lead`](History::lead) again.
    pub async fn is_held(&mut self) -> bool {
        let Holding::Session(connection) = &mut self.holding else {
            return matches!(self.holding, Holding::File);
        };
        let answer = sqlx::query("SELECT 1").execute(&mut **connection);
        let is_held = matches!(timeout(ANSWER_MAX, answer).await, Ok(Ok(_)));
        if !is_held {
            self.holding = Holding::Lost;
        }
        is_held
    }
}
