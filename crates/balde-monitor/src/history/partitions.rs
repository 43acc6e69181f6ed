//! The monthly partitions of `sample` on `PostgreSQL`.

use sqlx::{AssertSqlSafe, Executor, Row};

use super::error::{HistoryError, with_timeout};
use super::month::Month;
use super::postgres::Server;

/// The advisory lock that a transaction holds while it creates or drops a partition.
const LOCK: i64 = 0x62_61_6c_64_65_01;

/// Creates the partition for a time if it does not exist. Returns true if it was created.
pub(super) async fn create(server: &Server, us: u64) -> Result<bool, HistoryError> {
    match Month::of(us) {
        Some(month) => create_month(server, month).await,
        // `sample_far` exists from the first migration on.
        None => Ok(false),
    }
}

pub(super) async fn create_month(server: &Server, month: Month) -> Result<bool, HistoryError> {
    let name = month.partition();
    if exists(server.pool(), &name).await? {
        return Ok(false);
    }
    let Some(next) = month.next() else {
        return Ok(false);
    };
    let mut tx = with_timeout(server.pool().begin()).await?;
    with_timeout(
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(LOCK)
            .execute(&mut *tx),
    )
    .await?;
    if exists(&mut *tx, &name).await? {
        return Ok(false);
    }
    // ATTACH takes a weaker lock on `sample` than CREATE … PARTITION OF, so readers are not blocked.
    let (from_us, until_us) = (month.start_us(), next.start_us());
    for sql in [
        format!("CREATE TABLE {name} (LIKE sample INCLUDING ALL)"),
        format!(
            "ALTER TABLE sample ATTACH PARTITION {name} FOR VALUES FROM ({from_us}) TO ({until_us})"
        ),
    ] {
        with_timeout(sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx)).await?;
    }
    with_timeout(tx.commit()).await?;
    Ok(true)
}

/// Drops the oldest partition if it ends before `before_us`. Returns the number of its samples.
pub(super) async fn drop_oldest(
    server: &Server,
    before_us: u64,
) -> Result<Option<u64>, HistoryError> {
    let Some(month) = months(server).await?.into_iter().next() else {
        return Ok(None);
    };
    let has_ended = |next: Month| next.start_us() <= before_us;
    if !month.next().is_some_and(has_ended) {
        return Ok(None);
    }
    let name = month.partition();
    let mut tx = with_timeout(server.pool().begin()).await?;
    with_timeout(
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(LOCK)
            .execute(&mut *tx),
    )
    .await?;
    if !exists(&mut *tx, &name).await? {
        return Ok(None);
    }
    let sql = AssertSqlSafe(format!("SELECT count(*) FROM {name}"));
    let samples = with_timeout(sqlx::query(sql).fetch_one(&mut *tx)).await?;
    let samples: i64 = samples.try_get(0).map_err(HistoryError::from_sql)?;
    // DROP waits for running queries, and new queries queue behind it. A short lock timeout keeps
    // them from waiting long; the next round of maintenance tries again.
    for sql in [
        "SET LOCAL lock_timeout = '2s'".to_owned(),
        format!("DROP TABLE {name}"),
    ] {
        with_timeout(sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx)).await?;
    }
    with_timeout(tx.commit()).await?;
    Ok(Some(samples.unsigned_abs()))
}

/// Returns the months that have a partition, the oldest first.
async fn months(server: &Server) -> Result<Vec<Month>, HistoryError> {
    let sql = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'sample'::regclass";
    let rows = with_timeout(sqlx::query(sql).fetch_all(server.pool())).await?;
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

async fn exists<'c>(
    executor: impl Executor<'c, Database = sqlx::Postgres>,
    name: &str,
) -> Result<bool, HistoryError> {
    // Not to_regclass: it may answer from a cache that holds what was so before the lock was waited for,
    // and then two tasks create the same partition. A query of the catalog sees what is committed.
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'sample'::regclass AND c.relname = $1)";
    let row = with_timeout(sqlx::query(sql).bind(name.to_owned()).fetch_one(executor)).await?;
    row.try_get(0).map_err(HistoryError::from_sql)
}
