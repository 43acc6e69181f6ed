//! The present rate of consumption and its bounds, from the newest samples backwards.
//!
//! Every look-back from some sample to the newest one has a rate of its own. Where they differ, the
//! rate is changing, and the newest evidence decides what is expected; the fastest and the slowest
//! of them, each with the noise of its length, bound what may come. A look-back never reaches
//! beyond a sample that shows a full bucket: what a full bucket gives away is not visible, so it
//! agrees with every rate.

use crate::analyse::AnalysisSettings;
use crate::analyse::refill::{Rate, Refill, Steps, TOKEN, micros, refill_rate};
use crate::sample::{ReportedLimit, Sample};

/// How many standard deviations a rate must differ from the one after it to count as a change.
const CHANGE_SIGMAS: i128 = 3;

/// How many standard deviations the bounds are away from the rate of a look-back.
const BOUND_SIGMAS: i128 = 3;

/// A burst may begin anywhere in the interval between two samples: its rate may be this many times
/// the rise that the interval shows.
const ONSET: i128 = 4;

/// The bounds consider look-backs of up to this many times the expected time.
const REACH: i128 = 3;

/// The least number of intervals at one rate that count as evidence. A few may be a burst.
const INTERVALS_MIN: usize = 4;

/// How many tenths of its standard deviation the rate must be above the refill.
const SIGNIFICANT_TENTHS: i128 = 10;

/// The time that the bounds look ahead if no time is expected.
const DEFAULT_HORIZON_US: u64 = 300_000_000;

/// The latest time follows from look-backs that are at least this share of the expected time.
const PAUSE_PCT: u64 = 10;

/// A latest time is given if the rate has lasted for this share of the expected time.
const MEDIUM_EVIDENCE_PCT: u64 = 500;

/// One look-back: what was consumed between some sample and the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LookBack {
    span_us: u64,
    /// Bounds on the consumption and its estimate, in tokens × [`TOKEN`].
    low: i128,
    expected: i128,
    high: i128,
    /// The rate of the interval just before this look-back, of about the same length.
    before: Option<Rate>,
}

impl LookBack {
    fn rate(&self, tokens: i128) -> Rate {
        tokens / i128::from(self.span_us.max(1))
    }
}

/// What the samples of a bucket say about the future of its level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outlook {
    level: i64,
    limit: ReportedLimit,
    refill: Refill,
    look_backs: Vec<LookBack>,
    expected: Rate,
    /// The variance of the consumption in units of its mean: 1,000 for single requests at random
    /// times, more if they come in groups.
    dispersion_milli: i128,
    /// How long consumption has been at the expected rate; zero if too few samples say so.
    evidence_us: u64,
    /// The standard deviation of the expected rate.
    deviation: Rate,
}

/// When a level is reached: at the earliest, as expected, and at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeBounds {
    pub(crate) earliest_us: u64,
    pub(crate) expected_us: Option<u64>,
    pub(crate) latest_us: Option<u64>,
    /// How many times as long as the expected time the rate has been observed, in percent.
    pub(crate) evidence_pct: u64,
}

