//! Samples as they were told, on their way out.

use super::History;
use super::database::{Database, Row, values};
use super::records::HistoryError;
use crate::analyse::LOOKBACK_SAMPLES_MAX;
use crate::sample::{BucketId, Poll, Sample, Terms};

/// What [`sample`] reads, of `bucket` as b and `sample` or `newest` as s.
macro_rules! columns {
    () => {
        "b.participant, b.policy, s.taken_us, s.level, s.capacity, s.refill, s.period_us, \
         s.category, s.answered_us"
    };
}

/// Where a participant's newest samples begin. `SQLite` knows no LATERAL, and `PostgreSQL` would
/// rather read everything than believe that a bound found in the same statement is narrow.
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
    /// A participant's samples since a moment, the oldest first and those of one policy together:
    /// of each at most the [`LOOKBACK_SAMPLES_MAX`] newest. A policy without any is not among them.
    pub async fn recent(
        &self,
        participant: &str,
        since_us: u64,
    ) -> Result<Vec<Vec<Sample>>, HistoryError> {
        let sql = match self.database {
            Database::Sqlite(_) => RECENT_SQLITE,
            Database::Postgres(_) => RECENT_POSTGRES,
        };
        let values = values![participant, since_us, LOOKBACK_SAMPLES_MAX];
        let samples = samples(&self.database.fetch(sql, values).await?)?;
        let mut by_policy: Vec<Vec<Sample>> = samples
            .chunk_by(|one, next| one.bucket() == next.bucket())
            .map(<[Sample]>::to_vec)
            .collect();
        by_policy.sort_by(|one, other| one[0].bucket().cmp(other[0].bucket()));
        Ok(by_policy)
    }

    /// The newest answer about a participant.
    pub async fn newest_poll(&self, participant: &str) -> Result<Option<Poll>, HistoryError> {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM bucket b JOIN newest s ON s.bucket_id = b.id
             WHERE b.participant = $1 AND s.taken_us = (
                 SELECT max(n.taken_us) FROM bucket c JOIN newest n ON n.bucket_id = c.id
                 WHERE c.participant = $1)
             ORDER BY s.place"
        );
        let rows = self.database.fetch(sql, values![participant]).await?;
        poll(&rows)
    }

    /// The answer about a participant that came at a moment.
    pub async fn poll_at(
        &self,
        participant: &str,
        taken_us: u64,
    ) -> Result<Option<Poll>, HistoryError> {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM bucket b JOIN sample s ON s.bucket_id = b.id
             WHERE b.participant = $1 AND s.taken_us = $2 ORDER BY s.place"
        );
        let rows = self
            .database
            .fetch(sql, values![participant, taken_us])
            .await?;
        poll(&rows)
    }

    /// The newest sample of every bucket that its participant's newest answer lists, by bucket.
    pub async fn states(&self) -> Result<Vec<Sample>, HistoryError> {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM bucket b JOIN newest s ON s.bucket_id = b.id
             JOIN (SELECT c.participant, max(n.taken_us) AS taken_us
                   FROM bucket c JOIN newest n ON n.bucket_id = c.id GROUP BY c.participant) p
             ON p.participant = b.participant AND p.taken_us = s.taken_us"
        );
        let mut samples = samples(&self.database.fetch(sql, values![]).await?)?;
        // Here, because databases differ in what comes before what.
        samples.sort_by(|one, other| one.bucket().cmp(other.bucket()));
        Ok(samples)
    }
}

fn poll(rows: &[Row]) -> Result<Option<Poll>, HistoryError> {
    if rows.is_empty() {
        return Ok(None);
    }
    Poll::new(samples(rows)?).map(Some).map_err(strange)
}

fn samples(rows: &[Row]) -> Result<Vec<Sample>, HistoryError> {
    rows.iter().map(sample).collect()
}

fn sample(row: &Row) -> Result<Sample, HistoryError> {
    let bucket = BucketId::new(row.text(0)?, row.text(1)?).map_err(strange)?;
    let terms = Terms::new(row.count(4)?, row.count(5)?, row.count(6)?).map_err(strange)?;
    let sample = Sample::new(bucket, terms, row.int(3)?, row.count(2)?).map_err(strange)?;
    let sample = match row.text_if_any(7)? {
        Some(category) => sample.with_category(category).map_err(strange)?,
        None => sample,
    };
    match row.count_if_any(8)? {
        Some(answered_us) => sample.answered_at(answered_us).map_err(strange),
        None => Ok(sample),
    }
}

fn strange(error: impl std::fmt::Display) -> HistoryError {
    HistoryError::Strange {
        why: format!("a sample: {error}"),
    }
}
