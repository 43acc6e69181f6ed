//! Upkeep: what is too old goes, what is old is thinned out, and months to come get their place.

use super::History;
use super::database::{Database, values};
use super::month::{Month, months_before_us};
use super::partitions;
use super::postgres::Server;
use super::records::{HistoryError, Retention, Maintenance};

/// Rows that one statement deletes.
const CHUNK_ROWS: usize = 2_000;
/// Rows after which a round is over, unless the next statement is already being run.
const ROUND_ROWS_MAX: u64 = 10_000;
/// Stretches that are thinned out in one round.
const ROUND_STRETCHES_MAX: usize = 64;
/// Partitions that are made ahead, besides that of the present month.
const MONTHS_AHEAD: u32 = 3;

const SLOT_US: u64 = 5 * 60 * 1_000_000;
/// What is thinned out at once of a bucket.
const STRETCH_US: u64 = 6 * 3_600 * 1_000_000;
const DAY_US: u64 = 86_400 * 1_000_000;

/// Each deletes at most $2 rows that are older than $1. Nothing goes that is not delivered or not
/// over, and an event stays with its incident. The loops go by bucket, because that is how the rows
/// are found without looking at all of them.
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
    /// A short round of upkeep; call again while there [is more](Upkeep::has_more). What is older
    /// than the retention's months is deleted, except messages that are not delivered and incidents
    /// that are open. `PostgreSQL` gets its partitions for the present month and the next three, and
    /// drops those that are wholly too old, so that it keeps samples for up to a month longer.
    pub async fn maintain(
        &self,
        now_us: u64,
        retention: &Retention,
    ) -> Result<Maintenance, HistoryError> {
        let before_us = months_before_us(now_us, retention.months.max(1));
        let mut upkeep = Upkeep::default();
        match &self.database {
            Database::Sqlite(_) => self.delete(DELETE_SAMPLES, before_us, &mut upkeep).await?,
            Database::Postgres(server) => {
                partition(server, now_us, before_us, &mut upkeep).await?;
            }
        }
        for sql in DELETIONS {
            self.delete(sql, before_us, &mut upkeep).await?;
        }
        if retention.thin_after_days > 0 {
            let days_us = u64::from(retention.thin_after_days) * DAY_US;
            let thin_us = now_us.saturating_sub(days_us);
            self.thin(thin_us - thin_us % SLOT_US, &mut upkeep).await?;
        }
        Ok(upkeep)
    }

    async fn delete(
        &self,
        sql: &'static str,
        before_us: u64,
        upkeep: &mut Maintenance,
    ) -> Result<(), HistoryError> {
        loop {
            if upkeep.deleted >= ROUND_ROWS_MAX {
                upkeep.has_more = true;
                return Ok(());
            }
            // Each for itself, so that whoever wants to write in between can.
            let rows = self
                .database
                .execute(sql, values![before_us, CHUNK_ROWS])
                .await?;
            upkeep.deleted += rows;
            if rows < CHUNK_ROWS as u64 {
                return Ok(());
            }
        }
    }

    async fn thin(&self, before_us: u64, upkeep: &mut Maintenance) -> Result<(), HistoryError> {
        let sql = "SELECT id, thinned_us FROM bucket WHERE thinned_us < $1
             ORDER BY thinned_us, id LIMIT $2";
        let values = values![before_us, ROUND_STRETCHES_MAX];
        for row in self.database.fetch(sql, values).await? {
            if upkeep.deleted + upkeep.thinned >= ROUND_ROWS_MAX {
                upkeep.has_more = true;
                return Ok(());
            }
            upkeep.thinned += self
                .thin_bucket(row.int(0)?, row.count(1)?, before_us)
                .await?;
        }
        let sql = "SELECT id FROM bucket WHERE thinned_us < $1 LIMIT 1";
        let left = self.database.fetch(sql, values![before_us]).await?;
        upkeep.has_more |= !left.is_empty();
        Ok(())
    }

    /// The next stretch of one bucket: of every five minutes the lowest stays.
    async fn thin_bucket(
        &self,
        bucket_id: i64,
        thinned_us: u64,
        before_us: u64,
    ) -> Result<u64, HistoryError> {
        let mut tx = self.database.begin().await?;
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
            until_us = before_us.min(from_us + STRETCH_US);
            let sql = "DELETE FROM sample
                 WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3 AND taken_us IN (
                     SELECT taken_us FROM (
                         SELECT taken_us, row_number() OVER (
                             PARTITION BY taken_us / 300000000 ORDER BY level, taken_us) AS place
                         FROM sample
                         WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3) AS ranked
                     WHERE place > 1)";
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

async fn partition(
    server: &Server,
    now_us: u64,
    before_us: u64,
    upkeep: &mut Maintenance,
) -> Result<(), HistoryError> {
    let mut month = Month::of(now_us);
    for _ in 0..=MONTHS_AHEAD {
        let Some(this) = month else { break };
        upkeep.partitions += u32::from(partitions::make_month(server, this).await?);
        month = this.next();
    }
    if let Some(samples) = partitions::drop_oldest(server, before_us).await? {
        upkeep.deleted += samples;
        // There may be another one, for the next round.
        upkeep.has_more = true;
    }
    Ok(())
}
