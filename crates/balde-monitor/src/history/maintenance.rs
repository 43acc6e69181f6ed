//! Maintenance: deletes what is too old, thins out old samples, and creates partitions ahead of time.

use super::database::{Database, values};
use super::error::HistoryError;
use super::handle::History;
use super::month::{Month, months_before_us};
use super::partitions;
use super::postgres::Server;
use super::records::{Maintenance, Retention};

/// The most rows that one statement deletes.
const CHUNK_ROWS: usize = 2_000;
/// A round ends after the statement that reaches this number of rows.
const ROUND_ROWS_MAX: u64 = 10_000;
/// The most buckets that one round thins out.
const ROUND_BUCKETS_MAX: usize = 64;
/// The number of partitions created ahead, besides the one of the current month.
const MONTHS_AHEAD: u32 = 3;

/// Thinning out keeps one sample of every slot.
const SLOT_US: u64 = 5 * 60 * 1_000_000;
/// The range of a bucket's samples that is thinned out in one transaction.
const THIN_RANGE_US: u64 = 6 * 3_600 * 1_000_000;
const DAY_US: u64 = 86_400 * 1_000_000;

/// Each statement deletes at most $2 rows that are older than $1. Undelivered messages, open
/// incidents and the events of incidents are kept. The joins with `bucket` make the database use the
/// primary keys instead of a full scan.
const DELETIONS: [&str; 4] = [
    "DELETE FROM roll_up WHERE (bucket_id, width_s, at_us) IN (
         SELECT r.bucket_id, r.width_s, r.at_us FROM bucket b CROSS JOIN roll_up r
         WHERE r.bucket_id = b.id AND r.width_s IN (3600, 86400) AND r.at_us < $1 LIMIT $2)",
    "DELETE FROM incident WHERE episode IN (
         SELECT episode FROM incident WHERE closed_us < $1 LIMIT $2)",
    "DELETE FROM event WHERE id IN (
         SELECT e.id FROM event e WHERE e.at_us < $1
         AND NOT EXISTS (
             SELECT 1 FROM outbox o WHERE o.event_id = e.id AND o.delivered_us IS NULL)
         AND NOT EXISTS (SELECT 1 FROM incident i WHERE i.episode = e.episode)
         LIMIT $2)",
    "DELETE FROM silence WHERE id IN (
         SELECT id FROM silence WHERE until_us < $1 LIMIT $2)",
];

const DELETE_SAMPLES: &str = "DELETE FROM sample WHERE (bucket_id, taken_us) IN (
     SELECT s.bucket_id, s.taken_us FROM bucket b CROSS JOIN sample s
     WHERE s.bucket_id = b.id AND s.taken_us < $1 LIMIT $2)";

impl History {
    /// Runs one short round of maintenance. Call it again while it [has
    /// more](Maintenance::has_more) to do.
    ///
    /// It deletes rows older than the retention, except undelivered messages and open incidents, and
    /// thins out old samples. On `PostgreSQL` it creates the partitions of the current month and the
    /// next three, and drops partitions that are too old as a whole, so samples are kept for up to a
    /// month longer.
    pub async fn maintain(
        &self,
        now_us: u64,
        retention: &Retention,
    ) -> Result<Maintenance, HistoryError> {
        let before_us = months_before_us(now_us, retention.months.max(1));
        let mut done = Maintenance::default();
        match &self.database()? {
            Database::Sqlite(_) => self.delete(DELETE_SAMPLES, before_us, &mut done).await?,
            Database::Postgres(server) => {
                maintain_partitions(server, now_us, before_us, &mut done).await?;
            }
        }
        for sql in DELETIONS {
            self.delete(sql, before_us, &mut done).await?;
        }
        if retention.thin_after_days > 0 {
            let days_us = u64::from(retention.thin_after_days) * DAY_US;
            let thin_us = now_us.saturating_sub(days_us);
            self.thin(thin_us - thin_us % SLOT_US, &mut done).await?;
        }
        Ok(done)
    }

    async fn delete(
        &self,
        sql: &'static str,
        before_us: u64,
        done: &mut Maintenance,
    ) -> Result<(), HistoryError> {
        loop {
            if done.deleted >= ROUND_ROWS_MAX {
                done.has_more = true;
                return Ok(());
            }
            // One transaction for each statement, so that others can write in between.
            let rows = self
                .database()?
                .execute(sql, values![before_us, CHUNK_ROWS])
                .await?;
            done.deleted += rows;
            if rows < CHUNK_ROWS as u64 {
                return Ok(());
            }
        }
    }

    async fn thin(&self, before_us: u64, done: &mut Maintenance) -> Result<(), HistoryError> {
        let sql = "SELECT id, thinned_us FROM bucket WHERE thinned_us < $1
             ORDER BY thinned_us, id LIMIT $2";
        let values = values![before_us, ROUND_BUCKETS_MAX];
        for row in self.database()?.fetch(sql, values).await? {
            if done.deleted + done.thinned >= ROUND_ROWS_MAX {
                done.has_more = true;
                return Ok(());
            }
            done.thinned += self
                .thin_bucket(row.int(0)?, row.count(1)?, before_us)
                .await?;
        }
        let sql = "SELECT id FROM bucket WHERE thinned_us < $1 LIMIT 1";
        let left = self.database()?.fetch(sql, values![before_us]).await?;
        done.has_more |= !left.is_empty();
        Ok(())
    }

    /// Thins out the next range of one bucket: of every five minutes, the lowest sample is kept.
    async fn thin_bucket(
        &self,
        bucket_id: i64,
        thinned_us: u64,
        before_us: u64,
    ) -> Result<u64, HistoryError> {
        let mut tx = self.database()?.begin().await?;
        let sql = "SELECT taken_us FROM sample
             WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3 ORDER BY taken_us LIMIT 1";
        let oldest = tx
            .fetch(sql, values![bucket_id, thinned_us, before_us])
            .await?;
        let mut until_us = before_us;
        let mut thinned = 0;
        if let Some(row) = oldest.first() {
            let oldest_us = row.count(0)?;
            let from_us = oldest_us - oldest_us % SLOT_US;
            until_us = before_us.min(from_us + THIN_RANGE_US);
            let sql = "DELETE FROM sample
                 WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3 AND taken_us IN (
                     SELECT taken_us FROM (
                         SELECT taken_us, row_number() OVER (
                             PARTITION BY taken_us / 300000000 ORDER BY level, taken_us) AS lowest
                         FROM sample
                         WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3) AS ranked
                     WHERE lowest > 1)";
            thinned = tx
                .execute(sql, values![bucket_id, from_us, until_us])
                .await?;
        }
        let sql = "UPDATE bucket SET thinned_us = $2 WHERE id = $1";
        tx.execute(sql, values![bucket_id, until_us]).await?;
        tx.commit().await?;
        Ok(thinned)
    }
}

async fn maintain_partitions(
    server: &Server,
    now_us: u64,
    before_us: u64,
    done: &mut Maintenance,
) -> Result<(), HistoryError> {
    let mut month = Month::of(now_us);
    for _ in 0..=MONTHS_AHEAD {
        let Some(this) = month else { break };
        done.partitions += u32::from(partitions::create_month(server, this).await?);
        month = this.next();
    }
    if let Some(samples) = partitions::drop_oldest(server, before_us).await? {
        done.deleted += samples;
        // The next round checks for another one.
        done.has_more = true;
    }
    Ok(())
}
