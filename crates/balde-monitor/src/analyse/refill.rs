//! How a bucket refills, inferred from its samples: DICT states tokens and period, but not whether
//! the tokens arrive continuously or all at once at the end of each period.

use crate::analyse::Credits;
use crate::sample::{ReportedLimit, Sample};

/// Rates are counted in millionths of a token per second.
pub(crate) type Rate = i128;

/// Tokens times this, divided by a [`Rate`], are microseconds.
pub(crate) const TOKEN: i128 = 1_000_000_000_000;

/// How the tokens of a period arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refill {
    /// Evenly over the period.
    Continuous,
    /// All at once. The next step comes within these bounds after the newest sample.
    Stepwise { next_us: (u64, u64) },
    /// The samples allow both.
    Unknown,
}

/// Which of the moments that the samples allow the steps of a refill happen at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steps {
    Early,
    Middle,
    Late,
}

/// The average rate of the refill.
pub(crate) fn refill_rate(limit: ReportedLimit) -> Rate {
    i128::from(limit.refill_tokens()) * TOKEN / i128::from(limit.period_us())
}

impl Refill {
    /// Infers the mode from an unbroken run of samples, the newest last, taken at `times_us`.
    ///
    /// Without credits a level that rises by more than the average refill proves steps. A run of two
    /// periods in which no sample lies a third of a step off the line shows that there are none.
    pub(crate) fn of(run: &[Sample], times_us: &[u64], credits: Credits, error_us: u64) -> Self {
        let Some(newest) = run.last() else {
            return Self::Unknown;
        };
        let limit = newest.limit();
        let (period_us, step) = (limit.period_us(), i128::from(limit.refill_tokens()));
        if step == 0 {
            return Self::Continuous;
        }
        let mut phase: Option<(u64, u64)> = None;
        if credits == Credits::Never {
            for index in 1..run.len() {
                let span_us = times_us[index] - times_us[index - 1];
                let rise = i128::from(run[index].level()) - i128::from(run[index - 1].level());
                let even = i128::from(span_us + error_us) * refill_rate(limit) / TOKEN + 1;
                if rise > even {
                    let from_us = times_us[index - 1].saturating_sub(error_us);
                    let found = (from_us, times_us[index] + error_us);
                    phase = Some(phase.map_or(found, |known| narrow(known, found, period_us)));
                }
            }
        }
        if let Some((from_us, until_us)) = phase {
            let now_us = times_us.last().copied().unwrap_or(0);
            return Self::Stepwise {
                next_us: next_step(from_us, until_us, now_us, period_us),
            };
        }
        if shows_no_step(run, times_us, period_us, error_us) {
            return Self::Continuous;
        }
        Self::Unknown
    }

    /// The least and the most steps within the `span_us` before the newest sample.
    pub(crate) fn steps_within(self, span_us: u64, period_us: u64, error_us: u64) -> (u64, u64) {
        match self {
            Self::Stepwise {
                next_us: (from_us, until_us),
            } if until_us - from_us < period_us => {
                // The steps lie at next − period, next − 2 × period and so on before now.
                let count = |next_us: u64, span_us: u64| (span_us + next_us) / period_us;
                let least = count(from_us, span_us.saturating_sub(error_us));
                (least, count(until_us, span_us + error_us).max(least))
            }
            _ => (
                span_us.saturating_sub(error_us) / period_us,
                span_us.saturating_add(error_us).div_ceil(period_us),
            ),
        }
    }

    /// The time until the level has fallen by `distance` tokens at this rate of consumption; `None`
    /// if it never does. `room` is what is missing to a full bucket, in tokens.
    pub(crate) fn time_to_fall_us(
        self,
        distance: i128,
        room: i128,
        rate: Rate,
        limit: ReportedLimit,
        steps: Steps,
    ) -> Option<u64> {
        if distance <= 0 {
            return Some(0);
        }
        let even = || {
            let net = rate - refill_rate(limit);
            (net > 0).then(|| micros(distance.saturating_mul(TOKEN) / net))
        };
        let stepwise = |next_us| fall_between_steps_us(distance, room, rate, limit, next_us);
        match (self, steps) {
            (Self::Continuous, _) | (Self::Unknown, Steps::Middle) => even(),
            (Self::Stepwise { next_us }, Steps::Late) => stepwise(next_us.1),
            (Self::Stepwise { next_us }, Steps::Early) => stepwise(next_us.0),
            (Self::Stepwise { next_us }, Steps::Middle) => {
                stepwise(u64::midpoint(next_us.0, next_us.1))
            }
            // Before the first step that is missing, a continuous bucket has more tokens.
            (Self::Unknown, Steps::Late) => {
                let stepwise = stepwise(limit.period_us());
                even().into_iter().chain(stepwise).min()
            }
            (Self::Unknown, Steps::Early) => Some(even()?.max(stepwise(0)?)),
        }
    }
}

