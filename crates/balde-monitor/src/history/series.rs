//! The levels of one bucket over time, at a resolution that fits the number of points.

use super::database::{Row, values};
use super::error::HistoryError;
use super::handle::History;
use super::records::{Gap, Point, Resolution, Series};
use super::roll_up::Width;
use crate::sample::BucketId;

/// Samples further apart than this have a gap between them. Two polls in a row, five minutes apart,
/// may fail without a gap.
pub const GAP_US: u64 = 15 * 60 * 1_000_000;

/// The most points that a series can have.
pub const POINTS_MAX: usize = 20_000;

/// The most days that one series reads: more than a century.
const DAYS_MAX: usize = 40_000;

/// A point with the times of the first and the last sample of its interval.
#[derive(Clone, Copy)]
struct Interval {
    point: Point,
    first_us: u64,
    last_us: u64,
}

impl History {
    /// Returns the levels of a bucket from `from_us` until just before `until_us`, at the finest
    /// resolution (samples, hours or days) that needs at most `points_max` points. If there are more
    /// days than that, neighbouring days are merged into one point.
    ///
    /// A gap is reported where samples are further apart than [`GAP_US`], or than an hour or a day
    /// at those resolutions. Gaps may begin before the first point or end after the last one.
    pub async fn series(
        &self,
        bucket: &BucketId,
        from_us: u64,
        until_us: u64,
        points_max: usize,
    ) -> Result<Series, HistoryError> {
        let points_max = points_max.clamp(1, POINTS_MAX);
        let sql = "SELECT id FROM bucket WHERE participant = $1 AND policy = $2";
        let values = values![bucket.participant(), bucket.policy()];
        let rows = self.database()?.fetch(sql, values).await?;
        let Some(row) = rows.first() else {
            return Ok(Series {
                resolution: Resolution::Samples,
                points: Vec::new(),
                gaps: Vec::new(),
            });
        };
        let range = Range {
            history: self,
            bucket_id: row.int(0)?,
            from_us,
            until_us,
        };
        let (resolution, intervals, gap_us) = range.finest(points_max).await?;
        let gaps = range.gaps(&intervals, gap_us).await?;
        let points = merge(&intervals, points_max);
        Ok(Series {
            resolution,
            points,
            gaps,
        })
    }
}

struct Range<'a> {
    history: &'a History,
    bucket_id: i64,
    from_us: u64,
    until_us: u64,
}

