//! `PostgreSQL`'s partitions of `sample`, one a month.

use sqlx::{AssertSqlSafe, Executor, Row};

use super::database::answered;
use super::month::Month;
use super::postgres::Server;
use super::records::HistoryError;

/// Whoever makes or drops a partition holds this lock until it is done.
const LOCK: i64 = 0x62_61_6c_64_65_01;

/// Makes the partition for a moment, if there is none; whether one was made.
pub(super) async fn make(server: &Server, us: u64) -> Result<bool, HistoryError> {
    match Month::of(us) {
        Some(month) => make_month(server, month).await,
        // What lies beyond has a partition of its own from the beginning.
        None => Ok(false),
    }
}

pub(super) async fn make_month(server: &Server, month: Month) -> Result<bool, HistoryError> {
    let name = month.partition();
    if is_there(server.pool(), &name).await? {
        return Ok(false);
    }
    let Some(next) = month.next() else {
        return Ok(false);
    };
    let mut tx = answered(server.pool().begin()).await?;
    answered(
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(LOCK)
            .execute(&mut *tx),
    )
    .await?;
    if is_there(&mut *tx, &name).await? {
        return Ok(false);
    }
    // Made apart and attached: making it in place would hold up whoever reads.
    let (from_us, until_us) = (month.start_us(), next.start_us());
    for sql in [
        format!("CREATE TABLE {name} (LIKE sample INCLUDING ALL)"),
        format!(
            "ALTER TABLE sample ATTACH PARTITION {name} FOR VALUES FROM ({from_us}) TO ({until_us})"
        ),
    ] {
        answered(sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx)).await?;
    }
    answered(tx.commit()).await?;
    Ok(true)
}

/// Drops the oldest partition that ends before a moment; how many samples that were.
pub(super) async fn drop_oldest(
    server: &Server,
    before_us: u64,
) -> Result<Option<u64>, HistoryError> {
    let Some(month) = months(server).await?.into_iter().next() else {
        return Ok(None);
    };
    let is_over = |next: Month| next.start_us() <= before_us;
    if !month.next().is_some_and(is_over) {
        return Ok(None);
    }
    let name = month.partition();
    let mut tx = answered(server.pool().begin()).await?;
    answered(
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(LOCK)
            .execute(&mut *tx),
    )
    .await?;
    if !is_there(&mut *tx, &name).await? {
        return Ok(None);
    }
    let sql = AssertSqlSafe(format!("SELECT count(*) FROM {name}"));
    let samples = answered(sqlx::query(sql).fetch_one(&mut *tx)).await?;
    let samples: i64 = samples.try_get(0).map_err(HistoryError::from_sql)?;
    // Whoever reads holds it up, and whoever wants to read after that waits: rather try again.
    for sql in [
        "SET LOCAL lock_timeout = '2s'".to_owned(),
        format!("DROP TABLE {name}"),
    ] {
        answered(sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx)).await?;
    }
    answered(tx.commit()).await?;
    Ok(Some(samples.unsigned_abs()))
}

/// The months that have a partition, the oldest first.
async fn months(server: &Server) -> Result<Vec<Month>, HistoryError> {
    let sql = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'sample'::regclass";
    let rows = answered(sqlx::query(sql).fetch_all(server.pool())).await?;
    let names = rows.iter().map(|row| row.try_get::<String, _>(0));
    let names = names
        .collect::<Result<Vec<_>, _>>()
        .map_err(HistoryError::from_sql)?;
    let mut months: Vec<Month> = names
        .iter()
        .filter_map(|name| Month::of_partition(name))
        .collect();
    months.sort();
    Ok(months)
}

async fn is_there<'c>(
    executor: impl Executor<'c, Database = sqlx::Postgres>,
    name: &str,
) -> Result<bool, HistoryError> {
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    let row = answered(sqlx::query(sql).bind(name.to_owned()).fetch_one(executor)).await?;
    row.try_get(0).map_err(HistoryError::from_sql)
}
