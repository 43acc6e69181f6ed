//! The current state of all buckets, as the page and the JSON API show it.

use serde::Serialize;

use crate::alert::{AlertState, Silence};
use crate::analyse::{Assessment, Confidence, Forecast, Freshness};
use crate::cycle::{Cycle, Findings};
use crate::history::HistoryError;
use crate::sample::{BucketId, Sample};
use crate::severity::Severity;

/// The most points of [`BucketView::recent`].
pub const RECENT_MAX: usize = 60;

const HOUR_US: u64 = 3_600_000_000;

/// The current state of all participants.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct View {
    /// The time of this view.
    pub now_us: u64,
    /// Set while the database accepts no writes; the view is then from memory.
    pub storage_failure: Option<StorageFailureView>,
    /// The configured participants, in alphabetical order.
    pub participants: Vec<ParticipantView>,
}

/// Why the monitor cannot store, and what waits in memory.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StorageFailureView {
    /// When the first write failed.
    pub since_us: u64,
    /// The error of the database.
    pub cause: String,
    /// The polls that wait in memory.
    pub unstored_polls: usize,
    /// The events that were sent, but not recorded.
    pub unstored_events: usize,
    /// The acknowledgements and silences of operators that wait in memory.
    pub unstored_changes: usize,
    /// The open alert about that; `None` before it is raised.
    pub alert: Option<OpenAlertView>,
}

/// An open alert that is not about one bucket.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct OpenAlertView {
    /// The episode, by which it is acknowledged.
    pub episode: String,
    /// Who acknowledged it, and when.
    pub acknowledged: Option<AcknowledgedView>,
}

impl OpenAlertView {
    fn new(silences: &[Silence], episode: String) -> Self {
        Self {
            acknowledged: AcknowledgedView::of(silences, &episode),
            episode,
        }
    }
}

/// The current state of one participant.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ParticipantView {
    /// The participant.
    pub participant: String,
    /// The category, if the newest poll names one.
    pub category: Option<String>,
    /// The time of the newest poll; `None` before the first.
    pub last_poll_us: Option<u64>,
    /// Whether the newest poll is too old to be trusted.
    pub is_stale: bool,
    /// The open alert about that.
    pub stale_alert: Option<OpenAlertView>,
    /// The buckets, in alphabetical order of their policies.
    pub buckets: Vec<BucketView>,
}

/// The current state of one bucket.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BucketView {
    /// The policy.
    pub policy: String,
    /// The tokens left; negative when in debt.
    pub level: i64,
    /// The capacity in tokens.
    pub capacity: u64,
    /// The tokens refilled in each period.
    pub refill_tokens: u64,
    /// The refill period.
    pub period_us: u64,
    /// The remaining share of capacity, in basis points.
    pub remaining_bp: i64,
    /// The share of capacity in use, in basis points.
    pub utilisation_bp: i64,
    /// The remaining share at which WARNING begins, in basis points.
    pub warning_bp: u32,
    /// The remaining share at which CRITICAL begins, in basis points.
    pub critical_bp: u32,
    /// The time of the newest sample.
    pub sampled_us: u64,
    /// The severity of its alert state.
    pub severity: Severity,
    /// Since when the severity holds.
    pub since_us: u64,
    /// Whether a predicted alert is open.
    pub is_predicted: bool,
    /// The episode of its open alert, by which it is acknowledged: that about the level, or else the
    /// forecast. `None` if no alert is open.
    pub episode: Option<String>,
    /// Who acknowledged the open alert, and when.
    pub acknowledged: Option<AcknowledgedView>,
    /// The silence that covers its alerts now, if there is one.
    pub silenced: Option<SilencedView>,
    /// Times and levels of the last hour, the oldest first, at most [`RECENT_MAX`].
    pub recent: Vec<(u64, i64)>,
    /// The burn rate of each window that has samples, the shortest first.
    pub burn_rates: Vec<BurnRateView>,
    /// The forecast of WARNING at the current rate.
    pub time_to_warning: Option<ForecastView>,
    /// The forecast of CRITICAL.
    pub time_to_critical: Option<ForecastView>,
    /// The forecast of an empty bucket.
    pub time_to_empty: Option<ForecastView>,
    /// The lower bound of the time until it is full without further consumption.
    pub time_to_full_min_us: Option<u64>,
    /// The upper bound of that time.
    pub time_to_full_max_us: Option<u64>,
    /// The recovery time: how long until it is full again if nothing more is consumed, with an even
    /// refill; `None` if it never refills.
    pub recovery_us: Option<u64>,
    /// The time an empty bucket takes to become full.
    pub fill_us: Option<u64>,
}