impl Outlook {
    /// Computes the outlook from the samples of one bucket, the newest last; `None` if they do not
    /// show any consumption: fewer than two comparable samples, or a full bucket.
    pub(crate) fn of(run: &[Sample], settings: &AnalysisSettings) -> Option<Self> {
        let newest = run.last()?;
        let limit = newest.limit();
        let times_us = times_us(run);
        // No farther back than the longest window.
        let reach_us = settings.windows_us().last().copied().unwrap_or(0);
        let since_us = times_us.last()?.saturating_sub(reach_us);
        let recent = times_us.partition_point(|us| *us < since_us);
        let (run, times_us) = (&run[recent..], &times_us[recent..]);
        let error_us = settings.timestamp_error_us();
        let refill = Refill::of(run, times_us, settings.credits(), error_us);
        let is_full = |sample: &Sample| i128::from(sample.level()) >= i128::from(limit.capacity());
        let start = run.iter().rposition(is_full).unwrap_or(0);
        let is_from_full = run.get(start).is_some_and(is_full);
        let run = Run {
            samples: &run[start..],
            times_us: &times_us[start..],
            refill,
            settings,
            is_from_full,
        };
        let look_backs = run.look_backs();
        let first = look_backs.first()?;
        let intervals = run.intervals();
        let dispersion_milli = dispersion_milli(&intervals);
        let slack = run.slack();
        // The interval that begins with a full bucket may have begun with a pause.
        let oldest = usize::from(is_from_full && intervals.len() > 1);
        let (mut tokens, mut span_us) = (first.expected, i128::from(first.span_us));
        let mut agreeing = 1;
        // Until the mode of the refill is known, a step may be on either side of a sample.
        let slack = match refill {
            Refill::Unknown => slack + i128::from(limit.refill_tokens()) * TOKEN,
            Refill::Continuous | Refill::Stepwise { .. } => slack,
        };
        for &(used, us) in intervals[oldest..].iter().rev().skip(1) {
            let us = i128::from(us);
            if is_other_rate((tokens, span_us), (used, us), dispersion_milli, slack) {
                break;
            }
            tokens += used;
            span_us += us;
            agreeing += 1;
        }
        let expected = tokens / span_us.max(1);
        let evidence = &intervals[intervals.len().saturating_sub(agreeing)..];
        let is_evidence = agreeing >= INTERVALS_MIN
            && is_sustained(evidence, expected - refill_rate(limit), refill_rate(limit));
        let least = TOKEN / span_us.max(1);
        let variance = expected.max(least) * dispersion_milli * 1_000_000_000 / span_us.max(1);
        Some(Self {
            level: newest.level(),
            limit,
            refill,
            expected,
            look_backs,
            dispersion_milli,
            evidence_us: if is_evidence { micros(span_us) } else { 0 },
            deviation: variance.isqrt(),
        })
    }

    /// When `tokens` will be left; `None` if not even the highest rate leads there.
    pub(crate) fn time_to(&self, tokens: i64) -> Option<TimeBounds> {
        let distance = i128::from(self.level) - i128::from(tokens);
        let room = i128::from(self.limit.capacity()) - i128::from(self.level);
        let fall = |distance: i128, rate, steps| {
            self.refill
                .time_to_fall_us(distance, room.max(0), rate, self.limit, steps)
        };
        // A rate that is above the refill by chance leads nowhere.
        let net = self.expected - refill_rate(self.limit);
        let is_significant = net * 10 >= self.deviation * SIGNIFICANT_TENTHS;
        let expected_us = fall(distance, self.expected, Steps::Middle).filter(|_| is_significant);
        let horizon_us = expected_us.unwrap_or(self.evidence_us.max(DEFAULT_HORIZON_US));
        let reach_us = i128::from(horizon_us).saturating_mul(REACH);
        let within = |look_back: &&LookBack| i128::from(look_back.span_us) <= reach_us;
        let considered = self
            .look_backs
            .iter()
            .take(1)
            .chain(self.look_backs.iter().skip(1).filter(within));
        let (mut slowest, mut fastest) = (self.expected, self.expected);
        for (index, look_back) in considered.enumerate() {
            let noise = self.noise(look_back, horizon_us);
            let (rise, fall) = look_back.trend(horizon_us, index == 0);
            fastest = fastest.max(look_back.rate(look_back.high) + noise + rise);
            // A short pause says little about a time that is much longer.
            if u128::from(look_back.span_us) * 100 >= u128::from(horizon_us) * u128::from(PAUSE_PCT)
            {
                slowest = slowest.min(look_back.rate(look_back.low) - noise - fall);
            }
        }
        // The level is rounded down to whole tokens, at both ends.
        let earliest_us = fall(distance - 1, fastest, Steps::Late)?;
        let horizon_us = horizon_us.max(1);
        let is_proven = expected_us.is_some()
            && self.evidence_us.saturating_mul(100) / horizon_us >= MEDIUM_EVIDENCE_PCT;
        let latest_us = fall(distance, slowest, Steps::Early).filter(|_| is_proven);
        Some(TimeBounds {
            earliest_us: earliest_us.min(expected_us.unwrap_or(u64::MAX)),
            expected_us,
            latest_us: latest_us.map(|us| us.max(expected_us.unwrap_or(0))),
            evidence_pct: self.evidence_us.saturating_mul(100) / horizon_us,
        })
    }

    /// The time until the level has risen by `distance` tokens at the expected rate; `None` if it
    /// never does.
    pub(crate) fn time_to_rise_us(&self, distance: i128) -> Option<u64> {
        let net = refill_rate(self.limit) - self.expected;
        (net > 0).then(|| micros(distance.saturating_mul(TOKEN) / net))
    }

