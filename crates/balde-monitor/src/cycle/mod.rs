//! One polling cycle: fetch, store, analyse, publish.
//!
//! Each step is a separate function with its own retries, so that a scheduler (the embedded loop,
//! Temporal, a test) can run the steps one by one and resume after any of them.
//!
//! | Step | What it does | On failure |
//! |--|--|--|
//! | [`Cycle::fetch`] | one request that lists all buckets | the client retries; then the planner backs off and honours Retry-After |
//! | [`Cycle::store`] | stores the samples, idempotently | retried five times on transient errors; then the poll stays in memory until the next cycle |
//! | [`Cycle::analyse`] | advances the alert states; commits states, events and outbox messages in one transaction | retried from the start after a conflict or a transient error; nothing is committed in part |
//! | [`Cycle::notify_dispatcher`], [`Cycle::publish`] | wakes the dispatchers; or attempts every due delivery once, for schedulers without running dispatchers | left to the dispatchers, which retry without end |

mod judge;
mod pending;
mod sink_directory;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::alert::{AlertRules, AlertState, Event, Routes, Silence, StalenessCheck, StalenessRule};
use crate::analyse::{Assessment, SettingsByPolicy};
use crate::delivery::{DeliverySummary, Dispatcher};
use crate::history::{History, HistoryError, StateUpdate};
use crate::sample::{BucketId, Poll, Sample};
use crate::source::{Source, SourceError};
use crate::time_source::TimeSource;
use balde::Backoff;
use pending::PendingPolls;

pub use sink_directory::SinkDirectory;

/// The attempts of a step in case of transient database errors and conflicts.
const ATTEMPTS: usize = 5;

/// The waits between them.
const RETRIES: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_secs(1)).expect("in range");

/// The longest duration of one attempt at all due deliveries.
const PUBLISH_WITHIN: Duration = Duration::from_secs(30);

/// Everything that a cycle uses.
#[derive(Debug)]
pub struct Components {
    /// The database.
    pub history: History,
    /// The source of each participant's bucket states.
    pub sources: BTreeMap<String, Source>,
    /// The alert rules of the buckets.
    pub rules: AlertRules,
    /// The rule for stale data and changes.
    pub staleness: StalenessRule,
    /// The analysis settings of each policy.
    pub analysis: SettingsByPolicy,
    /// The classes of sinks for each severity.
    pub routes: Routes,
    /// The configured sinks by class.
    pub sink_directory: SinkDirectory,
    /// The dispatchers of the outbox.
    pub dispatcher: Dispatcher,
    /// The clock.
    pub time: TimeSource,
}

/// The steps of a polling cycle: fetch, store, analyse, publish. Clones share all state.
#[derive(Clone)]
pub struct Cycle {
    components: Arc<Components>,
    pending: Arc<PendingPolls>,
}

impl Cycle {
    /// Creates a cycle from its components.
    pub fn new(components: Components) -> Self {
        Self {
            components: Arc::new(components),
            pending: Arc::default(),
        }
    }

    /// The components.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Step one: fetches the bucket states of a participant.
    pub async fn fetch(&self, participant: &str) -> Result<Poll, FetchError> {
        let source = self.components.sources.get(participant);
        let source = source.ok_or(FetchError::UnknownParticipant)?;
        let poll = source
            .fetch(participant, || self.components.time.now_us())
            .await;
        poll.map_err(FetchError::Source)
    }

    /// Step two: stores a poll. If the database stays unavailable, the poll waits in memory and is
    /// stored before the next one; up to 1,024 polls wait.
    pub async fn store(&self, poll: Poll) -> Result<(), HistoryError> {
        self.pending.push(poll);
        retried(|| self.pending.store(&self.components.history)).await
    }

    /// Step three: judges all samples that have not been judged yet, and commits the new alert
    /// states together with their events. Without new samples it still detects stale data and sends
    /// reminders.
    pub async fn analyse(&self, participant: &str) -> Result<Findings, HistoryError> {
        retried(|| self.analyse_once(participant)).await
    }

    /// Evaluates what depends on time alone: stale data, reminders, the end of silences. Cheap enough
    /// to run every few seconds.
    pub async fn check_timers(&self, participant: &str) -> Result<Vec<Event>, HistoryError> {
        retried(|| self.check_timers_once(participant)).await
    }

    /// Step four: attempts every due delivery once. The dispatchers retry those that fail.
    pub async fn publish(&self) -> Result<DeliverySummary, HistoryError> {
        let now_us = self.components.time.now_us();
        self.components
            .dispatcher
            .deliver_once(now_us, PUBLISH_WITHIN)
            .await
    }

    /// Wakes the dispatchers if there are events to deliver.
    pub fn notify_dispatcher(&self, events: &[Event]) {
        if !events.is_empty() {
            self.components.dispatcher.wake();
        }
    }

    /// Analyses the stored samples without judging them or changing any state.
    pub async fn inspect(&self, participant: &str) -> Result<Findings, HistoryError> {
        let now_us = self.components.time.now_us();
        let newest = self.components.history.newest_poll(participant).await?;
        let newest_us = newest.map_or(now_us, |poll| poll.taken_us()).min(now_us);
        let samples = self.samples(participant, newest_us, now_us).await?;
        Ok(Findings {
            samples,
            events: Vec::new(),
        })
    }

