//! One polling cycle: fetch, store, analyse, publish.
//!
//! Each step is a separate function with its own retries, so that a scheduler (the embedded loop,
//! Temporal, a test) can run the steps one by one and resume after any of them.
//!
//! | Step | What it does | On failure |
//! |--|--|--|
//! | [`Cycle::fetch`], [`Cycle::fetch_policy`] | one request that lists all buckets, or reads one | the client retries; then the planner backs off and honours Retry-After |
//! | [`Cycle::store`] | stores the samples, idempotently | retried five times on transient errors; then the poll stays in memory until the database is back |
//! | [`Cycle::analyse`] | advances the alert states; commits states, events and outbox messages in one transaction | retried from the start after a conflict or a transient error; nothing is committed in part; [`Cycle::assess`] then judges from memory |
//! | [`Cycle::notify_dispatcher`], [`Cycle::publish`] | wakes the dispatchers; or attempts every due delivery once, for schedulers without running dispatchers | left to the dispatchers, which retry without end |

mod answers;
mod judge;
mod memory;
mod operator;
mod pending;
mod sink_directory;

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::alert::{
    self, AlertRules, Event, EventKind, ResolveReason, Routes, Silence, StalenessRule, StorageAlert,
};
use crate::analyse::{Assessment, SettingsByPolicy};
use crate::delivery::{DeliverySummary, Dispatcher};
use crate::history::{History, HistoryError, ParticipantState, RoutedEvent, StateUpdate};
use crate::sample::{BucketId, Poll, Sample};
use crate::source::{Source, SourceError};
use crate::time_source::TimeSource;
use answers::Answers;
use balde::Backoff;
use memory::Memory;
use operator::UnstoredChanges;
use parking_lot::Mutex;
use pending::PendingPolls;

pub(crate) use operator::Stored;
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
    memory: Arc<Memory>,
    answers: Arc<Answers>,
    changes: Arc<UnstoredChanges>,
    storage_alert: Arc<Mutex<StorageAlert>>,
}

impl Cycle {
    /// Creates a cycle from its components.
    pub fn new(components: Components) -> Self {
        let storage_alert = StorageAlert::new(components.time.now_us());
        Self {
            components: Arc::new(components),
            pending: Arc::default(),
            memory: Arc::default(),
            answers: Arc::default(),
            changes: Arc::default(),
            storage_alert: Arc::new(Mutex::new(storage_alert)),
        }
    }

    /// The components.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Step one: fetches the bucket states of a participant.
    pub async fn fetch(&self, participant: &str) -> Result<Poll, FetchError> {
        self.fetch_some(participant, None).await
    }

    /// Step one between two polls: fetches the state of one bucket.
    pub async fn fetch_policy(&self, participant: &str, policy: &str) -> Result<Poll, FetchError> {
        self.fetch_some(participant, Some(policy)).await
    }

    /// Fetches all bucket states of a participant, or the one of a policy.
    async fn fetch_some(
        &self,
        participant: &str,
        policy: Option<&str>,
    ) -> Result<Poll, FetchError> {
        if !self.components.sources.contains_key(participant) {
            return Err(FetchError::UnknownParticipant);
        }
        let (components, participant) = (Arc::clone(&self.components), participant.to_owned());
        let (name, policy) = (participant.clone(), policy.map(str::to_owned));
        let is_list = policy.is_none();
        // Dropped together with this future, which ends the fetch.
        let (_alive, gone) = tokio::sync::oneshot::channel::<()>();
        let runtime = tokio::runtime::Handle::current();
        // On a thread for blocking work: a response that takes long to parse must not delay
        // deliveries, other polls and the pages.
        let fetching = tokio::task::spawn_blocking(move || {
            runtime.block_on(async move {
                let source = components.sources.get(&participant);
                let source = source.ok_or(FetchError::UnknownParticipant)?;
                let now = || components.time.now_us();
                let fetch = async {
                    match &policy {
                        Some(policy) => source.fetch_policy(&participant, policy, now).await,
                        None => source.fetch(&participant, now).await,
                    }
                };
                tokio::select! {
                    poll = fetch => poll.map_err(FetchError::Source),
                    _ = gone => Err(FetchError::Interrupted),
                }
            })
        });
        let fetched = fetching.await.unwrap_or(Err(FetchError::Interrupted));
        self.answers.record(&name, &fetched, is_list);
        fetched
    }

