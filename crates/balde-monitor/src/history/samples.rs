//! Reads samples back.

use super::database::{Database, Row, values};
use super::error::HistoryError;
use super::handle::History;
use crate::analyse::LOOKBACK_SAMPLES_MAX;
use crate::sample::{BucketId, POLICIES_MAX, Poll, ReportedLimit, Sample};

/// The columns that [`sample`] reads, of `bucket` as b and `sample` or `latest_sample` as s.
macro_rules! columns {
    () => {
        "b.participant, b.policy, s.taken_us, s.level, s.capacity, s.refill, s.period_us, \
         s.category, s.answered_us, s.position"
    };
}

// Two statements for one query: SQLite has no LATERAL, and PostgreSQL plans a full scan when the
// bound is computed in the same statement, as it is for SQLite.
const RECENT_SQLITE: &str = concat!(
    "WITH known AS MATERIALIZED (
         SELECT id, participant, policy, coalesce(
             (SELECT x.taken_us FROM sample x WHERE x.bucket_id = bucket.id AND x.taken_us >= $2
              ORDER BY x.taken_us DESC LIMIT 1 OFFSET $3 - 1), $2) AS from_us
         FROM bucket WHERE participant = $1)
     SELECT ",
    columns!(),
    " FROM known b CROSS JOIN sample s ON s.bucket_id = b.id AND s.taken_us >= b.from_us
     ORDER BY b.id, s.taken_us"
);

const RECENT_POSTGRES: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM bucket b CROSS JOIN LATERAL (
         SELECT * FROM sample x WHERE x.bucket_id = b.id AND x.taken_us >= $2
         ORDER BY x.taken_us DESC LIMIT $3) s
     WHERE b.participant = $1 ORDER BY b.id, s.taken_us"
);

impl History {
    /// Returns a participant's samples since `since_us`, one list for each policy, the oldest
    /// sample first: at most the [`LOOKBACK_SAMPLES_MAX`] newest of each. Policies without samples are left
    /// out.
    pub async fn recent_samples(
        &self,
        participant: &str,
        since_us: u64,
    ) -> Result<Vec<Vec<Sample>>, HistoryError> {
        let sql = match self.database()? {
            Database::Sqlite(_) => RECENT_SQLITE,
            Database::Postgres(_) => RECENT_POSTGRES,
        };
        let values = values![participant, since_us, LOOKBACK_SAMPLES_MAX];
        let samples = samples(&self.database()?.fetch(sql, values).await?)?;
        let mut by_policy: Vec<Vec<Sample>> = samples
            .chunk_by(|one, next| one.bucket() == next.bucket())
            .map(<[Sample]>::to_vec)
            .collect();
        by_policy.sort_by(|one, other| one[0].bucket().cmp(other[0].bucket()));
        Ok(by_policy)
    }

    /// Returns the newest poll of a participant.
    pub async fn newest_poll(&self, participant: &str) -> Result<Option<Poll>, HistoryError> {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM bucket b JOIN latest_sample s ON s.bucket_id = b.id
             WHERE b.participant = $1 AND s.taken_us = (
                 SELECT max(n.taken_us) FROM bucket c JOIN latest_sample n ON n.bucket_id = c.id
                 WHERE c.participant = $1)
             ORDER BY s.position"
        );
        let rows = self.database()?.fetch(sql, values![participant]).await?;
        poll(&rows)
    }

    /// Returns the poll of a participant that was taken at `taken_us`.
    pub async fn poll_at(
        &self,
        participant: &str,
        taken_us: u64,
    ) -> Result<Option<Poll>, HistoryError> {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM bucket b JOIN sample s ON s.bucket_id = b.id
             WHERE b.participant = $1 AND s.taken_us = $2 ORDER BY s.position"
        );
        let rows = self
            .database()?
            .fetch(sql, values![participant, taken_us])
            .await?;
        poll(&rows)
    }

    /// Returns the samples of every participant's newest poll, ordered by bucket.
    pub async fn latest_samples(&self) -> Result<Vec<Sample>, HistoryError> {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM bucket b JOIN latest_sample s ON s.bucket_id = b.id
             JOIN (SELECT c.participant, max(n.taken_us) AS taken_us
                   FROM bucket c JOIN latest_sample n ON n.bucket_id = c.id GROUP BY c.participant) p
             ON p.participant = b.participant AND p.taken_us = s.taken_us"
        );
        let mut samples = samples(&self.database()?.fetch(sql, values![]).await?)?;
        // Sorted here, because the databases collate text differently.
        samples.sort_by(|one, other| one.bucket().cmp(other.bucket()));
        Ok(samples)
    }
}

fn poll(rows: &[Row]) -> Result<Option<Poll>, HistoryError> {
    if rows.is_empty() {
        return Ok(None);
    }
    Poll::new(samples(rows)?).map(Some).map_err(corrupt)
}

fn samples(rows: &[Row]) -> Result<Vec<Sample>, HistoryError> {
    rows.iter().map(sample).collect()
}

fn sample(row: &Row) -> Result<Sample, HistoryError> {
    let bucket = BucketId::new(row.text(0)?, row.text(1)?).map_err(corrupt)?;
    let limit = ReportedLimit::new(row.count(4)?, row.count(5)?, row.count(6)?).map_err(corrupt)?;
    let sample = Sample::new(bucket, limit, row.int(3)?, row.count(2)?).map_err(corrupt)?;
    let sample = match row.optional_text(7)? {
        Some(category) => sample.with_category(category).map_err(corrupt)?,
        None => sample,
    };
    let sample = match row.optional_count(8)? {
        Some(answered_us) => sample.answered_at(answered_us).map_err(corrupt)?,
        None => sample,
    };
    // A list has fewer positions than this.
    let is_single = row.count(9)? >= POLICIES_MAX as u64;
    Ok(if is_single {
        sample.read_singly()
    } else {
        sample
    })
}

fn corrupt(error: impl std::fmt::Display) -> HistoryError {
    HistoryError::Corrupt {
        reason: format!("a sample: {error}"),
    }
}
