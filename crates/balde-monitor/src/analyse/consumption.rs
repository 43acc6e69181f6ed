//! Bounds on the tokens consumed between two samples, valid for continuous and stepwise refill.
//!
//! Consumption is the fall in level plus the tokens refilled in between. A poll does not say how
//! much was refilled, nor whether the bucket refills continuously or in steps, nor when the steps
//! happen. Within a time T a bucket of refill period P refills at least ⌊T/P⌋ and at most ⌈T/P⌉
//! times; continuous refill lies between the two. Refills of a full bucket are lost, so if the
//! bucket may have been full in between, only the fall from full is certain.

use crate::sample::Sample;

/// Whether events other than the refill can add tokens to a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Credits {
    /// Only the refill adds tokens.
    #[default]
    Never,
    /// Events add tokens too, such as a payment order after a lookup. Consumption is then net of
    /// credits and may be negative.
    Possible,
}

/// Bounds on the tokens consumed from a bucket within a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumption {
    /// The lower bound, in tokens.
    pub at_least: i64,
    /// The upper bound, in tokens.
    pub at_most: i64,
    /// The length of the span.
    pub span_us: u64,
}

impl Consumption {
    /// Computes the consumption between two samples whose distance in time is known to within
    /// `error_us`.
    ///
    /// Returns `None` if they are not comparable: different buckets, different limit, or a clock
    /// that stepped backwards. If the level rose by more than the refill allows, tokens must have
    /// been credited, and the bounds are computed as for [`Credits::Possible`].
    ///
    /// ```
    /// use balde_monitor::analyse::{Consumption, Credits};
    /// use balde_monitor::sample::{BucketId, Sample, ReportedLimit};
    ///
    /// let bucket = BucketId::new("12345678", "ENTRIES_WRITE")?;
    /// let limit = ReportedLimit::per_seconds(36_000, 1_200, 60)?;
    /// let sample = |level, at_s: u64| Sample::new(bucket.clone(), limit, level, at_s * 1_000_000);
    ///
    /// // The level does not change while 1,200 tokens a minute are consumed.
    /// let (from, to) = (sample(20_000, 0)?, sample(20_000, 300)?);
    /// let used = Consumption::between(&from, &to, Credits::Never, 0).unwrap();
    /// assert_eq!((used.at_least, used.at_most), (6_000, 6_000));
    ///
    /// // Full in both samples: anything up to the refill may have been consumed.
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

        // A nearly full bucket may accept a fraction of a credit, so net consumption may not be a
        // whole number, while levels are whole: widen the bounds by one token each way.
        let with_credits = (fall - 1, fall + refilled_max + 1);
        let (at_least, at_most) = match credits {
            Credits::Possible => with_credits,
            Credits::Never if fall + refilled_max < 0 => with_credits,
            Credits::Never => {
                // Strictly less, because a level does not show the fraction of a token.
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

    /// Combines this span with the one that follows it.
    pub(crate) fn and_then(self, next: Self) -> Self {
        Self {
            at_least: self.at_least.saturating_add(next.at_least),
            at_most: self.at_most.saturating_add(next.at_most),
            span_us: self.span_us.saturating_add(next.span_us),
        }
    }

    /// Intersects two sets of bounds on the same span.
    pub(crate) fn intersect(self, other: Self) -> Self {
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
