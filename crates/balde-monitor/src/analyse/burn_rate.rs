//! How fast a bucket is consumed, over several windows.

use crate::analyse::AnalysisSettings;
use crate::analyse::consumption::{Consumption, saturated};
use crate::sample::Sample;

/// The most samples that are looked back at, from the newest.
pub const LOOKBACK_SAMPLES_MAX: usize = 512;

/// What left a bucket in the last stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurnRate {
    window_us: u64,
    samples: usize,
    consumption: Consumption,
    expected: i64,
    is_upper_bound: bool,
}

impl BurnRate {
    /// The window it was asked for.
    pub const fn window_us(&self) -> u64 {
        self.window_us
    }

    /// The time that the samples within the window really cover.
    pub const fn span_us(&self) -> u64 {
        self.consumption.span_us
    }

    /// From how many samples.
    pub const fn samples(&self) -> usize {
        self.samples
    }

    /// At least so many tokens left in that time.
    pub const fn at_least(&self) -> i64 {
        self.consumption.at_least
    }

    /// At most so many.
    pub const fn at_most(&self) -> i64 {
        self.consumption.at_most
    }

    /// The fall in level and the refill at its even rate, within the bounds: the best single guess.
    /// For a bucket that stayed full it is the refill itself, because all of that may have been used.
    pub const fn expected(&self) -> i64 {
        self.expected
    }

    /// Whether [`expected`](BurnRate::expected) is no guess but only the most it can have been: the
    /// bucket was full whenever it was looked at, and what came back to it was lost unseen.
    pub const fn is_upper_bound(&self) -> bool {
        self.is_upper_bound
    }

    /// [`expected`](BurnRate::expected) as thousandths of a token per minute, for display.
    pub fn expected_milli_per_minute(&self) -> i64 {
        let span = i128::from(self.span_us().max(1));
        saturated(i128::from(self.expected) * 60_000_000 * 1_000 / span)
    }
}

/// The burn_rates of each window for which there are samples, the shortest first. `history` is one
/// bucket's, the newest last.
///
/// A window reaches back as far as the samples do without a gap: more than
/// [`gap_max_us`](AnalysisSettings::gap_max_us) between two, other limit, or a clock that went back. Polls that
/// come a little late must not empty a window of their own length, so each reaches a tenth
/// further. A window with fewer than two samples says nothing.
pub(crate) fn burn_rates(history: &[Sample], settings: &AnalysisSettings) -> Vec<BurnRate> {
    let history = &history[history.len().saturating_sub(LOOKBACK_SAMPLES_MAX)..];
    let Some(newest) = history.last() else {
        return Vec::new();
    };
    let run = unbroken(history, settings);
    let known = consumption_until_newest(run, settings);

    let mut found: Vec<BurnRate> = Vec::new();
    for &window_us in settings.windows_us() {
        let reach_us = window_us.saturating_add(window_us / 10);
        // The oldest sample within reach; the newest itself spans nothing.
        let oldest = known
            .iter()
            .position(|known| known.span_us <= reach_us)
            .filter(|&index| known[index].span_us > 0);
        let Some(index) = oldest else { continue };
        found.push(burn(window_us, known[index], &run[index..], newest));
    }
    found
}

/// Of the samples from the oldest of a window to the newest.
fn burn(window_us: u64, consumption: Consumption, run: &[Sample], newest: &Sample) -> BurnRate {
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

/// What left between the two newest samples, if nothing is between them: the most present there is.
pub(crate) fn newest(history: &[Sample], settings: &AnalysisSettings) -> Option<BurnRate> {
    let run = unbroken(&history[history.len().saturating_sub(2)..], settings);
    let known = consumption_until_newest(run, settings);
    let (consumption, newest) = (*known.first()?, run.last()?);
    (consumption.span_us > 0).then(|| burn(consumption.span_us, consumption, run, newest))
}

/// The newest samples without a gap between any two of them.
fn unbroken<'a>(history: &'a [Sample], settings: &AnalysisSettings) -> &'a [Sample] {
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

/// For every sample of an unbroken run, what was consumed from it to the newest.
///
/// Each pair of samples bounds what left between them, and every way of going from one to the
/// newest over samples in between bounds it too: long strides know the number of refills best,
/// short ones see most of what a full bucket hides. The best of all ways is taken.
fn consumption_until_newest(run: &[Sample], settings: &AnalysisSettings) -> Vec<Consumption> {
    let nothing = Consumption {
        at_least: 0,
        at_most: 0,
        span_us: 0,
    };
    let mut known = vec![nothing; run.len()];
    for from in (0..run.len().saturating_sub(1)).rev() {
        let way = |to: usize| {
            // Mixed clocks may refuse a stride whose parts compare.
            let error_us = settings.timestamp_error_us();
            Consumption::between(&run[from], &run[to], settings.credits(), error_us)
                .map(|stride| stride.and_then(known[to]))
        };
        // In an unbroken run the next sample always compares, so there is a best way.
        let best = (from + 1..run.len())
            .filter_map(way)
            .reduce(Consumption::and);
        known[from] = best.map_or(nothing, |best| Consumption {
            // Bounds can contradict each other only when tokens were given without notice.
            at_least: best.at_least.min(best.at_most),
            ..best
        });
    }
    known
}
