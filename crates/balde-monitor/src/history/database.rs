//! One way to talk to either database. Every column is a 64-bit integer or a text, so that the
//! same statements, with `$1` for the first value, run on both; the few that cannot are told apart
//! where they are.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Postgres, Row as _, SqlSafeStr, Sqlite, Transaction};

use super::records::HistoryError;
use super::{postgres, sqlite};

/// The longest that a statement may take before the connection counts as lost. The server gives up
/// on it sooner by itself, if it still listens.
const ANSWER_MAX: Duration = Duration::from_secs(40);

/// Rows in one statement of many: more would gain nothing and cost the parser.
const ROWS_MAX: usize = 128;

#[derive(Clone)]
pub(super) enum Database {
    Sqlite(sqlite::Pools),
    Postgres(Arc<postgres::Server>),
}

/// Statements that are kept together or not at all.
pub(super) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// What a statement is given.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
}

/// The values of a statement, in the order of their numbers.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::history::database::Value::from($value)),*]
    };
}
pub(super) use values;

impl Database {
    pub(super) async fn begin(&self) -> Result<Tx, HistoryError> {
        match self {
            // WriteAccess queue for one connection, and each says at once that it will write: one that
            // reads first and writes later could be refused halfway.
            Self::Sqlite(pools) => {
                let tx = pools.writer().begin_with("BEGIN IMMEDIATE");
                Ok(Tx::Sqlite(answered(tx).await?))
            }
            Self::Postgres(server) => Ok(Tx::Postgres(answered(server.pool().begin()).await?)),
        }
    }

    /// Reads outside of a transaction.
    pub(super) async fn fetch(
        &self,
        sql: impl SqlSafeStr,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, HistoryError> {
        match self {
            Self::Sqlite(pools) => {
                let rows = on_sqlite(sql, values).fetch_all(pools.readers());
                let rows = answered(rows).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(server) => {
                let rows = on_postgres(sql, values).fetch_all(server.pool());
                let rows = answered(rows).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// One statement that writes.
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

impl Tx {
    /// The rows touched.
    pub(super) async fn execute(
        &mut self,
        sql: impl SqlSafeStr,
        values: Vec<Value>,
    ) -> Result<u64, HistoryError> {
        match self {
            Self::Sqlite(tx) => {
                let done = answered(on_sqlite(sql, values).execute(&mut **tx)).await?;
                Ok(done.rows_affected())
            }
            Self::Postgres(tx) => {
                let done = answered(on_postgres(sql, values).execute(&mut **tx)).await?;
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
                let rows = answered(on_sqlite(sql, values).fetch_all(&mut **tx)).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(tx) => {
                let rows = answered(on_postgres(sql, values).fetch_all(&mut **tx)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Inserts many rows in few statements and gives back what `after`, which may end in
    /// `RETURNING …`, returns of them. All three texts are parts of a statement.
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
        match self {
            Self::Sqlite(tx) => answered(tx.commit()).await,
            Self::Postgres(tx) => answered(tx.commit()).await,
        }
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

    pub(super) fn int_if_any(&self, column: usize) -> Result<Option<i64>, HistoryError> {
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

    pub(super) fn text_if_any(&self, column: usize) -> Result<Option<String>, HistoryError> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        value.map_err(HistoryError::from_sql)
    }

    /// A number that is never negative.
    pub(super) fn count(&self, column: usize) -> Result<u64, HistoryError> {
        unsigned(self.int(column)?)
    }

    pub(super) fn count_if_any(&self, column: usize) -> Result<Option<u64>, HistoryError> {
        self.int_if_any(column)?.map(unsigned).transpose()
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        // Samples are checked to fit. A bound or a moment beyond that is as good as the last one.
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
        // PostgreSQL keeps no NUL in a text.
        Self::Text(Some(value.replace('\0', "")))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        value.map_or(Self::Text(None), Self::from)
    }
}

fn unsigned(value: i64) -> Result<u64, HistoryError> {
    u64::try_from(value).map_err(|_| HistoryError::Strange {
        why: format!("{value} where nothing is negative"),
    })
}

fn insert_statement(into: &str, rows: &[Vec<Value>], after: &str) -> String {
    let mut number = 0;
    let mut tuple = |row: &Vec<Value>| {
        let places = row.iter().map(|_| {
            number += 1;
            format!("${number}")
        });
        format!("({})", places.collect::<Vec<_>>().join(", "))
    };
    let tuples: Vec<String> = rows.iter().map(&mut tuple).collect();
    format!("INSERT INTO {into} VALUES {} {after}", tuples.join(", "))
}

fn on_sqlite(sql: impl SqlSafeStr, values: Vec<Value>) -> Query<'static, Sqlite, SqliteArguments> {
    values
        .into_iter()
        .fold(sqlx::query(sql), |query, value| match value {
            Value::Int(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
        })
}

fn on_postgres(sql: impl SqlSafeStr, values: Vec<Value>) -> Query<'static, Postgres, PgArguments> {
    values
        .into_iter()
        .fold(sqlx::query(sql), |query, value| match value {
            Value::Int(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
        })
}

/// What a database says, or that it says nothing.
pub(super) async fn answered<T>(
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, HistoryError> {
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(answer) => answer.map_err(HistoryError::from_sql),
        Err(_) => Err(HistoryError::Away {
            why: format!("no answer within {} s", ANSWER_MAX.as_secs()),
        }),
    }
}
