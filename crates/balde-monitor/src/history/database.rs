//! One interface to both databases. Every column is a 64-bit integer or a text, so that the same
//! SQL, with `$1` for the first parameter, runs on both. Callers select the few statements that
//! differ.

use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Postgres, Row as _, SqlSafeStr, Sqlite};

use super::error::{HistoryError, with_timeout};
use super::{postgres, sqlite};

/// The most rows of one INSERT statement. More would make it slower to parse and gain nothing.
const ROWS_MAX: usize = 128;

#[derive(Clone)]
pub(super) enum Database {
    Sqlite(sqlite::Pools),
    Postgres(Arc<postgres::Server>),
}

/// A transaction. Dropping it without a commit closes its connection, which rolls it back.
pub(super) enum Tx {
    Sqlite(Leased<Sqlite>),
    Postgres(Leased<Postgres>),
}

/// A pooled connection that is closed when it is dropped, unless it is [given
/// back](Leased::give_back) after its work has succeeded.
///
/// After an error or a cancelled call the state of a connection is not known. `SQLite`, for instance,
/// rolls a transaction back by itself when the disk is full, and `sqlx` then refuses to begin another
/// one on that connection, forever. A connection to a server that does not respond would occupy its
/// place in the pool for as long as TCP waits.
pub(super) struct Leased<D: sqlx::Database>(Option<PoolConnection<D>>);

pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// A parameter of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
}

/// Makes the list of a statement's parameters, in the order of their numbers.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::history::database::Value::from($value)),*]
    };
}
pub(super) use values;

impl Database {
    pub(super) async fn begin(&self) -> Result<Tx, HistoryError> {
        match self {
            // IMMEDIATE takes the write lock at once. A deferred transaction that reads first could
            // fail with SQLITE_BUSY when it starts to write.
            Self::Sqlite(pools) => {
                let mut connection = Leased(Some(with_timeout(pools.writer().acquire()).await?));
                let begin = sqlx::raw_sql("BEGIN IMMEDIATE").execute(connection.get());
                with_timeout(begin).await?;
                Ok(Tx::Sqlite(connection))
            }
            Self::Postgres(server) => {
                let mut connection = Leased(Some(with_timeout(server.pool().acquire()).await?));
                let begin = sqlx::raw_sql("BEGIN").execute(connection.get());
                with_timeout(begin).await?;
                Ok(Tx::Postgres(connection))
            }
        }
    }

