//! How soon a participant is polled again.

use crate::analyse::Assessment;
use crate::schedule::cron::Cron;
use crate::severity::Severity;

/// The policy that limits polling itself. It never shortens the interval: polling more often because
/// its bucket is low would empty it.
pub const POLICIES_LIST: &str = "POLICIES_LIST";

/// The shortest time between two polls of a participant: five a minute, which leaves one of the six
/// that DICT allows to other clients.
pub const POLL_INTERVAL_MIN_US: u64 = 12_000_000;

/// How often a bucket at WARNING or worse is polled.
const LOW_INTERVAL_US: u64 = 20_000_000;

/// The interval when the cron expression has no next time, which is after the year 9999.
const FALLBACK_US: u64 = 300_000_000;

/// Whether polls are frequent enough to notice short peaks of consumption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeakDetection {
    /// Polls so often that no bucket can be emptied and refill to above WARNING between two polls. A
    /// bucket of 50 that refills 10 a minute is polled every minute, one of 70 that refills 70 a
    /// minute four times a minute.
    #[default]
    Enabled,
    /// Polls between the times of the cron expression only if a bucket was low or falling.
    Disabled,
}

/// When to poll: at the times of a cron expression, and sooner for low or falling buckets.
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

    /// When to poll next, given the buckets of the newest poll. The next time of the cron expression
    /// is brought forward
    ///
    /// - while a bucket is at WARNING or worse,
    /// - if a bucket is forecast to be at WARNING or empty before that time: then to half the
    ///   forecast time, so that the forecast is verified before it comes true,
    /// - if a peak could go unnoticed, with [`PeakDetection::Enabled`].
    pub fn next_us(&self, now_us: u64, assessments: &[Assessment<'_>]) -> u64 {
        let next_cron_us = self.next_cron_us(now_us);
        let watched = assessments
            .iter()
            .filter(|assessment| assessment.sample().bucket().policy() != POLICIES_LIST);
        let wanted_us = watched
            .filter_map(|assessment| self.interval_us(assessment))
            .min()
            .map_or(u64::MAX, |us| us.max(POLL_INTERVAL_MIN_US));
        // The next cron time may be a moment after this poll, which then counts for it, too.
        next_cron_us
            .min(now_us.saturating_add(wanted_us))
            .max(now_us.saturating_add(POLL_INTERVAL_MIN_US))
    }

    fn interval_us(&self, assessment: &Assessment<'_>) -> Option<u64> {
        let low = (assessment.severity() >= Severity::Warning).then_some(LOW_INTERVAL_US);
        let halfway = [Severity::Warning, Severity::Exhausted].map(|severity| {
            let us = assessment.time_to(severity)?.expected_us()?;
            (us > 0).then_some(us / 2)
        });
        let unseen = match self.peak_detection {
            PeakDetection::Enabled => unnoticed_us(assessment),
            PeakDetection::Disabled => None,
        };
        [low, halfway[0], halfway[1], unseen]
            .into_iter()
            .flatten()
            .min()
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
fn unnoticed_us(assessment: &Assessment<'_>) -> Option<u64> {
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
