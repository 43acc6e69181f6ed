//! One cycle: ask, store, analyse, publish. Each step is a function of its own with a retry rule of
//! its own, so that whoever schedules them (the embedded loop, Temporal, a test) can run them one by
//! one, and stop and go on between any two.
//!
//! | Step | What it does | When it fails |
//! |--|--|--|
//! | [`Cycle::get`] | one call that lists all buckets | the source's own attempts; then the planner waits, Retry-After included |
//! | [`Cycle::store`] | the samples, once | again while the database is away, five times; then kept in memory for the next cycle |
//! | [`Cycle::analyse`] | machines forward, state and messages committed together | again from the start when overtaken or away; nothing is half done |
//! | [`Cycle::announce`], [`Cycle::publish`] | the dispatcher are told; or one attempt at every message that is due, for those who have no dispatcher running | left to the dispatcher, who never give up |

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
use crate::sample::{Poll, Sample};
use crate::source::{Source, SourceError};
use crate::time_source::TimeSource;
use pending::PendingPolls;

pub use pending::PENDING_POLLS_MAX;
pub use sink_directory::SinkDirectory;

/// How often a step is tried while the database is away or others commit in between.
const ATTEMPTS: u32 = 5;

/// The wait after the first failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// How long one attempt at everything that is due may take.
const PUBLISH_WITHIN: Duration = Duration::from_secs(30);

/// All that a cycle needs to know.
#[derive(Debug)]
pub struct Components {
    /// What is remembered.
    pub history: History,
    /// Whom to ask about each participant.
    pub sources: BTreeMap<String, Source>,
    /// How buckets are watched.
    pub rules: AlertRules,
    /// How the data itself is watched.
    pub staleness: StalenessRule,
    /// How samples are read.
    pub analysis: SettingsByPolicy,
    /// Which severity goes where.
    pub routes: Routes,
    /// Which sinks there are.
    pub sink_directory: SinkDirectory,
    /// Who delivers.
    pub dispatcher: Dispatcher,
    /// What time it is.
    pub time: TimeSource,
}

/// The four steps. Clones share everything.
#[derive(Clone)]
pub struct Cycle {
    components: Arc<Components>,
    pending: Arc<PendingPolls>,
}

impl Cycle {
    /// A cycle of these components.
    pub fn new(components: Components) -> Self {
        Self {
            components: Arc::new(components),
            pending: Arc::default(),
        }
    }

    /// What it is made of.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Step one: asks about a participant.
    pub async fn fetch(&self, participant: &str) -> Result<Poll, FetchError> {
        let source = self.components.sources.get(participant);
        let source = source.ok_or(FetchError::UnknownParticipant)?;
        let poll = source
            .fetch(participant, || self.components.time.now_us())
            .await;
        poll.map_err(FetchError::Source)
    }

    /// Step two: keeps the answer. What cannot be kept now is kept in memory and comes before the
    /// next answer, up to [`PENDING_POLLS_MAX`] answers.
    pub async fn store(&self, poll: Poll) -> Result<(), HistoryError> {
        self.pending.push(poll);
        retried(|| self.pending.store(&self.components.history)).await
    }

    /// Step three: brings the machines up to date with everything that was stored, and commits them
    /// together with what they tell. Without news it still tells of stale data and reminds.
    pub async fn analyse(&self, participant: &str) -> Result<Findings, HistoryError> {
        retried(|| self.analyse_once(participant)).await
    }

    /// What time alone brings: stale data, reminders, the end of silences. A step three without
    /// samples, cheap enough for every few seconds.
    pub async fn check_timers(&self, participant: &str) -> Result<Vec<Event>, HistoryError> {
        retried(|| self.check_timers_once(participant)).await
    }

    /// Step four: tries to deliver what is due. What fails is tried again by the dispatcher.
    pub async fn publish(&self) -> Result<DeliverySummary, HistoryError> {
        let now_us = self.components.time.now_us();
        self.components
            .dispatcher
            .deliver_once(now_us, PUBLISH_WITHIN)
            .await
    }

    /// Tells the dispatcher that there is something to deliver, if there is.
    pub fn notify_dispatcher(&self, events: &[Event]) {
        if !events.is_empty() {
            self.components.dispatcher.wake();
        }
    }

    /// What an analysis would see now, without bringing anything forward.
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
            .recent(participant, since_us)
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
            // Before the first step, so that its epoch is the same whenever that is repeated.
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

    /// Judges what was seen and commits it, if there is anything to commit.
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

/// What a judgement is about.
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

/// What an analysis saw and told.
#[derive(Clone, Debug)]
pub struct Findings {
    samples: Vec<Vec<Sample>>,
    events: Vec<Event>,
}

impl Findings {
    /// What was told.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// All buckets that the newest answer lists, as they look now.
    pub fn assessments(
        &self,
        rules: &AlertRules,
        analysis: &SettingsByPolicy,
    ) -> Vec<Assessment<'_>> {
        judge::assessments(&self.samples, rules, reading)
    }
}

/// Why there is no answer about a participant.
#[derive(Debug)]
pub enum FetchError {
    /// Nobody knows about this participant.
    UnknownParticipant,
    /// Whoever knows did not answer.
    Source(SourceError),
}

impl FetchError {
    /// A short name for counters and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::UnknownParticipant => "unknown_participant",
            Self::Source(error) => error.label(),
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownParticipant => f.write_str("no source is configured for this participant"),
            Self::Source(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FetchError {}

async fn retried<T, F: Future<Output = Result<T, HistoryError>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<T, HistoryError> {
    let mut wait = FIRST_WAIT;
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(error) if error.is_transient() => {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            done => return done,
        }
    }
    attempt().await
}