    /// How far the average rate of the next `horizon_us` may be off that of a look-back by chance.
    fn noise(&self, look_back: &LookBack, horizon_us: u64) -> Rate {
        let one = TOKEN / i128::from(look_back.span_us.max(1));
        let rate = look_back.rate(look_back.expected).max(one);
        let scaled = rate * self.dispersion_milli * 1_000_000_000;
        let variance =
            scaled / i128::from(look_back.span_us.max(1)) + scaled / i128::from(horizon_us);
        BOUND_SIGMAS * variance.isqrt()
    }
}

impl LookBack {
    /// How much faster, and how much slower, consumption may become within `horizon_us` if it goes
    /// on changing as it did between the time before this look-back and the look-back itself.
    fn trend(&self, horizon_us: u64, is_newest: bool) -> (Rate, Rate) {
        let Some(before) = self.before else {
            return (0, 0);
        };
        let span_us = i128::from(self.span_us.max(1));
        // On a line, the next average is (1 + horizon / span) / 2 differences away.
        let halves = (1 + i128::from(horizon_us) / span_us).clamp(1, 2 * ONSET);
        let halves = if is_newest {
            halves.max(2 * (ONSET - 1))
        } else {
            halves
        };
        let change = (self.rate(self.expected) - before) * halves / 2;
        (change.max(0), (-change).max(0))
    }
}

/// Samples without a break, of which only the first may show a full bucket.
struct Run<'a> {
    samples: &'a [Sample],
    times_us: &'a [u64],
    refill: Refill,
    settings: &'a AnalysisSettings,
    is_from_full: bool,
}

impl Run<'_> {
    /// What two levels and their times leave open about the consumption between them.
    fn slack(&self) -> i128 {
        let error_us = i128::from(self.settings.timestamp_error_us());
        TOKEN + refill_rate(self.samples[0].limit()) * error_us
    }

    /// The consumption from each sample to the newest one, the shortest look-back first.
    fn look_backs(&self) -> Vec<LookBack> {
        let (Some(newest), Some(&now_us)) = (self.samples.last(), self.times_us.last()) else {
            return Vec::new();
        };
        let limit = newest.limit();
        let (period_us, rate) = (limit.period_us(), refill_rate(limit));
        let (step, slack) = (i128::from(limit.refill_tokens()) * TOKEN, self.slack());
        let error_us = self.settings.timestamp_error_us();
        let mut look_backs: Vec<LookBack> = Vec::with_capacity(self.samples.len());
        for index in (0..self.samples.len() - 1).rev() {
            let span_us = now_us - self.times_us[index];
            if span_us == 0 {
                continue;
            }
            let fall =
                (i128::from(self.samples[index].level()) - i128::from(newest.level())) * TOKEN;
            let even = fall + rate * i128::from(span_us);
            let (least, most) = self.refill.steps_within(span_us, period_us, error_us);
            let (least, most) = (i128::from(least) * step, i128::from(most) * step);
            let (stepped_low, stepped_high) = (fall + least - TOKEN, fall + most + TOKEN);
            let (low, expected, high) = match self.refill {
                Refill::Continuous => (even - slack, even, even + slack),
                Refill::Stepwise { .. } => (
                    stepped_low,
                    fall + i128::midpoint(least, most),
                    stepped_high,
                ),
                Refill::Unknown if span_us < period_us => {
                    (stepped_low.min(even - slack), even, even + slack)
                }
                Refill::Unknown => (
                    stepped_low.min(even - slack),
                    even,
                    stepped_high.max(even + slack),
                ),
            };
            let is_clipped = index == 0 && self.is_from_full;
            look_backs.push(LookBack {
                span_us,
                low: if is_clipped { low.min(fall) } else { low },
                expected,
                high,
                before: None,
            });
        }
        self.compare_with_before(&mut look_backs, rate);
        look_backs
    }

    /// Finds the rate before each look-back.
    fn compare_with_before(&self, look_backs: &mut [LookBack], refill: Rate) {
        // The look-back that begins with a full bucket may contain a pause.
        let usable = look_backs
            .len()
            .saturating_sub(usize::from(self.is_from_full));
        for index in 0..look_backs.len() {
            let own = look_backs[index];
            let farther = look_backs.get(index + 1..usable).unwrap_or_default();
            let wanted_us = own.span_us.saturating_mul(2);
            let found = farther.partition_point(|other| other.span_us < wanted_us);
            let other = farther.get(found).or(farther.last());
            let other = other.filter(|other| (other.span_us - own.span_us) * 2 >= own.span_us);
            let before = other.map(|other| {
                (other.expected - own.expected) / i128::from(other.span_us - own.span_us)
            });
            // A full bucket has used at most the refill.
            let when_full = || {
                self.is_from_full
                    .then(|| refill.min(own.rate(own.expected)))
            };
            look_backs[index].before = before.or_else(when_full);
        }
    }

    /// The consumption between each two samples, and the time between them, the oldest first.
    fn intervals(&self) -> Vec<(i128, u64)> {
        let mut look_backs = self.look_backs();
        look_backs.reverse();
        let mut intervals: Vec<(i128, u64)> = look_backs
            .windows(2)
            .map(|pair| {
                (
                    pair[0].expected - pair[1].expected,
                    pair[0].span_us - pair[1].span_us,
                )
            })
            .collect();
        intervals.extend(look_backs.last().map(|last| (last.expected, last.span_us)));
        intervals
    }
}