    /// Step two: stores a poll. If the database stays unavailable, the poll waits in memory and is
    /// stored before the next one.
    pub async fn store(&self, poll: Poll) -> Result<(), HistoryError> {
        let lookback_us = self.components.analysis.lookback_us();
        self.memory.observe(&poll, lookback_us);
        self.pending.push(poll);
        self.with_database(|| self.pending.store(&self.components.history))
            .await
    }

    /// Step three: judges all samples that have not been judged yet, and commits the new alert
    /// states together with their events. Without new samples it still detects stale data and sends
    /// reminders.
    pub async fn analyse(&self, participant: &str) -> Result<Findings, HistoryError> {
        self.with_database(|| self.analyse_once(participant)).await
    }

    /// Step three, whether or not the database accepts writes. If it does not, the samples are judged
    /// from memory, the events are sent from memory, and both are committed when the database is
    /// back. Fails only if nothing about the participant has ever been read.
    pub async fn assess(&self, participant: &str) -> Result<Findings, HistoryError> {
        match self.analyse(participant).await {
            Ok(findings) => {
                self.notify_dispatcher(findings.events());
                Ok(findings)
            }
            Err(error) => self.judge_from_memory(participant).ok_or(error),
        }
    }

    /// Evaluates what depends on time alone: stale data, reminders, the end of silences. Cheap enough
    /// to run every few seconds. Works from memory while the database accepts no writes.
    pub async fn check_timers(&self, participant: &str) -> Result<Vec<Event>, HistoryError> {
        let checked = self.with_database(|| self.check_timers_once(participant));
        match checked.await {
            Ok(events) => {
                self.notify_dispatcher(&events);
                Ok(events)
            }
            Err(error) => {
                let findings = self.judge_from_memory(participant).ok_or(error)?;
                Ok(findings.events)
            }
        }
    }

    /// Stores and commits everything that was kept in memory while the database accepted no writes.
    pub(crate) fn flush(&self) -> Pin<Box<dyn Future<Output = Result<(), HistoryError>> + Send>> {
        let (components, pending) = (Arc::clone(&self.components), Arc::clone(&self.pending));
        let memory = Arc::clone(&self.memory);
        let cycle = self.clone();
        Box::pin(async move {
            cycle.flush_changes().await?;
            pending.store(&components.history).await?;
            for participant in memory.uncommitted() {
                memory.commit(&components.history, &participant).await?;
            }
            Ok(())
        })
    }

    /// The polls and the events that wait in memory to be stored.
    pub fn unstored(&self) -> Unstored {
        Unstored {
            polls: self.pending.len(),
            events: self.memory.uncommitted_events(),
            changes: self.changes.len(),
        }
    }

    /// The events that only memory has, the oldest first.
    pub(crate) fn unstored_events(&self) -> Vec<Event> {
        let mut events = self.memory.unstored_events();
        events.extend(self.changes.events());
        events.sort_by_key(|event| event.at_us);
        events
    }

    /// The samples of a bucket that are in memory, the oldest first.
    pub(crate) fn samples_in_memory(&self, bucket: &BucketId) -> Vec<Sample> {
        let recalled = self.memory.recall(bucket.participant());
        let samples = recalled.map_or_else(Vec::new, |(_, samples)| samples);
        let is_own = |own: &Vec<Sample>| own.first().is_some_and(|one| one.bucket() == bucket);
        samples.into_iter().find(is_own).unwrap_or_default()
    }

    /// The silences that are active or in the future: from the database, or as last read if that does
    /// not answer in time.
    pub(crate) async fn silences(&self) -> Vec<Silence> {
        let Components { history, time, .. } = self.components();
        let now_us = time.now_us();
        let within = history.health().patience();
        let reading = tokio::time::timeout(within, self.read_silences(now_us));
        if let Ok(Ok(silences)) = reading.await {
            self.memory.remember_silences(&silences);
            return silences;
        }
        history.health().suspect();
        let mut silences = self.memory.silences();
        silences.retain(|silence| silence.until_us() > now_us);
        silences
    }

