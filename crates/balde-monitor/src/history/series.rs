//! One bucket over time, as coarse as it has to be.

use super::History;
use super::database::{Row, values};
use super::records::{Gap, HistoryError, Point, Resolution, Series};
use crate::sample::BucketId;

/// Two samples further apart than this have a gap between them: two polls of five minutes may fail.
pub const GAP_US: u64 = 15 * 60 * 1_000_000;

/// The most points of a series.
pub const POINTS_MAX: usize = 20_000;

/// The most days that one series looks at: more than a century of them.
const DAYS_MAX: usize = 40_000;

/// How wide a roll-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Hour,
    Day,
}

impl Width {
    pub(super) const ALL: [Self; 2] = [Self::Hour, Self::Day];

    pub(super) const fn s(self) -> u64 {
        match self {
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }

    const fn us(self) -> u64 {
        self.s() * 1_000_000
    }

    /// When the stretch around a moment begins.
    pub(super) const fn start_us(self, at_us: u64) -> u64 {
        at_us - at_us % self.us()
    }
}

/// A point and the samples at its ends.
#[derive(Clone, Copy)]
struct Stretch {
    point: Point,
    first_us: u64,
    last_us: u64,
}

impl History {
    /// A bucket from a moment until just before another, in the finest resolution that has at most
    /// `points_max` points: the samples, hours or days. Where not even the days are few enough,
    /// neighbouring ones share a point.
    ///
    /// Where samples are further apart than [`GAP_US`], or than an hour or a day where those are
    /// the points, there is a gap, also where it begins before the first point or ends after the
    /// last.
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
        let rows = self.database.fetch(sql, values).await?;
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
        let (resolution, stretches, gap_us) = range.finest(points_max).await?;
        let gaps = range.gaps(&stretches, gap_us).await?;
        let points = merged(&stretches, points_max);
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
    ) -> Result<(Resolution, Vec<Stretch>, u64), HistoryError> {
        if self.is_few(OF_SAMPLES, self.from_us, points_max).await? {
            return Ok((Resolution::Samples, self.samples().await?, GAP_US));
        }
        // More hours than lie between the two moments there cannot be.
        let hours = self.until_us.saturating_sub(self.from_us) / Width::Hour.us() + 2;
        let from_us = Width::Hour.start_us(self.from_us);
        if hours <= points_max as u64 || self.is_few(OF_HOURS, from_us, points_max).await? {
            let hours = self.roll_ups(Width::Hour, points_max).await?;
            return Ok((Resolution::Hour, hours, Width::Hour.us()));
        }
        let days = self.roll_ups(Width::Day, DAYS_MAX).await?;
        Ok((Resolution::Day, days, Width::Day.us()))
    }

    /// Whether there are at most so many; counting ends as soon as there are more.
    async fn is_few(
        &self,
        count: &'static str,
        from_us: u64,
        points_max: usize,
    ) -> Result<bool, HistoryError> {
        let values = values![self.bucket_id, from_us, self.until_us, points_max + 1];
        let rows = self.history.database.fetch(count, values).await?;
        let counted = rows.first().map_or(Ok(0), |row| row.count(0))?;
        Ok(counted <= points_max as u64)
    }

    async fn samples(&self) -> Result<Vec<Stretch>, HistoryError> {
        let sql = "SELECT taken_us, level, capacity FROM sample
             WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3 ORDER BY taken_us LIMIT $4";
        let values = values![self.bucket_id, self.from_us, self.until_us, POINTS_MAX];
        let rows = self.history.database.fetch(sql, values).await?;
        let stretch = |row: &Row| {
            let (at_us, level) = (row.count(0)?, row.int(1)?);
            Ok(Stretch {
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
        rows.iter().map(stretch).collect()
    }

    async fn roll_ups(&self, width: Width, max: usize) -> Result<Vec<Stretch>, HistoryError> {
        let sql = "SELECT at_us, samples, level_min, level_max, level, capacity, first_us, last_us
             FROM roll_up WHERE bucket_id = $1 AND width_s = $2 AND at_us >= $3 AND at_us < $4
             ORDER BY at_us LIMIT $5";
        let from_us = width.start_us(self.from_us);
        let values = values![self.bucket_id, width.s(), from_us, self.until_us, max];
        let rows = self.history.database.fetch(sql, values).await?;
        let stretch = |row: &Row| {
            Ok(Stretch {
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
        rows.iter().map(stretch).collect()
    }

    /// Gaps between the stretches, and those that reach across the ends.
    async fn gaps(&self, stretches: &[Stretch], gap_us: u64) -> Result<Vec<Gap>, HistoryError> {
        let first_us = stretches
            .first()
            .map_or(self.until_us, |first| first.first_us);
        let last_us = stretches.last().map_or(self.from_us, |last| last.last_us);
        let (before_us, after_us) = self.neighbours(first_us, last_us).await?;
        let mut ends: Vec<(u64, u64)> = Vec::with_capacity(stretches.len() + 2);
        ends.extend(before_us.map(|us| (us, us)));
        ends.extend(
            stretches
                .iter()
                .map(|stretch| (stretch.first_us, stretch.last_us)),
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

    /// The last sample before a moment and the first after another.
    async fn neighbours(
        &self,
        before_us: u64,
        after_us: u64,
    ) -> Result<(Option<u64>, Option<u64>), HistoryError> {
        let values = values![self.bucket_id, before_us, after_us];
        let rows = self.history.database.fetch(NEIGHBOURS, values).await?;
        match rows.first() {
            Some(row) => Ok((row.count_if_any(0)?, row.count_if_any(1)?)),
            None => Ok((None, None)),
        }
    }
}

const OF_SAMPLES: &str = "SELECT count(*) FROM (
     SELECT taken_us FROM sample
     WHERE bucket_id = $1 AND taken_us >= $2 AND taken_us < $3 LIMIT $4) AS few";

const OF_HOURS: &str = "SELECT count(*) FROM (
     SELECT at_us FROM roll_up
     WHERE bucket_id = $1 AND width_s = 3600 AND at_us >= $2 AND at_us < $3 LIMIT $4) AS few";

const NEIGHBOURS: &str = "SELECT
     (SELECT taken_us FROM sample WHERE bucket_id = $1 AND taken_us < $2
      ORDER BY taken_us DESC LIMIT 1),
     (SELECT taken_us FROM sample WHERE bucket_id = $1 AND taken_us > $3
      ORDER BY taken_us LIMIT 1)";

/// The points, as many days in one as it takes.
fn merged(stretches: &[Stretch], points_max: usize) -> Vec<Point> {
    let together = stretches.len().div_ceil(points_max).max(1);
    let merge = |days: &[Stretch]| {
        days.iter()
            .map(|stretch| stretch.point)
            .reduce(|sum, next| Point {
                at_us: sum.at_us,
                samples: sum.samples + next.samples,
                level_min: sum.level_min.min(next.level_min),
                level_max: sum.level_max.max(next.level_max),
                level: next.level,
                capacity: next.capacity,
            })
    };
    stretches.chunks(together).filter_map(merge).collect()
}
