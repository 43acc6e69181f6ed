//! How everything looks now, for people and programs.

use serde::Serialize;

use crate::alert::AlertState;
use crate::analyse::{Assessment, Confidence, Forecast, Freshness};
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
    pub last_success_us: Option<u64>,
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
    pub remaining_bp: i64,
    /// The share in use, in hundredths of a percent.
    pub utilisation_bp: i64,
    /// The state of its alert.
    pub severity: Severity,
    /// Since when.
    pub since_us: u64,
    /// Whether it is expected to be empty soon.
    pub is_predicted: bool,
    /// Consumption over each window that has samples, the shortest first.
    pub burn_rates: Vec<BurnRateView>,
    /// When it will be at WARNING, if it goes on like this.
    pub time_to_warning: Option<ForecastView>,
    /// When at CRITICAL.
    pub time_to_critical: Option<ForecastView>,
    /// When empty.
    pub time_to_empty: Option<ForecastView>,
    /// How long until it is full if nobody touches it, at least.
    pub time_to_full_min_us: Option<u64>,
    /// And at most.
    pub time_to_full_max_us: Option<u64>,
    /// How long an empty bucket takes to be full.
    pub recovery_us: Option<u64>,
}

/// Consumption over one window.
#[derive(Clone, Debug, Serialize)]
pub struct BurnRateView {
    /// How far back was looked.
    pub window_us: u64,
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
pub struct ForecastView {
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
        let components = cycle.components();
        let mut participants = Vec::new();
        for participant in components.sources.keys() {
            participants.push(participant_view(cycle, participant).await?);
        }
        Ok(Self {
            now_us: components.time.now_us(),
            participants,
        })
    }
}

async fn participant_view(
    cycle: &Cycle,
    participant: &str,
) -> Result<ParticipantView, HistoryError> {
    let components = cycle.components();
    let now_us = components.time.now_us();
    let state = components
        .history
        .participant_state(participant, now_us)
        .await?;
    let findings = cycle.inspect(participant).await?;
    let seen = findings.assessments(&components.rules, &components.analysis);
    let newest_us = state.staleness.newest_us;
    let known_us = newest_us.unwrap_or(state.staleness.epoch_us);
    let freshness = Freshness::of(known_us, now_us, components.staleness.stale_after_us);
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
        last_success_us: newest_us,
        is_stale: matches!(freshness, Freshness::Stale { .. }),
        buckets: seen.iter().map(bucket).collect(),
    })
}

impl BucketView {
    fn of(seen: &Assessment<'_>, alert: Option<&AlertState>) -> Self {
        let sample = seen.sample();
        let limit = sample.limit();
        let burn_rates = seen.burn_rates().iter().map(|burn| BurnRateView {
            window_us: burn.window_us(),
            span_us: burn.span_us(),
            samples: burn.samples(),
            at_least: burn.at_least(),
            at_most: burn.at_most(),
            expected_milli_per_minute: burn.expected_milli_per_minute(),
            is_upper_bound: burn.is_upper_bound(),
        });
        let full = seen.time_to_full();
        Self {
            policy: sample.bucket().policy().to_owned(),
            level: sample.level(),
            capacity: limit.capacity(),
            refill_tokens: limit.refill_tokens(),
            period_us: limit.period_us(),
            remaining_bp: seen.remaining_bp(),
            utilisation_bp: seen.utilisation_bp(),
            severity: alert.map_or(seen.severity(), |alert| alert.severity),
            since_us: alert.map_or(sample.taken_us(), |alert| alert.since_us),
            is_predicted: alert.is_some_and(|alert| alert.forecast.is_some()),
            burn_rates: burn_rates.collect(),
            time_to_warning: seen.time_to_warning().map(ForecastView::of),
            time_to_critical: seen.time_to_critical().map(ForecastView::of),
            time_to_empty: seen.time_to_empty().map(ForecastView::of),
            time_to_full_min_us: full.map(|full| full.at_least_us),
            time_to_full_max_us: full.map(|full| full.at_most_us),
            recovery_us: seen.recovery_us(),
        }
    }
}

impl ForecastView {
    fn of(forecast: Forecast) -> Self {
        Self {
            earliest_us: forecast.earliest_us(),
            expected_us: forecast.expected_us(),
            latest_us: forecast.latest_us(),
            confidence: forecast.confidence(),
        }
    }
}
