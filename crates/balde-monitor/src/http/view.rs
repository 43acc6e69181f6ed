//! How everything looks now, for people and programs.

use serde::Serialize;

use crate::alert::AlertState;
use crate::analyse::{Assessment, Confidence, Freshness, Outlook};
use crate::cycle::Cycle;
use crate::history::HistoryError;
use crate::severity::Severity;

/// All participants as they look now.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// When this was.
    pub now_us: u64,
    /// Everybody that this monitor knows, in alphabetical order.
    pub participants: Vec<ParticipantView>,
}

/// One participant.
#[derive(Clone, Debug, Serialize)]
pub struct ParticipantView {
    /// Whose buckets these are.
    pub participant: String,
    /// The category, if it was told.
    pub category: Option<String>,
    /// When the newest answer came; nothing before the first.
    pub answered_us: Option<u64>,
    /// Whether that is too long ago to be believed.
    pub is_stale: bool,
    /// The buckets, by policy in alphabetical order.
    pub buckets: Vec<BucketView>,
}

/// One bucket.
#[derive(Clone, Debug, Serialize)]
pub struct BucketView {
    /// Under which policy.
    pub policy: String,
    /// Tokens left; negative is debt.
    pub level: i64,
    /// The most it holds.
    pub capacity: u64,
    /// Tokens that come back in a period.
    pub refill_tokens: u64,
    /// That period.
    pub period_us: u64,
    /// The share left, in hundredths of a percent.
    pub left_bp: i64,
    /// The share in use, in hundredths of a percent.
    pub utilisation_bp: i64,
    /// The state of its alert.
    pub severity: Severity,
    /// Since when.
    pub since_us: u64,
    /// Whether it is expected to be empty soon.
    pub is_predicted: bool,
    /// Consumption over each horizon that has samples, the shortest first.
    pub burns: Vec<BurnView>,
    /// When it will be at WARNING, if it goes on like this.
    pub to_warning: Option<OutlookView>,
    /// When at CRITICAL.
    pub to_critical: Option<OutlookView>,
    /// When empty.
    pub to_empty: Option<OutlookView>,
    /// How long until it is full if nobody touches it, at least.
    pub full_at_least_us: Option<u64>,
    /// And at most.
    pub full_at_most_us: Option<u64>,
    /// How long an empty bucket takes to be full.
    pub recovery_us: Option<u64>,
}

/// Consumption over one horizon.
#[derive(Clone, Debug, Serialize)]
pub struct BurnView {
    /// How far back was looked.
    pub horizon_us: u64,
    /// How much of that there are samples for.
    pub span_us: u64,
    /// How many.
    pub samples: usize,
    /// Tokens consumed, at least.
    pub at_least: i64,
    /// And at most.
    pub at_most: i64,
    /// Thousandths of a token a minute, in all likelihood.
    pub expected_milli_per_minute: i64,
    /// Whether that is only the most it can have been: the bucket was full all the time.
    pub is_upper_bound: bool,
}

/// How long until something.
#[derive(Clone, Debug, Serialize)]
pub struct OutlookView {
    /// At least.
    pub earliest_us: u64,
    /// In all likelihood.
    pub expected_us: Option<u64>,
    /// At most; nothing when it may never be.
    pub latest_us: Option<u64>,
    /// How sure that is.
    pub confidence: Confidence,
}

impl View {
    /// Looks at the history, which any monitor on the same database can.
    pub async fn of(cycle: &Cycle) -> Result<Self, HistoryError> {
        let parts = cycle.parts();
        let mut participants = Vec::new();
        for participant in parts.sources.keys() {
            participants.push(participant_view(cycle, participant).await?);
        }
        Ok(Self {
            now_us: parts.time.now_us(),
            participants,
        })
    }
}

async fn participant_view(
    cycle: &Cycle,
    participant: &str,
) -> Result<ParticipantView, HistoryError> {
    let parts = cycle.parts();
    let now_us = parts.time.now_us();
    let state = parts.history.participant_state(participant, now_us).await?;
    let findings = cycle.look(participant).await?;
    let seen = findings.assessments(&parts.rules, &parts.reading);
    let newest_us = state.staleness.newest_us;
    let known_us = newest_us.unwrap_or(state.staleness.epoch_us);
    let freshness = Freshness::of(known_us, now_us, parts.staleness.stale_after_us);
    let bucket = |seen: &Assessment<'_>| {
        let alert = state
            .alerts
            .iter()
            .find(|alert| alert.bucket == *seen.sample().bucket());
        BucketView::of(seen, alert)
    };
    Ok(ParticipantView {
        participant: participant.to_owned(),
        category: seen
            .first()
            .and_then(|seen| seen.sample().category().map(str::to_owned)),
        answered_us: newest_us,
        is_stale: matches!(freshness, Freshness::Stale { .. }),
        buckets: seen.iter().map(bucket).collect(),
    })
}

impl BucketView {
    fn of(seen: &Assessment<'_>, alert: Option<&AlertState>) -> Self {
        let sample = seen.sample();
        let limit = sample.limit();
        let burns = seen.burns().iter().map(|burn| BurnView {
            horizon_us: burn.horizon_us(),
            span_us: burn.span_us(),
            samples: burn.samples(),
            at_least: burn.at_least(),
            at_most: burn.at_most(),
            expected_milli_per_minute: burn.expected_milli_per_minute(),
            is_upper_bound: burn.is_upper_bound(),
        });
        let full = seen.full_after();
        Self {
            policy: sample.bucket().policy().to_owned(),
            level: sample.level(),
            capacity: limit.capacity(),
            refill_tokens: limit.refill_tokens(),
            period_us: limit.period_us(),
            left_bp: seen.left_bp(),
            utilisation_bp: seen.utilisation_bp(),
            severity: alert.map_or(seen.severity(), |alert| alert.severity),
            since_us: alert.map_or(sample.taken_us(), |alert| alert.since_us),
            is_predicted: alert.is_some_and(|alert| alert.forecast.is_some()),
            burns: burns.collect(),
            to_warning: seen.to_warning().map(OutlookView::of),
            to_critical: seen.to_critical().map(OutlookView::of),
            to_empty: seen.to_empty().map(OutlookView::of),
            full_at_least_us: full.map(|full| full.at_least_us),
            full_at_most_us: full.map(|full| full.at_most_us),
            recovery_us: seen.recovery_us(),
        }
    }
}

impl OutlookView {
    fn of(outlook: Outlook) -> Self {
        Self {
            earliest_us: outlook.earliest_us(),
            expected_us: outlook.expected_us(),
            latest_us: outlook.latest_us(),
            confidence: outlook.confidence(),
        }
    }
}