impl Range<'_> {
    async fn finest(
        &self,
        points_max: usize,
    ) -> Result<(Resolution, Vec<Interval>, u64), HistoryError> {
        if self
            .has_at_most(COUNT_SAMPLES, self.from_us, points_max)
            .await?
        {
            return Ok((Resolution::Samples, self.samples().await?, GAP_US));
        }
        // The range cannot have more hours than this, so counting them may be unnecessary.
        let hours = self.until_us.saturating_sub(self.from_us) / Width::Hour.us() + 2;
        let from_us = Width::Hour.start_us(self.from_us);
        if hours <= points_max as u64 || self.has_at_most(COUNT_HOURS, from_us, points_max).await? {
            let hours = self.roll_ups(Width::Hour, points_max).await?;
            return Ok((Resolution::Hour, hours, Width::Hour.us()));
        }
        let days = self.roll_ups(Width::Day, DAYS_MAX).await?;
        Ok((Resolution::Day, days, Width::Day.us()))
    }

    /// Returns true if a counting query finds at most `points_max` rows. The query stops counting at
    /// one more.
    async fn has_at_most(
        &self,
        count: &'static str,
        from_us: u64,
        points_max: usize,
    ) -> Result<bool, HistoryError> {
        let values = values![self.bucket_id, from_us, self.until_us, points_max + 1];
        let rows = self.history.database()?.fetch(count, values).await?;
        let counted = rows.first().map_or(Ok(0), |row| row.count(0))?;
        Ok(counted <= points_max as u64)
    }

    async fn samples(&self) -> Result<Vec<Interval>, HistoryError> {
        let sql = "SELECT taken_us, level, capacity FROM sample
             WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3 ORDER BY taken_us LIMIT $4";
        let values = values![self.bucket_id, self.from_us, self.until_us, POINTS_MAX];
        let rows = self.history.database()?.fetch(sql, values).await?;
        let interval = |row: &Row| {
            let (at_us, level) = (row.count(0)?, row.int(1)?);
            Ok(Interval {
                point: Point {
                    at_us,
                    samples: 1,
                    level_min: level,
                    level_max: level,
                    level,
                    capacity: row.count(2)?,
                },
                first_us: at_us,
                last_us: at_us,
            })
        };
        rows.iter().map(interval).collect()
    }

    async fn roll_ups(&self, width: Width, max: usize) -> Result<Vec<Interval>, HistoryError> {
        let sql = "SELECT at_us, samples, level_min, level_max, level, capacity, first_us, last_us
             FROM roll_up WHERE bucket_id = $1 AND width_s = $2 AND at_us >= $3 AND at_us < $4
             ORDER BY at_us LIMIT $5";
        let from_us = width.start_us(self.from_us);
        let values = values![self.bucket_id, width.s(), from_us, self.until_us, max];
        let rows = self.history.database()?.fetch(sql, values).await?;
        let interval = |row: &Row| {
            Ok(Interval {
                point: Point {
                    at_us: row.count(0)?,
                    samples: row.count(1)?,
                    level_min: row.int(2)?,
                    level_max: row.int(3)?,
                    level: row.int(4)?,
                    capacity: row.count(5)?,
                },
                first_us: row.count(6)?,
                last_us: row.count(7)?,
            })
        };
        rows.iter().map(interval).collect()
    }

    /// Returns the gaps between the intervals, and those that reach beyond the first or the last.
    async fn gaps(&self, intervals: &[Interval], gap_us: u64) -> Result<Vec<Gap>, HistoryError> {
        let first_us = intervals
            .first()
            .map_or(self.until_us, |first| first.first_us);
        let last_us = intervals.last().map_or(self.from_us, |last| last.last_us);
        let (before_us, after_us) = self.neighbours(first_us, last_us).await?;
        let mut ends: Vec<(u64, u64)> = Vec::with_capacity(intervals.len() + 2);
        ends.extend(before_us.map(|us| (us, us)));
        ends.extend(
            intervals
                .iter()
                .map(|interval| (interval.first_us, interval.last_us)),
        );
        ends.extend(after_us.map(|us| (us, us)));
        let gaps = ends.windows(2).filter_map(|pair| {
            let (from_us, until_us) = (pair[0].1, pair[1].0);
            let is_long = until_us.saturating_sub(from_us) > gap_us;
            let is_inside = until_us > self.from_us && from_us < self.until_us;
            (is_long && is_inside).then_some(Gap { from_us, until_us })
        });
        Ok(gaps.collect())
    }

    /// Returns the times of the last sample before `before_us` and of the first after `after_us`.
    async fn neighbours(
        &self,
        before_us: u64,
        after_us: u64,
    ) -> Result<(Option<u64>, Option<u64>), HistoryError> {
        let values = values![self.bucket_id, before_us, after_us];
        let rows = self.history.database()?.fetch(NEIGHBOURS, values).await?;
        match rows.first() {
            Some(row) => Ok((row.optional_count(0)?, row.optional_count(1)?)),
            None => Ok((None, None)),
        }
    }
}

const COUNT_SAMPLES: &str = "SELECT count(*) FROM (
     SELECT taken_us FROM sample
     WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3 LIMIT $4) AS few";

const COUNT_HOURS: &str = "SELECT count(*) FROM (
     SELECT at_us FROM roll_up
     WHERE bucket_id = $1 AND width_s = 3600 AND at_us >= $2 AND at_us < $3 LIMIT $4) AS few";

const NEIGHBOURS: &str = "SELECT
     (SELECT taken_us FROM sample WHERE bucket_id = $1 AND taken_us < $2
      ORDER BY taken_us DESC LIMIT 1),
     (SELECT taken_us FROM sample WHERE bucket_id = $1 AND taken_us > $3
      ORDER BY taken_us LIMIT 1)";

/// Merges neighbouring intervals until there are at most `points_max` points.
fn merge(intervals: &[Interval], points_max: usize) -> Vec<Point> {
    let per_point = intervals.len().div_ceil(points_max).max(1);
    let sum = |days: &[Interval]| {
        days.iter()
            .map(|interval| interval.point)
            .reduce(|sum, next| Point {
                at_us: sum.at_us,
                samples: sum.samples + next.samples,
                level_min: sum.level_min.min(next.level_min),
                level_max: sum.level_max.max(next.level_max),
                level: next.level,
                capacity: next.capacity,
            })
    };
    intervals.chunks(per_point).filter_map(sum).collect()
}