/// The acknowledgement of an open alert.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AcknowledgedView {
    /// Who acknowledged it.
    pub by: String,
    /// When.
    pub at_us: u64,
}

impl AcknowledgedView {
    pub(super) fn of(silences: &[Silence], episode: &str) -> Option<Self> {
        silences.iter().find_map(|silence| {
            let by = silence.acknowledged_by(episode)?.to_owned();
            let at_us = silence.from_us();
            Some(Self { by, at_us })
        })
    }
}

/// A silence that covers a bucket now.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SilencedView {
    /// The id by which it is ended.
    pub id: String,
    /// Who created it, if that is known.
    pub by: Option<String>,
    /// When it ends.
    pub until_us: u64,
    /// The worst severity that is not sent.
    pub up_to: Severity,
}

impl SilencedView {
    /// The silence that covers most severities of a bucket.
    fn of(silences: &[Silence], bucket: &BucketId, now_us: u64) -> Option<Self> {
        let covers = |silence: &&Silence| {
            let (participant, policy) = (bucket.participant(), Some(bucket.policy()));
            silence.acknowledged_episode().is_none()
                && silence.covers(participant, policy, Severity::Normal, now_us)
        };
        let covering = silences.iter().filter(covers);
        let silence = covering.max_by_key(|silence| (silence.up_to(), silence.until_us()))?;
        Some(Self {
            id: silence.id().to_owned(),
            by: silence.by().map(str::to_owned),
            until_us: silence.until_us(),
            up_to: silence.up_to(),
        })
    }
}

/// The consumption within one look-back window.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BurnRateView {
    /// The length of the window.
    pub window_us: u64,
    /// The time covered by samples.
    pub span_us: u64,
    /// The number of samples.
    pub samples: usize,
    /// The lower bound of the tokens consumed.
    pub at_least: i64,
    /// The upper bound of the tokens consumed.
    pub at_most: i64,
    /// The estimated rate, in thousandths of a token per minute.
    pub expected_milli_per_minute: i64,
    /// Whether the rate is only an upper bound, because every sample showed a full bucket.
    pub is_upper_bound: bool,
}

/// The time until a level is reached.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ForecastView {
    /// The time at the highest consumption that the samples allow.
    pub earliest_us: u64,
    /// The time at the estimated consumption; `None` if that never reaches the level.
    pub expected_us: Option<u64>,
    /// The time at the lowest consumption that the samples allow; `None` if that never reaches the
    /// level.
    pub latest_us: Option<u64>,
    /// How certain the forecast is.
    pub confidence: Confidence,
}

impl View {
    /// Reads the view from the database, which standby monitors can also do, or from memory while
    /// the database is unavailable.
    pub async fn of(cycle: &Cycle) -> Self {
        let components = cycle.components();
        let mut participants = Vec::new();
        let silences = cycle.silences().await;
        for participant in components.sources.keys() {
            let view = participant_view(cycle, participant, &silences).await;
            participants.push(view.unwrap_or_else(|_| ParticipantView::unknown(participant)));
        }
        Self {
            now_us: components.time.now_us(),
            storage_failure: StorageFailureView::of(cycle),
            participants,
        }
    }
}

impl StorageFailureView {
    /// `None` while the database accepts writes.
    pub(super) fn of(cycle: &Cycle) -> Option<Self> {
        let failure = cycle.components().history.health().failure()?;
        let unstored = cycle.unstored();
        let alert = cycle.storage_alert().open_alert();
        let silences = cycle.remembered_silences();
        Some(Self {
            since_us: failure.since_us,
            cause: failure.cause,
            unstored_polls: unstored.polls,
            unstored_events: unstored.events,
            unstored_changes: unstored.changes,
            alert: alert.map(|alert| OpenAlertView::new(&silences, alert.episode)),
        })
    }
}

/// The state of one participant; without buckets if nothing about it can be read.
pub(super) async fn participant(cycle: &Cycle, participant: &str) -> ParticipantView {
    let silences = cycle.silences().await;
    let view = participant_view(cycle, participant, &silences).await;
    view.unwrap_or_else(|_| ParticipantView::unknown(participant))
}

impl ParticipantView {
    pub(super) fn clone_without_buckets(&self) -> Self {
        Self {
            participant: self.participant.clone(),
            category: self.category.clone(),
            last_poll_us: self.last_poll_us,
            is_stale: self.is_stale,
            stale_alert: self.stale_alert.clone(),
            buckets: Vec::new(),
        }
    }

    /// A participant about which nothing has been read since the start.
    fn unknown(participant: &str) -> Self {
        Self {
            participant: participant.to_owned(),
            category: None,
            last_poll_us: None,
            is_stale: true,
            stale_alert: None,
            buckets: Vec::new(),
        }
    }
}

