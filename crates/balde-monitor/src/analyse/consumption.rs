//! What was consumed between two samples, as bounds that hold however the bucket refills.
//!
//! Consumption is the fall in level and what came back in between. What came back is not told, and
//! nobody says whether it comes with every microsecond or all at once at a moment of the other
//! side's choosing, so between two samples lie at least ⌊T/P⌋ and at most ⌈T/P⌉ refills of a
//! period P; continuous refill is within that. What comes back to a full bucket is lost, so where
//! it may have been full in between, the fall from full is all that is certain.

use crate::sample::Sample;

/// Whether tokens come back to a bucket by other ways than its refill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Credits {
    /// Only the refill raises the level.
    #[default]
    Never,
    /// Events raise it too, such as a payment order after a lookup. Consumption is then what left
    /// less what was given back, and may be negative.
    Possible,
}

/// Bounds on the tokens that left a bucket within a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumption {
    /// At least this many tokens left.
    pub at_least: i64,
    /// At most this many tokens left.
    pub at_most: i64,
    /// Within this time.
    pub span_us: u64,
}

impl Consumption {
    /// Between `earlier` and `later`, whose distance in time is known to within `error_us`.
    ///
    /// Nothing when they do not compare: another bucket, other limit, or a clock that went back.
    /// A level that rose by more than the refill shows that somebody gave tokens (a credit, a
    /// reset), and is then counted as if credits were possible.
    ///
    /// ```
    /// use balde_monitor::analyse::{Consumption, Credits};
    /// use balde_monitor::sample::{BucketId, Sample, ReportedLimit};
    ///
    /// let bucket = BucketId::new("12345678", "ENTRIES_WRITE")?;
    /// let limit = ReportedLimit::per_seconds(36_000, 1_200, 60)?;
    /// let sample = |level, at_s: u64| Sample::new(bucket.clone(), limit, level, at_s * 1_000_000);
    ///
    /// // The level stands still while 1,200 a minute are used.
    /// let (from, to) = (sample(20_000, 0)?, sample(20_000, 300)?);
    /// let used = Consumption::between(&from, &to, Credits::Never, 0).unwrap();
    /// assert_eq!((used.at_least, used.at_most), (6_000, 6_000));
    ///
    /// // Full at both ends: anything up to the refill may have been used.
    /// let (from, to) = (sample(36_000, 0)?, sample(36_000, 300)?);
    /// let used = Consumption::between(&from, &to, Credits::Never, 0).unwrap();
    /// assert_eq!((used.at_least, used.at_most), (0, 6_000));
    /// # Ok::<(), balde_monitor::sample::SampleError>(())
    /// ```
    pub fn between(
        earlier: &Sample,
        later: &Sample,
        credits: Credits,
        error_us: u64,
    ) -> Option<Self> {
        if earlier.bucket() != later.bucket() || earlier.limit() != later.limit() {
            return None;
        }
        let span_us = earlier.us_until(later)?;
        let limit = earlier.limit();
        let capacity = i128::from(limit.capacity());
        let (from, to) = (i128::from(earlier.level()), i128::from(later.level()));
        let fall = from - to;

        let refill = i128::from(limit.refill_tokens());
        let periods_min = span_us.saturating_sub(error_us) / limit.period_us();
        let periods_max = span_us.saturating_add(error_us).div_ceil(limit.period_us());
        let refilled_min = i128::from(periods_min) * refill;
        let refilled_max = i128::from(periods_max) * refill;

        // A credit to a bucket that is nearly full may count in part, so what left less what was
        // given back is no whole number, and levels show whole ones only.
        let with_credits = (fall - 1, fall + refilled_max + 1);
        let (at_least, at_most) = match credits {
            Credits::Possible => with_credits,
            Credits::Never if fall + refilled_max < 0 => with_credits,
            Credits::Never => {
                // One more for the fraction of a token that a level does not show.
                let was_never_full = from + refilled_max < capacity;
                let from_full = if was_never_full {
                    i128::MAX
                } else {
                    capacity - to
                };
                let certain = (fall + refilled_min).min(from_full).max(0);
                (certain, fall + refilled_max)
            }
        };
        Some(Self {
            at_least: saturated(at_least),
            at_most: saturated(at_most),
            span_us,
        })
    }

    /// This span and the one right after it.
    pub(crate) fn and_then(self, next: Self) -> Self {
        Self {
            at_least: self.at_least.saturating_add(next.at_least),
            at_most: self.at_most.saturating_add(next.at_most),
            span_us: self.span_us.saturating_add(next.span_us),
        }
    }

    /// What two true statements about the same span say together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            at_least: self.at_least.max(other.at_least),
            at_most: self.at_most.min(other.at_most),
            span_us: self.span_us,
        }
    }
}

pub(crate) fn saturated(tokens: i128) -> i64 {
    let bounded = tokens.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    i64::try_from(bounded).unwrap_or_default()
}
