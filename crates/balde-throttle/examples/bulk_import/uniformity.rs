//! How evenly records leave for the store, from second to second.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

/// Records that left in each second since the start.
#[derive(Default)]
pub(crate) struct SecondCounts(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    by_second: Vec<u64>,
    /// The first second that does not count any more.
    end: Option<usize>,
}

/// The standard deviation of the records that left in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uniformity {
    pub(crate) seconds: usize,
    /// In thousandths of a percent of the rate.
    pub(crate) deviation: u64,
}

impl SecondCounts {
    /// Counts records that leave now.
    pub(crate) fn count(&self, elapsed: Duration, records: u64) {
        let second = second(elapsed);
        let mut counts = self.0.lock().expect("nothing panics here");
        if counts.by_second.len() <= second {
            counts.by_second.resize(second + 1, 0);
        }
        counts.by_second[second] += records;
    }

    /// From now on there is not enough to send, and less leaves than may.
    pub(crate) fn end(&self, elapsed: Duration) {
        let mut counts = self.0.lock().expect("nothing panics here");
        counts.end.get_or_insert(second(elapsed));
    }

    /// How evenly records left at `rate` a second; `None` if the import was too short.
    pub(crate) fn uniformity(&self, rate: u64) -> Option<Uniformity> {
        let counts = self.0.lock().expect("nothing panics here");
        let end = counts.end.unwrap_or(0).min(counts.by_second.len());
        let seconds = &counts.by_second[..end];
        let len = seconds.len() as u64;
        let mean = seconds.iter().sum::<u64>().checked_div(len)?;
        let squares: u64 = seconds.iter().map(|one| one.abs_diff(mean).pow(2)).sum();
        // In thousandths of a percent, squared, before the root.
        let variance = u128::from(squares) * 100_000 * 100_000 / u128::from(len);
        let deviation = (variance / (u128::from(rate) * u128::from(rate))).isqrt();
        Some(Uniformity {
            seconds: seconds.len(),
            deviation: u64::try_from(deviation).unwrap_or(u64::MAX),
        })
    }
}

fn second(elapsed: Duration) -> usize {
    usize::try_from(elapsed.as_secs()).unwrap_or(usize::MAX)
}

impl fmt::Display for Uniformity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.deviation / 1_000, self.deviation % 1_000);
        write!(
            f,
            "σ {whole}.{thousandths:03} % of the rate, over {} saturated seconds",
            self.seconds
        )
    }
}