async fn participant_view(
    cycle: &Cycle,
    participant: &str,
    silences: &[Silence],
) -> Result<ParticipantView, HistoryError> {
    let components = cycle.components();
    let now_us = components.time.now_us();
    let (state, findings) = cycle.snapshot(participant).await?;
    let assessments = findings.assessments(&components.rules, &components.analysis);
    let newest_us = state.staleness.newest_us;
    let known_us = newest_us.unwrap_or(state.staleness.epoch_us);
    let freshness = Freshness::of(known_us, now_us, components.staleness.stale_after_us);
    let bucket = |assessment: &Assessment<'_>| {
        let alert = state
            .alerts
            .iter()
            .find(|alert| alert.bucket == *assessment.sample().bucket());
        let recent = recent(&findings, assessment.sample(), now_us);
        BucketView::of(assessment, alert, silences, recent, now_us)
    };
    let stale_episode = state.staleness.open_episode();
    Ok(ParticipantView {
        participant: participant.to_owned(),
        category: assessments
            .first()
            .and_then(|assessment| assessment.sample().category().map(str::to_owned)),
        last_poll_us: newest_us,
        // A participant that its source refuses is stale before that time.
        is_stale: state.staleness.stale.is_some() || matches!(freshness, Freshness::Stale { .. }),
        stale_alert: stale_episode.map(|episode| OpenAlertView::new(silences, episode)),
        buckets: assessments.iter().map(bucket).collect(),
    })
}

/// The levels of a bucket over the last hour: all samples, or the lowest of each of
/// [`RECENT_MAX`] intervals if there are more.
fn recent(findings: &Findings, newest: &Sample, now_us: u64) -> Vec<(u64, i64)> {
    let since_us = now_us.saturating_sub(HOUR_US);
    let samples = findings.samples_of(newest.bucket()).iter();
    let samples = samples.filter(|sample| sample.taken_us() >= since_us);
    let points = samples.map(|sample| (sample.taken_us(), sample.level()));
    let mut thinned: Vec<(u64, i64)> = Vec::new();
    let interval = |us: u64| us.saturating_sub(since_us) / (HOUR_US / RECENT_MAX as u64 + 1);
    for (us, level) in points {
        match thinned.last_mut() {
            Some(last) if interval(last.0) == interval(us) => last.1 = last.1.min(level),
            _ => thinned.push((us, level)),
        }
    }
    thinned
}

impl BucketView {
    fn of(
        assessment: &Assessment<'_>,
        alert: Option<&AlertState>,
        silences: &[Silence],
        recent: Vec<(u64, i64)>,
        now_us: u64,
    ) -> Self {
        let sample = assessment.sample();
        let limit = sample.limit();
        let burn_rates = assessment
            .burn_rates()
            .into_iter()
            .map(|burn| BurnRateView {
                window_us: burn.window_us(),
                span_us: burn.span_us(),
                samples: burn.samples(),
                at_least: burn.at_least(),
                at_most: burn.at_most(),
                expected_milli_per_minute: burn.expected_milli_per_minute(),
                is_upper_bound: burn.is_upper_bound(),
            });
        let full = assessment.time_to_full();
        let episode =
            alert.and_then(|alert| alert.open_episode().or_else(|| alert.forecast_episode()));
        Self {
            policy: sample.bucket().policy().to_owned(),
            level: sample.level(),
            capacity: limit.capacity(),
            refill_tokens: limit.refill_tokens(),
            period_us: limit.period_us(),
            remaining_bp: assessment.remaining_bp(),
            utilisation_bp: assessment.utilisation_bp(),
            warning_bp: assessment.thresholds().warning_bp(),
            critical_bp: assessment.thresholds().critical_bp(),
            sampled_us: sample.taken_us(),
            severity: alert.map_or(assessment.severity(), |alert| alert.severity),
            since_us: alert.map_or(sample.taken_us(), |alert| alert.since_us),
            is_predicted: alert.is_some_and(|alert| alert.forecast.is_some()),
            acknowledged: episode
                .as_deref()
                .and_then(|episode| AcknowledgedView::of(silences, episode)),
            episode,
            silenced: SilencedView::of(silences, sample.bucket(), now_us),
            recent,
            burn_rates: burn_rates.collect(),
            time_to_warning: assessment.time_to_warning().map(ForecastView::of),
            time_to_critical: assessment.time_to_critical().map(ForecastView::of),
            time_to_empty: assessment.time_to_empty().map(ForecastView::of),
            time_to_full_min_us: full.map(|full| full.at_least_us),
            time_to_full_max_us: full.map(|full| full.at_most_us),
            recovery_us: assessment.recovery_us(),
            fill_us: assessment.fill_us(),
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
