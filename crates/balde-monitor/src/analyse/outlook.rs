//! When a bucket will be at a level, if it goes on like this.

use crate::analyse::burn::Burn;
use crate::sample::{Sample, Terms};

/// How sure a forecast is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// The bounds allow it, the best guess does not say so or rests on one step alone.
    Low,
    /// The best guess says so, from three samples or with both bounds agreeing.
    Medium,
    /// Both bounds and the next longer horizon say so, from three samples or more; or it is so
    /// already.
    High,
}

/// How long until a level is reached at the present rate, from the newest sample on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    earliest_us: u64,
    expected_us: Option<u64>,
    latest_us: Option<u64>,
    confidence: Confidence,
}

impl Outlook {
    /// If consumption was as high as the samples allow.
    pub const fn earliest_us(&self) -> u64 {
        self.earliest_us
    }

    /// At the best guess; nothing when by that the level is never reached.
    pub const fn expected_us(&self) -> Option<u64> {
        self.expected_us
    }

    /// If consumption was as low as the samples allow; nothing when it would never be reached.
    pub const fn latest_us(&self) -> Option<u64> {
        self.latest_us
    }

    /// How sure it is.
    pub const fn confidence(&self) -> Confidence {
        self.confidence
    }

    /// The outlook on `tokens` left, by the shortest of `burns`, which is the present rate.
    /// Nothing when not even the highest consumption leads there.
    pub(crate) fn on(tokens: i64, newest: &Sample, burns: &[Burn]) -> Option<Self> {
        if newest.level() <= tokens {
            return Some(Self {
                earliest_us: 0,
                expected_us: Some(0),
                latest_us: Some(0),
                confidence: Confidence::High,
            });
        }
        let present = burns.first()?;
        let distance = i128::from(newest.level()) - i128::from(tokens);
        let after = |burn: &Burn, consumed| reached_us(distance, burn, consumed, newest.terms());

        let earliest_us = after(present, present.at_most())?;
        let expected_us = after(present, present.expected());
        let latest_us = after(present, present.at_least());
        let is_sustained = burns
            .iter()
            .find(|burn| burn.span_us() > present.span_us())
            .is_none_or(|longer| after(longer, longer.expected()).is_some());
        let is_seen_often = present.samples() >= 3;
        let confidence = match (expected_us, latest_us) {
            (Some(_), Some(_)) if is_sustained && is_seen_often => Confidence::High,
            (Some(_), Some(_)) => Confidence::Medium,
            (Some(_), None) if is_seen_often => Confidence::Medium,
            _ => Confidence::Low,
        };
        Some(Self {
            earliest_us,
            expected_us,
            latest_us,
            confidence,
        })
    }
}

/// Bounds on the time until a bucket that nobody touches is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullAfter {
    /// Not before this, however it refills.
    pub at_least_us: u64,
    /// By then, however it refills.
    pub at_most_us: u64,
}

impl FullAfter {
    /// For a bucket as sampled; nothing when it never refills. The last refill that it needs may
    /// come at any moment of its period, which covers continuous and stepwise refill alike.
    pub(crate) fn of(sample: &Sample) -> Option<Self> {
        let terms = sample.terms();
        let missing = i128::from(terms.capacity()) - i128::from(sample.level());
        let Ok(missing) = u64::try_from(missing.max(0)) else {
            return None;
        };
        if missing == 0 {
            return Some(Self {
                at_least_us: 0,
                at_most_us: 0,
            });
        }
        if terms.refill_tokens() == 0 {
            return None;
        }
        let refills = missing.div_ceil(terms.refill_tokens());
        Some(Self {
            at_least_us: (refills - 1).saturating_mul(terms.period_us()),
            at_most_us: refills.saturating_mul(terms.period_us()),
        })
    }
}

/// How long until a bucket is full if consumption goes on at the present rate; nothing when it
/// never will be.
pub(crate) fn full_at_rate_us(newest: &Sample, burns: &[Burn]) -> Option<u64> {
    let terms = newest.terms();
    let missing = i128::from(terms.capacity()) - i128::from(newest.level());
    if missing <= 0 {
        return Some(0);
    }
    let present = burns.first()?;
    let gain = -net_fall(present, present.expected(), terms);
    quotient(missing, present, terms, gain)
}

fn reached_us(distance: i128, burn: &Burn, consumed: i64, terms: Terms) -> Option<u64> {
    quotient(distance, burn, terms, net_fall(burn, consumed, terms))
}

/// Consumption less refill over the span of `burn`, in tokens × period.
fn net_fall(burn: &Burn, consumed: i64, terms: Terms) -> i128 {
    i128::from(consumed) * i128::from(terms.period_us())
        - i128::from(terms.refill_tokens()) * i128::from(burn.span_us())
}

fn quotient(tokens: i128, burn: &Burn, terms: Terms, net: i128) -> Option<u64> {
    if net <= 0 {
        return None;
    }
    let scale = i128::from(burn.span_us()).saturating_mul(i128::from(terms.period_us()));
    let us = tokens.saturating_mul(scale) / net;
    Some(u64::try_from(us).unwrap_or(u64::MAX))
}