    /// Runs a query outside of a transaction.
    pub(super) async fn fetch(
        &self,
        sql: impl SqlSafeStr,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, HistoryError> {
        match self {
            Self::Sqlite(pools) => {
                let mut connection = Leased(Some(with_timeout(pools.readers().acquire()).await?));
                let rows = sqlite_query(sql, values).fetch_all(connection.get());
                let rows = with_timeout(rows).await?;
                connection.give_back();
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(server) => {
                let mut connection = Leased(Some(with_timeout(server.pool().acquire()).await?));
                let rows = postgres_query(sql, values).fetch_all(connection.get());
                let rows = with_timeout(rows).await?;
                connection.give_back();
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Runs one writing statement in a transaction, and returns the number of rows affected.
    pub(super) async fn execute(
        &self,
        sql: impl SqlSafeStr,
        values: Vec<Value>,
    ) -> Result<u64, HistoryError> {
        let mut tx = self.begin().await?;
        let rows = tx.execute(sql, values).await?;
        tx.commit().await?;
        Ok(rows)
    }
}

impl<D: sqlx::Database> Leased<D> {
    fn get(&mut self) -> &mut D::Connection {
        self.0.as_mut().expect("it has not been given back")
    }

    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl<D: sqlx::Database> Drop for Leased<D> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

impl Tx {
    /// Runs a statement and returns the number of rows affected.
    pub(super) async fn execute(
        &mut self,
        sql: impl SqlSafeStr,
        values: Vec<Value>,
    ) -> Result<u64, HistoryError> {
        match self {
            Self::Sqlite(tx) => {
                let done = with_timeout(sqlite_query(sql, values).execute(tx.get())).await?;
                Ok(done.rows_affected())
            }
            Self::Postgres(tx) => {
                let done = with_timeout(postgres_query(sql, values).execute(tx.get())).await?;
                Ok(done.rows_affected())
            }
        }
    }

    pub(super) async fn fetch(
        &mut self,
        sql: impl SqlSafeStr,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, HistoryError> {
        match self {
            Self::Sqlite(tx) => {
                let rows = with_timeout(sqlite_query(sql, values).fetch_all(tx.get())).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(tx) => {
                let rows = with_timeout(postgres_query(sql, values).fetch_all(tx.get())).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Inserts rows in chunks, and returns the rows of a `RETURNING` clause. `into` names table and
    /// columns; `after` follows the values, such as `ON CONFLICT … RETURNING …`.
    pub(super) async fn insert(
        &mut self,
        into: &'static str,
        rows: Vec<Vec<Value>>,
        after: &'static str,
    ) -> Result<Vec<Row>, HistoryError> {
        let mut returned = Vec::new();
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let chunk: Vec<Vec<Value>> = rows.by_ref().take(ROWS_MAX).collect();
            let sql = insert_statement(into, &chunk, after);
            let values = chunk.into_iter().flatten().collect();
            returned.extend(self.fetch(AssertSqlSafe(sql), values).await?);
        }
        Ok(returned)
    }

    pub(super) async fn commit(self) -> Result<(), HistoryError> {
        self.end("COMMIT").await
    }

    /// Rolls back and keeps the connection. Only a transaction without errors needs it: any other
    /// is dropped.
    pub(super) async fn rollback(self) -> Result<(), HistoryError> {
        self.end("ROLLBACK").await
    }

    async fn end(self, sql: &'static str) -> Result<(), HistoryError> {
        match self {
            Self::Sqlite(mut tx) => {
                with_timeout(sqlx::raw_sql(sql).execute(tx.get())).await?;
                tx.give_back();
            }
            Self::Postgres(mut tx) => {
                with_timeout(sqlx::raw_sql(sql).execute(tx.get())).await?;
                tx.give_back();
            }
        }
        Ok(())
    }
}

impl Row {
    pub(super) fn int(&self, column: usize) -> Result<i64, HistoryError> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        value.map_err(HistoryError::from_sql)
    }

    pub(super) fn optional_int(&self, column: usize) -> Result<Option<i64>, HistoryError> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        value.map_err(HistoryError::from_sql)
    }

    pub(super) fn text(&self, column: usize) -> Result<String, HistoryError> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        value.map_err(HistoryError::from_sql)
    }

    pub(super) fn optional_text(&self, column: usize) -> Result<Option<String>, HistoryError> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        value.map_err(HistoryError::from_sql)
    }

    /// Returns a column that is never negative.
    pub(super) fn count(&self, column: usize) -> Result<u64, HistoryError> {
        unsigned(self.int(column)?)
    }

    pub(super) fn optional_count(&self, column: usize) -> Result<Option<u64>, HistoryError> {
        self.optional_int(column)?.map(unsigned).transpose()
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        // Samples are checked to fit. For the bound of a range, the largest number is as good.
        Self::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

impl From<Option<u64>> for Value {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::Int(None), Self::from)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        // PostgreSQL rejects NUL characters in text.
        Self::Text(Some(value.replace('\0', "")))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        value.map_or(Self::Text(None), Self::from)
    }
}

fn unsigned(value: i64) -> Result<u64, HistoryError> {
    u64::try_from(value).map_err(|_| HistoryError::Corrupt {
        reason: format!("{value} in a column that is never negative"),
    })
}

fn insert_statement(into: &str, rows: &[Vec<Value>], after: &str) -> String {
    let mut number = 0;
    let mut tuple = |row: &Vec<Value>| {
        let parameters = row.iter().map(|_| {
            number += 1;
            format!("${number}")
        });
        format!("({})", parameters.collect::<Vec<_>>().join(", "))
    };
    let tuples: Vec<String> = rows.iter().map(&mut tuple).collect();
    format!("INSERT INTO {into} VALUES {} {after}", tuples.join(", "))
}

fn sqlite_query(
    sql: impl SqlSafeStr,
    values: Vec<Value>,
) -> Query<'static, Sqlite, SqliteArguments> {
    values
        .into_iter()
        .fold(sqlx::query(sql), |query, value| match value {
            Value::Int(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
        })
}

fn postgres_query(
    sql: impl SqlSafeStr,
    values: Vec<Value>,
) -> Query<'static, Postgres, PgArguments> {
    values
        .into_iter()
        .fold(sqlx::query(sql), |query, value| match value {
            Value::Int(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
        })
}