/// Returns true if what was used before differs from what was used since by more than chance.
fn is_other_rate(
    since: (i128, i128),
    before: (i128, i128),
    dispersion_milli: i128,
    slack: i128,
) -> bool {
    let ((since, since_us), (before, before_us)) = (since, before);
    let whole_us = (since_us + before_us).max(1);
    let apart = (before * since_us - since * before_us).abs() / whole_us;
    // In thousandths of a token, whose squares do not overflow.
    let mean = (since + before).max(0) / (TOKEN / 1_000);
    let variance = mean * dispersion_milli * since_us / whole_us * before_us / whole_us;
    apart > CHANGE_SIGMAS * variance.isqrt() * (TOKEN / 1_000) + slack
}

/// Returns true if each half of the evidence shows at least half of `net`, the rate above the refill.
/// A burst agrees with an hour at the rate of the refill if it is smaller than the step by which the
/// refill is uncertain. The hour's average is then above the refill, because of the burst alone.
fn is_sustained(evidence: &[(i128, u64)], net: Rate, refill: Rate) -> bool {
    let sum = |part: &[(i128, u64)]| {
        part.iter().fold((0, 0), |(tokens, span_us), &(used, us)| {
            (tokens + used, span_us + i128::from(us))
        })
    };
    let whole_us = sum(evidence).1;
    let mut older_us = 0;
    let older = evidence.iter().take_while(|(_, us)| {
        older_us += i128::from(*us);
        older_us * 2 <= whole_us
    });
    let (older, newer) = evidence.split_at(older.count());
    [older, newer]
        .map(sum)
        .iter()
        .all(|(tokens, span_us)| *span_us > 0 && (tokens / span_us - refill) * 2 >= net)
}

/// The times of samples relative to the first, by the server's clock where it is known.
fn times_us(run: &[Sample]) -> Vec<u64> {
    let mut at_us = 0_u64;
    let mut times_us = vec![0; usize::from(!run.is_empty())];
    for pair in run.windows(2) {
        at_us = at_us.saturating_add(pair[0].us_until(&pair[1]).unwrap_or(0));
        times_us.push(at_us);
    }
    times_us
}

/// The variance of the consumption in units of its mean, from the differences between neighbouring
/// intervals. The median ignores a few changes of the rate.
fn dispersion_milli(intervals: &[(i128, u64)]) -> i128 {
    let mut found: Vec<i128> = intervals
        .windows(2)
        .filter_map(|pair| {
            let [(one, one_us), (other, other_us)] = [pair[0], pair[1]]
                .map(|(used, us)| (used.max(0) / (TOKEN / 1_000), i128::from(us / 1_000)));
            let apart = one * other_us - other * one_us;
            let scale = (one + other) * one_us * other_us;
            (scale > 0).then(|| apart.saturating_mul(apart) / scale)
        })
        .collect();
    if found.len() < 3 {
        return 2_000;
    }
    let middle = found.len() / 2;
    let (_, median, _) = found.select_nth_unstable(middle);
    // The median of a squared normal number is 0.455 of its mean.
    (*median * 22 / 10).max(1_000)
}
