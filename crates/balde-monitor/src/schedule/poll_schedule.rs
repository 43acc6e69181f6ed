//! How soon the buckets of a participant should be looked at again.

use crate::analyse::Assessment;
use crate::schedule::Cron;
use crate::severity::Severity;

/// The policy that asking itself draws on. It never makes the pace: asking more often because there
/// is little left to ask with would empty it.
pub const POLICIES_LIST: &str = "POLICIES_LIST";

/// The shortest time between two polls of a participant: five a minute, which leaves one of the six
/// that DICT grants to somebody with a question.
pub const POLL_INTERVAL_MIN_US: u64 = 12_000_000;

/// How often a low bucket is looked at.
const LOW_US: u64 = 20_000_000;

/// When no calendar line fires any more, which is after the year 9999.
const FALLBACK_US: u64 = 300_000_000;

/// Whether the pace takes care that no peak goes unseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeakDetection {
    /// No bucket shall be emptied and refill to above WARNING between two polls. A bucket of 50
    /// that gains 10 a minute needs a look every minute for that, one of 70 that gains 70 a minute
    /// four of them.
    #[default]
    Seen,
    /// Only what was low or falling at the last poll is looked at sooner than the calendar says.
    Missed,
}

/// How often to ask: a calendar, and reasons to ask sooner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollSchedule {
    cron: Cron,
    peaks: PeakDetection,
}

impl PollSchedule {
    /// By the calendar, and sooner while it matters.
    pub fn new(cron: Cron, peaks: PeakDetection) -> Self {
        Self { cron, peaks }
    }

    /// When the calendar says to ask next.
    pub fn next_cron_us(&self, now_us: u64) -> u64 {
        let next = self.cron.next_after_us(now_us);
        next.unwrap_or(now_us.saturating_add(FALLBACK_US))
    }

    /// When to ask next about buckets that were just seen. Sooner than the calendar says
    ///
    /// - while one is at WARNING or worse,
    /// - when one is expected to be at WARNING or empty before the calendar's next time: then
    ///   halfway there, so that the forecast is checked before it comes true,
    /// - when a peak could go unseen, if [`PeakDetection::Enabled`].
    pub fn next_us(&self, now_us: u64, seen: &[Assessment<'_>]) -> u64 {
        let next_cron_us = self.next_cron_us(now_us);
        let watched = seen
            .iter()
            .filter(|seen| seen.sample().bucket().policy() != POLICIES_LIST);
        let wanted_us = watched
            .filter_map(|seen| self.interval_us(seen))
            .min()
            .map_or(u64::MAX, |us| us.max(POLL_INTERVAL_MIN_US));
        // The calendar may fire a moment after a poll; that poll was for it, too.
        next_cron_us
            .min(now_us.saturating_add(wanted_us))
            .max(now_us.saturating_add(POLL_INTERVAL_MIN_US))
    }

    fn interval_us(&self, seen: &Assessment<'_>) -> Option<u64> {
        let low = (seen.severity() >= Severity::Warning).then_some(LOW_US);
        let halfway = [Severity::Warning, Severity::Exhausted].map(|severity| {
            let us = seen.to(severity)?.expected_us()?;
            (us > 0).then_some(us / 2)
        });
        let unseen = match self.peaks {
            PeakDetection::Enabled => blind_us(seen),
            PeakDetection::Disabled => None,
        };
        [low, halfway[0], halfway[1], unseen]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Default for PollSchedule {
    /// Every five minutes, and peaks are seen.
    fn default() -> Self {
        let cron = "*/5 * * * *".parse();
        Self::new(
            cron.expect("the line is in the documents"),
            PeakDetection::Enabled,
        )
    }
}

/// How long an emptied bucket certainly stays at WARNING or worse by itself; nothing when it stays
/// so for ever. Where a single step of the refill would lift it above WARNING nothing is certain,
/// and the time that an even refill takes is the best there is.
fn blind_us(seen: &Assessment<'_>) -> Option<u64> {
    let limit = seen.sample().limit();
    let tokens = seen.thresholds().tokens(Severity::Warning, limit)?;
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
