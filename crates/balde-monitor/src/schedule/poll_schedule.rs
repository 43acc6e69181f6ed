//! How soon a participant's buckets are asked for again.

use crate::analyse::Assessment;
use crate::schedule::cron::Cron;
use crate::severity::Severity;

/// The policy that limits listBucketStates.
pub const POLICIES_LIST: &str = "POLICIES_LIST";

/// The policy that limits getBucketState.
pub const POLICIES_READ: &str = "POLICIES_READ";

/// The shortest time between two list calls of a participant, and the first wait after a failure.
pub const POLL_INTERVAL_MIN_US: u64 = 12_000_000;

/// The shortest time between two reads of one bucket.
pub const READ_INTERVAL_MIN_US: u64 = 5_000_000;

/// How often a bucket at WARNING or worse is read.
const LOW_INTERVAL_US: u64 = 20_000_000;

/// The interval when the cron expression has no next time, which is after the year 9999.
const FALLBACK_US: u64 = 300_000_000;

/// Whether buckets are read often enough to notice short peaks of consumption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeakDetection {
    /// Reads a bucket that refills fast so often that it cannot be emptied and refill to above
    /// WARNING between two reads, as far as the budget allows. A bucket of 50 that refills 10 a
    /// minute is read every minute, one of 70 that refills 70 a minute four times a minute.
    #[default]
    Enabled,
    /// Reads buckets between the times of the cron expression only if they are low or falling.
    Disabled,
}

/// When to poll: all buckets at the times of a cron expression, and single ones in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollSchedule {
    cron: Cron,
    peak_detection: PeakDetection,
}

impl PollSchedule {
    /// Creates a schedule from a cron expression.
    pub fn new(cron: Cron, peak_detection: PeakDetection) -> Self {
        Self {
            cron,
            peak_detection,
        }
    }

    /// The next time of the cron expression.
    pub fn next_cron_us(&self, now_us: u64) -> u64 {
        let next = self.cron.next_after_us(now_us);
        next.unwrap_or(now_us.saturating_add(FALLBACK_US))
    }

    /// How long after its newest sample a bucket is read by itself; `None` if the calendar's list
    /// call is soon enough. That is the shortest of
    ///
    /// - 20 seconds while the bucket is at WARNING or worse,
    /// - half the forecast time until it is at WARNING or empty, so that a forecast is verified
    ///   before it comes true,
    /// - the time in which a peak could go unnoticed, with [`PeakDetection::Enabled`].
    ///
    /// The buckets of polling itself are never read by themselves: reading them because they are low
    /// would lower them.
    pub fn read_interval_us(&self, assessment: &Assessment<'_>) -> Option<u64> {
        if matches!(
            assessment.sample().bucket().policy(),
            POLICIES_LIST | POLICIES_READ
        ) {
            return None;
        }
        let low = (assessment.severity() >= Severity::Warning).then_some(LOW_INTERVAL_US);
        let halfway = [Severity::Warning, Severity::Exhausted].map(|severity| {
            let us = assessment.time_to(severity)?.expected_us()?;
            (us > 0).then_some(us / 2)
        });
        let unseen = match self.peak_detection {
            PeakDetection::Enabled => unnoticed_us(assessment),
            PeakDetection::Disabled => None,
        };
        let wanted = [low, halfway[0], halfway[1], unseen];
        let shortest_us = wanted.into_iter().flatten().min()?;
        Some(shortest_us.max(READ_INTERVAL_MIN_US))
    }
}

impl Default for PollSchedule {
    /// Every five minutes, with peak detection.
    fn default() -> Self {
        let cron = "*/5 * * * *".parse();
        Self::new(
            cron.expect("the default cron expression is valid"),
            PeakDetection::Enabled,
        )
    }
}

/// How long an emptied, unused bucket is certain to stay at WARNING or worse; `None` if it never
/// recovers. If a single refill step would lift it above WARNING, no time is certain, and the time at
/// the average refill rate is used instead.
pub(super) fn unnoticed_us(assessment: &Assessment<'_>) -> Option<u64> {
    let limit = assessment.sample().limit();
    let tokens = assessment.thresholds().tokens(Severity::Warning, limit)?;
    let tokens = u64::try_from(tokens).ok()?;
    if limit.refill_tokens() == 0 || limit.capacity() == 0 {
        return None;
    }
    let steps = tokens / limit.refill_tokens();
    if steps > 0 {
        return Some(steps.saturating_mul(limit.period_us()));
    }
    let even = u128::from(tokens) * u128::from(limit.period_us());
    u64::try_from(even / u128::from(limit.refill_tokens())).ok()
}
