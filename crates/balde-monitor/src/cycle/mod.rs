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
mod reading;
mod roster;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::alert::{AlertRules, AlertState, Event, Routes, Silence, StalenessCheck, StalenessRule};
use crate::analyse::Assessment;
use crate::delivery::{DeliverySummary, Dispatcher};
use crate::history::{History, HistoryError, StateUpdate};
use crate::sample::{Poll, Sample};
use crate::source::{Source, SourceError};
use crate::time::Time;
use pending::Pending;

pub use pending::PENDING_MAX;
pub use reading::Reading;
pub use roster::Roster;

/// How often a step is tried while the database is away or others commit in between.
const ATTEMPTS: u32 = 5;

/// The wait after the first failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// How long one attempt at everything that is due may take.
const PUBLISH_WITHIN: Duration = Duration::from_secs(30);

/// All that a cycle needs to know.
#[derive(Debug)]
pub struct Parts {
    /// What is remembered.
    pub history: History,
    /// Whom to ask about each participant.
    pub sources: BTreeMap<String, Source>,
    /// How buckets are watched.
    pub rules: AlertRules,
    /// How the data itself is watched.
    pub staleness: StalenessRule,
    /// How samples are read.
    pub reading: Reading,
    /// Which severity goes where.
    pub routes: Routes,
    /// Which sinks there are.
    pub roster: Roster,
    /// Who delivers.
    pub dispatcher: Dispatcher,
    /// What time it is.
    pub time: Time,
}

/// The four steps. Clones share everything.
#[derive(Clone)]
pub struct Cycle {
    parts: Arc<Parts>,
    pending: Arc<Pending>,
}

impl Cycle {
    /// A cycle of these parts.
    pub fn new(parts: Parts) -> Self {
        Self {
            parts: Arc::new(parts),
            pending: Arc::default(),
        }
    }

    /// What it is made of.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Step one: asks about a participant.
    pub async fn get(&self, participant: &str) -> Result<Poll, GetError> {
        let source = self.parts.sources.get(participant);
        let source = source.ok_or(GetError::Nobody)?;
        let poll = source
            .request(participant, || self.parts.time.now_us())
            .await;
        poll.map_err(GetError::Source)
    }

    /// Step two: keeps the answer. What cannot be kept now is kept in memory and comes before the
    /// next answer, up to [`PENDING_MAX`] answers.
    pub async fn store(&self, poll: Poll) -> Result<(), HistoryError> {
        self.pending.push(poll);
        retried(|| self.pending.store(&self.parts.history)).await
    }

    /// Step three: brings the machines up to date with everything that was stored, and commits them
    /// together with what they tell. Without news it still tells of stale data and reminds.
    pub async fn analyse(&self, participant: &str) -> Result<Findings, HistoryError> {
        retried(|| self.analyse_once(participant)).await
    }

    /// What time alone brings: stale data, reminders, the end of silences. A step three without
    /// samples, cheap enough for every few seconds.
    pub async fn remind(&self, participant: &str) -> Result<Vec<Event>, HistoryError> {
        retried(|| self.remind_once(participant)).await
    }

    /// Step four: tries to deliver what is due. What fails is tried again by the dispatcher.
    pub async fn publish(&self) -> Result<DeliverySummary, HistoryError> {
        let now_us = self.parts.time.now_us();
        self.parts
            .dispatcher
            .deliver_once(now_us, PUBLISH_WITHIN)
            .await
    }

    /// Tells the dispatcher that there is something to deliver, if there is.
    pub fn announce(&self, events: &[Event]) {
        if !events.is_empty() {
            self.parts.dispatcher.wake();
        }
    }

    /// What an analysis would see now, without bringing anything forward.
    pub async fn look(&self, participant: &str) -> Result<Findings, HistoryError> {
        let now_us = self.parts.time.now_us();
        let newest = self.parts.history.newest_poll(participant).await?;
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
        let since_us = until_us.saturating_sub(self.parts.reading.look_back_us());
        let mut samples = self
            .parts
            .history
            .recent_samples(participant, since_us)
            .await?;
        judge::forget_the_future(&mut samples, now_us);
        Ok(samples)
    }

    async fn analyse_once(&self, participant: &str) -> Result<Findings, HistoryError> {
        let Parts { history, .. } = self.parts();
        let now_us = self.parts.time.now_us();
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
        let seen = Seen {
            samples: &samples,
            alerts: &alerts,
            before,
        };
        let events = self
            .judge(&state.staleness, state.version, seen, &silences, now_us)
            .await?;
        Ok(Findings { samples, events })
    }

    async fn remind_once(&self, participant: &str) -> Result<Vec<Event>, HistoryError> {
        let Parts { history, .. } = self.parts();
        let now_us = self.parts.time.now_us();
        let state = history.participant_state(participant, now_us).await?;
        let silences = history.silences(now_us).await?;
        let seen = Seen {
            samples: &[],
            alerts: &state.alerts,
            before: None,
        };
        self.judge(&state.staleness, state.version, seen, &silences, now_us)
            .await
    }

    /// Judges what was seen and commits it, if there is anything to commit.
    async fn judge(
        &self,
        staleness: &StalenessCheck,
        version: u64,
        seen: Seen<'_>,
        silences: &[Silence],
        now_us: u64,
    ) -> Result<Vec<Event>, HistoryError> {
        let bench = judge::Bench {
            rules: &self.parts.rules,
            staleness: &self.parts.staleness,
            reading: &self.parts.reading,
            silences,
            now_us,
        };
        let verdict = bench.judge(staleness, seen.alerts, seen.samples, seen.before);
        if verdict.staleness != *staleness || !verdict.alerts.is_empty() {
            let events = verdict.events.iter().cloned();
            let events = events.map(|event| self.parts.roster.route(&self.parts.routes, event));
            let update = StateUpdate {
                version,
                staleness: verdict.staleness,
                alerts: verdict.alerts,
                events: events.collect(),
            };
            self.parts.history.commit(&update).await?;
        }
        Ok(verdict.events)
    }
}

/// What a judgement is about.
struct Seen<'a> {
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
    pub fn assessments(&self, rules: &AlertRules, reading: &Reading) -> Vec<Assessment<'_>> {
        judge::assessments(&self.samples, rules, reading)
    }
}

/// Why there is no answer about a participant.
#[derive(Debug)]
pub enum GetError {
    /// Nobody knows about this participant.
    Nobody,
    /// Whoever knows did not answer.
    Source(SourceError),
}

impl GetError {
    /// A short name for counters and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Source(error) => error.label(),
        }
    }
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("no source is configured for this participant"),
            Self::Source(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GetError {}

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