/// The time to fall by `distance` when the next step comes after `next_us` and lifts the level, at
/// most to full.
fn fall_between_steps_us(
    distance: i128,
    room: i128,
    rate: Rate,
    limit: ReportedLimit,
    next_us: u64,
) -> Option<u64> {
    if rate <= 0 {
        return None;
    }
    let (period_us, next) = (i128::from(limit.period_us()), i128::from(next_us));
    let step = i128::from(limit.refill_tokens()) * TOKEN;
    let (level, full) = (distance * TOKEN, (distance + room) * TOKEN);
    let until_step = rate.saturating_mul(next);
    if level <= until_step {
        return Some(micros(level / rate));
    }
    let gain = rate.saturating_mul(period_us) - step;
    if level - until_step + step > full {
        // The step finds the bucket nearly full, so a part of it is lost.
        let after = next.saturating_add(micros_signed(full, rate, period_us, gain, step)?);
        return Some(micros(after));
    }
    if gain <= 0 {
        return None;
    }
    let steps = (level - until_step).div_ceil_positive(gain);
    Some(micros(
        level.saturating_add(steps.saturating_mul(step)) / rate,
    ))
}

/// The time from a step that filled the bucket until it is empty.
fn micros_signed(full: i128, rate: Rate, period_us: i128, gain: i128, step: i128) -> Option<i128> {
    let in_period = rate.saturating_mul(period_us);
    if full <= in_period {
        return Some(full / rate);
    }
    if gain <= 0 {
        return None;
    }
    let steps = (full - in_period).div_ceil_positive(gain);
    Some(full.saturating_add(steps.saturating_mul(step)) / rate)
}

trait DivCeil {
    fn div_ceil_positive(self, by: Self) -> Self;
}

impl DivCeil for i128 {
    fn div_ceil_positive(self, by: Self) -> Self {
        (self + by - 1) / by
    }
}

pub(crate) fn micros(us: i128) -> u64 {
    u64::try_from(us.max(0)).unwrap_or(u64::MAX)
}

/// Intersects two ranges of moments at which a step happened, modulo the period.
fn narrow(known: (u64, u64), found: (u64, u64), period_us: u64) -> (u64, u64) {
    if found.1 - found.0 >= period_us {
        return known;
    }
    let periods = found.0.saturating_sub(known.0) / period_us;
    // The older range as it repeats at the newer one, or one period later.
    for periods in [periods, periods + 1] {
        let shift_us = periods.saturating_mul(period_us);
        let both = (
            found.0.max(known.0.saturating_add(shift_us)),
            found.1.min(known.1.saturating_add(shift_us)),
        );
        if both.0 <= both.1 {
            return both;
        }
    }
    found
}

/// When the next step comes after `now_us`, at the earliest and at the latest, given one step within
/// a range.
fn next_step(from_us: u64, until_us: u64, now_us: u64, period_us: u64) -> (u64, u64) {
    let width_us = until_us.saturating_sub(from_us);
    if width_us >= period_us {
        return (0, period_us);
    }
    // The last repetition that may have been before now.
    let periods = now_us.saturating_sub(from_us) / period_us;
    let last_us = from_us.saturating_add(periods.saturating_mul(period_us));
    let since_us = now_us.saturating_sub(last_us);
    if since_us < width_us {
        // It may be still to come.
        return (0, period_us - since_us + width_us);
    }
    (period_us - since_us, period_us - since_us + width_us)
}

/// Returns true if somewhere in the run two periods pass, with samples at least every third of a
/// period and the bucket never full, in which no level lies a third of a step above what the others
/// lead to expect.
fn shows_no_step(run: &[Sample], times_us: &[u64], period_us: u64, error_us: u64) -> bool {
    let is_full =
        |sample: &Sample| i128::from(sample.level()) >= i128::from(sample.limit().capacity());
    let stretch_us = period_us.saturating_mul(2).saturating_add(2 * error_us);
    let mut from = 0;
    for until in 1..run.len() {
        let span_us = times_us[until] - times_us[until - 1];
        let is_sparse = span_us.saturating_mul(3) > period_us;
        if is_sparse || is_full(&run[until]) || is_full(&run[until - 1]) {
            from = until;
            continue;
        }
        while from + 1 < until && times_us[until] - times_us[from + 1] >= stretch_us {
            from += 1;
        }
        if times_us[until] - times_us[from] < stretch_us {
            continue;
        }
        let total_us = i128::from(times_us[until] - times_us[from]);
        let step = i128::from(run[until].limit().refill_tokens());
        let net = i128::from(run[until].level()) - i128::from(run[from].level());
        let is_jump = |index: usize| {
            let rise = i128::from(run[index].level()) - i128::from(run[index - 1].level());
            let span_us = i128::from(times_us[index] - times_us[index - 1]);
            (rise * total_us - net * span_us) * 3 >= step * total_us
        };
        if !(from + 1..=until).any(is_jump) {
            return true;
        }
    }
    false
}