    /// The last known state of a participant and its assessable samples: from the database, or from
    /// memory while the database cannot be read or is behind.
    pub(crate) async fn snapshot(
        &self,
        participant: &str,
    ) -> Result<(ParticipantState, Findings), HistoryError> {
        let history = &self.components.history;
        let recalled = || {
            let (state, samples) = self.memory.recall(participant)?;
            let events = Vec::new();
            Some((state, Findings { samples, events }))
        };
        if history.health().failure().is_some()
            && let Some(recalled) = recalled()
        {
            return Ok(recalled);
        }
        let read = async {
            let now_us = self.components.time.now_us();
            let state = history.participant_state(participant, now_us).await?;
            let silences = self.read_silences(now_us).await?;
            let findings = self.inspect(participant).await?;
            let samples = Some(findings.samples.as_slice());
            self.memory
                .remember(participant, state.clone(), samples, &silences);
            Ok((state, findings))
        };
        let Some(recalled) = recalled() else {
            // Nothing to fall back to: a monitor that has just started.
            return read.await.inspect_err(|_| history.health().suspect());
        };
        let read = tokio::time::timeout(history.health().patience(), read).await;
        if let Ok(Ok(read)) = read {
            return Ok(read);
        }
        history.health().suspect();
        Ok(recalled)
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

    /// Runs an operation on the database, with retries. Gives up as soon as the database is known to
    /// accept no writes, and reports it if this operation is the first to fail.
    async fn with_database<T, F: Future<Output = Result<T, HistoryError>>>(
        &self,
        operation: impl FnMut() -> F,
    ) -> Result<T, HistoryError> {
        let health = self.components.history.health();
        let unavailable = |reason: String| Err(HistoryError::Unavailable { reason });
        if let Some(failure) = health.failure() {
            return unavailable(failure.cause);
        }
        let result = tokio::select! {
            biased;
            result = retried(operation) => result,
            failure = health.failed() => unavailable(failure.cause),
        };
        if let Err(error) = &result
            && !matches!(error, HistoryError::Conflict)
        {
            health.fail(self.components.time.now_us(), &error.to_string());
        }
        result
    }

    /// Judges from memory and sends the events from memory. `None` if nothing is known about the
    /// participant.
    fn judge_from_memory(&self, participant: &str) -> Option<Findings> {
        let now_us = self.components.time.now_us();
        let silences = self.memory.silences();
        let judge = |state: &ParticipantState, samples: &[Vec<Sample>], before| {
            let context = self.context(participant, &silences, now_us);
            let mut verdict = context.judge(&state.staleness, &state.alerts, samples, before);
            self.add_reasons(&mut verdict.events);
            verdict
        };
        let (samples, events) = self
            .memory
            .judge(participant, now_us, judge, |event| self.route(event))?;
        self.components.dispatcher.send_from_memory(&events);
        let events = events.into_iter().map(|routed| routed.event).collect();
        Some(Findings { samples, events })
    }

    fn context<'a>(
        &'a self,
        participant: &str,
        silences: &'a [Silence],
        now_us: u64,
    ) -> judge::JudgeContext<'a> {
        judge::JudgeContext {
            rules: &self.components.rules,
            staleness: &self.components.staleness,
            analysis: &self.components.analysis,
            silences,
            is_refused: self.answers.is_refused(participant),
            now_us,
        }
    }

    /// Adds the error of the newest poll to alerts about stale data.
    fn add_reasons(&self, events: &mut [Event]) {
        for event in events {
            if let EventKind::Stale { reason, .. } | EventKind::StillStale { reason, .. } =
                &mut event.kind
            {
                *reason = self.answers.error(&event.participant);
            }
        }
    }

    /// Resolves the open alerts of a participant that is no longer configured.
    pub(crate) async fn resolve_removed(&self, participant: &str) -> Result<usize, HistoryError> {
        let history = &self.components.history;
        let now_us = self.components.time.now_us();
        let state = history.participant_state(participant, now_us).await?;
        let reason = ResolveReason::NotConfigured;
        let (staleness, mut events) =
            alert::close_staleness(&state.staleness, now_us, &self.components.staleness);
        let mut alerts = Vec::new();
        for open in &state.alerts {
            let (resolved, raised) = alert::resolve(open, reason, now_us);
            if resolved != *open {
                alerts.push(resolved);
            }
            events.extend(raised);
        }
        let closed = events.len();
        if closed > 0 {
            let events = events.into_iter().map(|event| self.route(event)).collect();
            let update = StateUpdate {
                version: state.version,
                staleness,
                alerts,
                events,
            };
            history.commit(&update).await?;
            self.components.dispatcher.wake();
        }
        Ok(closed)
    }

    fn route(&self, event: Event) -> RoutedEvent {
        let routes = &self.components.routes;
        self.components.sink_directory.route(routes, event)
    }

    async fn analyse_once(&self, participant: &str) -> Result<Findings, HistoryError> {
        let Components { history, .. } = self.components();
        self.memory.commit(history, participant).await?;
        let now_us = self.components.time.now_us();
        let state = history.participant_state(participant, now_us).await?;
        let silences = self.read_silences(now_us).await?;
        let known_us = state.staleness.newest_us.unwrap_or(now_us).min(now_us);
        let samples = self.samples(participant, known_us, now_us).await?;
        let mut alerts = state.alerts.clone();
        let new = judge::new_alert_states(&alerts, &samples, now_us);
        if !new.is_empty() {
            // Stored before they are judged, so that a repeated step sees the same epoch.
            alerts.extend(history.add_alert_states(&new).await?);
        }
        let before = match state.staleness.newest_us {
            Some(us) => history.poll_at(participant, us).await?,
            None => None,
        };
        let state = ParticipantState { alerts, ..state };
        let (state, events) = self
            .judge(state, &samples, before, &silences, now_us)
            .await?;
        self.memory
            .remember(participant, state, Some(&samples), &silences);
        Ok(Findings { samples, events })
    }

    async fn check_timers_once(&self, participant: &str) -> Result<Vec<Event>, HistoryError> {
        let Components { history, .. } = self.components();
        self.memory.commit(history, participant).await?;
        let now_us = self.components.time.now_us();
        let state = history.participant_state(participant, now_us).await?;
        let silences = self.read_silences(now_us).await?;
        let (state, events) = self.judge(state, &[], None, &silences, now_us).await?;
        self.memory.remember(participant, state, None, &silences);
        Ok(events)
    }

    /// Judges samples and commits the result if anything changed. Returns the state afterwards.
    async fn judge(
        &self,
        state: ParticipantState,
        samples: &[Vec<Sample>],
        before: Option<Poll>,
        silences: &[Silence],
        now_us: u64,
    ) -> Result<(ParticipantState, Vec<Event>), HistoryError> {
        let context = self.context(&state.staleness.participant, silences, now_us);
        let mut verdict = context.judge(&state.staleness, &state.alerts, samples, before);
        self.add_reasons(&mut verdict.events);
        if verdict.staleness == state.staleness && verdict.alerts.is_empty() {
            return Ok((state, verdict.events));
        }
        let events = verdict.events.iter().cloned();
        let update = StateUpdate {
            version: state.version,
            staleness: verdict.staleness,
            alerts: verdict.alerts,
            events: events.map(|event| self.route(event)).collect(),
        };
        self.components.history.commit(&update).await?;
        Ok((after(state, update), verdict.events))
    }
}

/// The state after an update was committed.
fn after(mut state: ParticipantState, update: StateUpdate) -> ParticipantState {
    state.version += 1;
    state.staleness = update.staleness;
    for changed in update.alerts {
        let mut known = state.alerts.iter_mut();
        if let Some(own) = known.find(|own| own.bucket == changed.bucket) {
            *own = changed;
        }
    }
    state
}

/// What waits in memory because the database accepts no writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unstored {
    /// Polls that have not been stored.
    pub polls: usize,
    /// Events that have been sent, but not recorded.
    pub events: usize,
    /// Acknowledgements and silences of operators that have not been stored.
    pub changes: usize,
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
    /// The fetch was interrupted by the end of the process, or panicked.
    #[error("the fetch was interrupted")]
    Interrupted,
}

impl FetchError {
    /// Returns true if the source refused the request, and will refuse it until a configuration changes.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::UnknownParticipant => true,
            Self::Source(error) => error.is_refusal(),
            Self::Interrupted => false,
        }
    }

    /// A short name for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::UnknownParticipant => "unknown_participant",
            Self::Source(error) => error.label(),
            Self::Interrupted => "interrupted",
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