    async fn samples(
        &self,
        participant: &str,
        until_us: u64,
        now_us: u64,
    ) -> Result<Vec<Vec<Sample>>, HistoryError> {
        let since_us = until_us.saturating_sub(self.components.analysis.lookback_us());
        let mut samples = self
            .components
            .history
            .recent_samples(participant, since_us)
            .await?;
        judge::drop_future_samples(&mut samples, now_us);
        Ok(samples)
    }

    async fn analyse_once(&self, participant: &str) -> Result<Findings, HistoryError> {
        let Components { history, .. } = self.components();
        let now_us = self.components.time.now_us();
        let state = history.participant_state(participant, now_us).await?;
        let silences = history.silences(now_us).await?;
        let known_us = state.staleness.newest_us.unwrap_or(now_us).min(now_us);
        let samples = self.samples(participant, known_us, now_us).await?;
        let mut alerts = state.alerts;
        let new = judge::new_alert_states(&alerts, &samples, now_us);
        if !new.is_empty() {
            // Stored before they are judged, so that a repeated step sees the same epoch.
            alerts.extend(history.add_alert_states(&new).await?);
        }
        let before = match state.staleness.newest_us {
            Some(us) => history.poll_at(participant, us).await?,
            None => None,
        };
        let input = JudgeInput {
            samples: &samples,
            alerts: &alerts,
            before,
        };
        let events = self
            .judge(&state.staleness, state.version, input, &silences, now_us)
            .await?;
        Ok(Findings { samples, events })
    }

    async fn check_timers_once(&self, participant: &str) -> Result<Vec<Event>, HistoryError> {
        let Components { history, .. } = self.components();
        let now_us = self.components.time.now_us();
        let state = history.participant_state(participant, now_us).await?;
        let silences = history.silences(now_us).await?;
        let input = JudgeInput {
            samples: &[],
            alerts: &state.alerts,
            before: None,
        };
        self.judge(&state.staleness, state.version, input, &silences, now_us)
            .await
    }

    /// Judges the input and commits the result if anything changed.
    async fn judge(
        &self,
        staleness: &StalenessCheck,
        version: u64,
        input: JudgeInput<'_>,
        silences: &[Silence],
        now_us: u64,
    ) -> Result<Vec<Event>, HistoryError> {
        let context = judge::JudgeContext {
            rules: &self.components.rules,
            staleness: &self.components.staleness,
            analysis: &self.components.analysis,
            silences,
            now_us,
        };
        let verdict = context.judge(staleness, input.alerts, input.samples, input.before);
        if verdict.staleness != *staleness || !verdict.alerts.is_empty() {
            let events = verdict.events.iter().cloned();
            let events = events.map(|event| {
                self.components
                    .sink_directory
                    .route(&self.components.routes, event)
            });
            let update = StateUpdate {
                version,
                staleness: verdict.staleness,
                alerts: verdict.alerts,
                events: events.collect(),
            };
            self.components.history.commit(&update).await?;
        }
        Ok(verdict.events)
    }
}

/// The samples and alert states to judge.
struct JudgeInput<'a> {
    samples: &'a [Vec<Sample>],
    alerts: &'a [AlertState],
    before: Option<Poll>,
}

impl fmt::Debug for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cycle").finish_non_exhaustive()
    }
}

/// The result of [`Cycle::analyse`].
#[derive(Clone, Debug)]
pub struct Findings {
    samples: Vec<Vec<Sample>>,
    events: Vec<Event>,
}

impl Findings {
    /// The events that the analysis produced.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The samples of a bucket, the oldest first.
    pub fn samples_of(&self, bucket: &BucketId) -> &[Sample] {
        let own = |samples: &&Vec<Sample>| samples.first().is_some_and(|s| s.bucket() == bucket);
        self.samples.iter().find(own).map_or(&[], Vec::as_slice)
    }

    /// The analysis of every bucket that the newest poll lists.
    pub fn assessments(
        &self,
        rules: &AlertRules,
        analysis: &SettingsByPolicy,
    ) -> Vec<Assessment<'_>> {
        judge::assessments(&self.samples, rules, analysis)
    }
}

/// Why the bucket states of a participant could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The participant is not configured.
    #[error("no source is configured for this participant")]
    UnknownParticipant,
    /// The source failed.
    #[error(transparent)]
    Source(SourceError),
}

impl FetchError {
    /// A short name for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::UnknownParticipant => "unknown_participant",
            Self::Source(error) => error.label(),
        }
    }
}

/// Retries an operation on transient database errors, with exponential backoff.
async fn retried<T, F: Future<Output = Result<T, HistoryError>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<T, HistoryError> {
    for delay in RETRIES.delays().take(ATTEMPTS - 1) {
        match attempt().await {
            Err(error) if error.is_transient() => tokio::time::sleep(delay).await,
            done => return done,
        }
    }
    attempt().await
}
