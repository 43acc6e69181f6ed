//! Burn rates: how many tokens left a bucket within each look-back window.

use crate::analyse::AnalysisSettings;
use crate::analyse::consumption::{Consumption, saturated};
use crate::sample::Sample;

/// The most samples, counted from the newest, that an analysis uses.
pub const LOOKBACK_SAMPLES_MAX: usize = 512;

/// The consumption of one bucket within a look-back window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurnRate {
    window_us: u64,
    samples: usize,
    consumption: Consumption,
    expected: i64,
    is_upper_bound: bool,
}

impl BurnRate {
    /// The configured length of the window.
    pub const fn window_us(&self) -> u64 {
        self.window_us
    }

    /// The time actually covered by the samples within the window.
    pub const fn span_us(&self) -> u64 {
        self.consumption.span_us
    }

    /// The number of samples within the window.
    pub const fn samples(&self) -> usize {
        self.samples
    }

    /// The lower bound on the tokens consumed in [`span_us`](BurnRate::span_us).
    pub const fn at_least(&self) -> i64 {
        self.consumption.at_least
    }

    /// The upper bound on the tokens consumed in [`span_us`](BurnRate::span_us).
    pub const fn at_most(&self) -> i64 {
        self.consumption.at_most
    }

    /// The best estimate of the tokens consumed: the fall in level plus the refill at its average
    /// rate, clamped to the bounds. For a bucket that stayed full this is the whole refill.
    pub const fn expected(&self) -> i64 {
        self.expected
    }

    /// Returns true if [`expected`](BurnRate::expected) is only an upper bound: every sample showed
    /// a full bucket, so any amount up to the refill may have been consumed.
    pub const fn is_upper_bound(&self) -> bool {
        self.is_upper_bound
    }

    /// [`expected`](BurnRate::expected) in thousandths of a token per minute, for display.
    pub fn expected_milli_per_minute(&self) -> i64 {
        let span = i128::from(self.span_us().max(1));
        saturated(i128::from(self.expected) * 60_000_000 * 1_000 / span)
    }
}

/// Computes the burn rate of each window that holds at least two samples, the shortest first.
/// `run` holds [`unbroken`] samples of one bucket, the newest last.
///
/// Each window accepts samples up to a tenth older than its length, so that a slightly late poll does
/// not leave a window of the polling interval's length empty.
pub(crate) fn burn_rates(run: &[Sample], settings: &AnalysisSettings) -> Vec<BurnRate> {
    let Some(newest) = run.last() else {
        return Vec::new();
    };
    let known = consumption_until_newest(run, settings);

    let mut found: Vec<BurnRate> = Vec::new();
    for &window_us in settings.windows_us() {
        let reach_us = window_us.saturating_add(window_us / 10);
        // The oldest sample within reach. The newest sample alone covers no time.
        let oldest = known
            .iter()
            .position(|known| known.span_us <= reach_us)
            .filter(|&index| known[index].span_us > 0);
        let Some(index) = oldest else { continue };
        found.push(burn_rate(window_us, known[index], &run[index..], newest));
    }
    found
}

/// Computes the burn rate of `run`, the samples of a window up to `newest`.
fn burn_rate(
    window_us: u64,
    consumption: Consumption,
    run: &[Sample],
    newest: &Sample,
) -> BurnRate {
    let limit = newest.limit();
    let even = i128::from(consumption.span_us) * i128::from(limit.refill_tokens())
        / i128::from(limit.period_us());
    let fall = i128::from(run[0].level()) - i128::from(newest.level());
    let is_full = |sample: &Sample| {
        u64::try_from(sample.level()).is_ok_and(|level| level >= limit.capacity())
    };
    BurnRate {
        window_us,
        samples: run.len(),
        consumption,
        expected: saturated(fall + even).clamp(consumption.at_least, consumption.at_most),
        is_upper_bound: consumption.at_least <= 0 && run.iter().all(is_full),
    }
}

/// Returns the newest samples that have no break between any two of them, at most
/// [`LOOKBACK_SAMPLES_MAX`]. A break is a gap longer than
/// [`gap_max_us`](AnalysisSettings::gap_max_us), a different limit, or a clock that stepped
/// backwards.
pub(crate) fn unbroken<'a>(history: &'a [Sample], settings: &AnalysisSettings) -> &'a [Sample] {
    let history = &history[history.len().saturating_sub(LOOKBACK_SAMPLES_MAX)..];
    let joins = |pair: &[Sample]| {
        pair[0].bucket() == pair[1].bucket()
            && pair[0].limit() == pair[1].limit()
            && pair[0]
                .us_until(&pair[1])
                .is_some_and(|us| us <= settings.gap_max_us())
    };
    let broken = history.windows(2).rposition(|pair| !joins(pair));
    &history[broken.map_or(0, |index| index + 1)..]
}

/// Computes, for every sample of an unbroken run, the consumption from it to the newest sample.
///
/// Every path from a sample to the newest over samples in between gives valid bounds. Long strides
/// bound the number of refills best; short strides see consumption that a full bucket would hide.
/// The result intersects the bounds of all paths.
fn consumption_until_newest(run: &[Sample], settings: &AnalysisSettings) -> Vec<Consumption> {
    let nothing = Consumption {
        at_least: 0,
        at_most: 0,
        span_us: 0,
    };
    let mut known = vec![nothing; run.len()];
    for from in (0..run.len().saturating_sub(1)).rev() {
        let path = |to: usize| {
            // When only some samples carry the server's time, a long stride may not be comparable
            // although its parts are.
            let error_us = settings.timestamp_error_us();
            Consumption::between(&run[from], &run[to], settings.credits(), error_us)
                .map(|stride| stride.and_then(known[to]))
        };
        // In an unbroken run the next sample is always comparable, so there is at least one path.
        let best = (from + 1..run.len())
            .filter_map(path)
            .reduce(Consumption::intersect);
        known[from] = best.map_or(nothing, |best| Consumption {
            // Bounds contradict each other only when tokens were credited unexpectedly.
            at_least: best.at_least.min(best.at_most),
            ..best
        });
    }
    known
}
