//! The state machine of one bucket.

use serde::{Deserialize, Serialize};

use crate::alert::event::{episode, key};
use crate::alert::silence::covering;
use crate::alert::{Event, Forecast, EventKind, ForecastResult, AlertRule, Silence, ResolveReason, forecast};
use crate::analyse::Assessment;
use crate::sample::BucketId;
use crate::severity::Severity;

/// What is known about one bucket's alert, to be kept between steps. Plain fields, for whichever
/// table keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertState {
    /// Whose bucket, under which policy.
    pub bucket: BucketId,
    /// When this state was made: part of every key, so that a database that was lost and begun
    /// anew gives new ones.
    pub epoch_us: u64,
    /// How many events it has given: the next one's number.
    pub sequence: u64,
    /// What was told last, or would have been but for a silence.
    pub severity: Severity,
    /// Since when.
    pub since_us: u64,
    /// The number of the event that opened the present episode.
    pub episode: u64,
    /// The worst of the present episode.
    pub peak: Severity,
    /// The worst of the present episode that no silence covered.
    pub told: Severity,
    /// When it was told last.
    pub told_us: u64,
    /// Better than `severity`, but not for long enough yet.
    pub clearing: Option<Clearing>,
    /// The prediction that is open.
    pub forecast: Option<Forecast>,
    /// The newest sample that was taken into account.
    pub sampled_us: Option<u64>,
    /// Its level.
    pub level: Option<i64>,
    /// Its capacity.
    pub capacity: Option<u64>,
}

/// A severity on its way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clearing {
    /// Since when it is better.
    pub since_us: u64,
    /// The worst it was since then.
    pub worst: Severity,
}

impl AlertState {
    /// A bucket about which nothing was told yet. Keep it before its first step: events that are
    /// worked out again have the same keys only if they start from the same state.
    pub fn new(bucket: BucketId, now_us: u64) -> Self {
        Self {
            bucket,
            epoch_us: now_us,
            sequence: 0,
            severity: Severity::Normal,
            since_us: now_us,
            episode: 0,
            peak: Severity::Normal,
            told: Severity::Normal,
            told_us: now_us,
            clearing: None,
            forecast: None,
            sampled_us: None,
            level: None,
            capacity: None,
        }
    }

    fn is_news(&self, seen: &Assessment<'_>, now_us: u64) -> bool {
        let taken_us = seen.sample().taken_us();
        // A sample that was taken into account already says nothing new. But when the clock went
        // back behind it, older samples are the news.
        let is_later = |sampled_us| taken_us > sampled_us || sampled_us > now_us;
        *seen.sample().bucket() == self.bucket && self.sampled_us.is_none_or(is_later)
    }
}

/// One step: the state afterwards, and what to tell.
///
/// `seen` is the newest assessment of the state's bucket, if there is one; of another bucket, or
/// one seen already, it says nothing. Without news only reminders come. It got worse: told at
/// once. It got better: told when it has been better than the band above the threshold for the
/// rule's calm.
pub fn evaluate(
    state: &AlertState,
    seen: Option<&Assessment<'_>>,
    now_us: u64,
    rule: &AlertRule,
    silences: &[Silence],
) -> (AlertState, Vec<Event>) {
    let mut transition = Transition::new(state, now_us, silences);
    if let Some(seen) = seen.filter(|seen| state.is_news(seen, now_us)) {
        let sample = seen.sample();
        transition.state.sampled_us = Some(sample.taken_us());
        transition.state.level = Some(sample.level());
        transition.state.capacity = Some(sample.limit().capacity());
        judge_level(&mut transition, seen, rule);
        forecast::judge(&mut transition, seen, rule);
    }
    remind(&mut transition, rule);
    (transition.state, transition.events)
}

/// The policy is no longer listed: what was open about it is over.
pub fn resolve_vanished(state: &AlertState, now_us: u64, rule: &AlertRule) -> (AlertState, Vec<Event>) {
    let mut transition = Transition::new(state, now_us, &[]);
    forecast::end(&mut transition, ForecastResult::Averted, rule);
    if transition.state.severity > Severity::Normal {
        transition.better(Severity::Normal, ResolveReason::Vanished, now_us);
    }
    transition.state.clearing = None;
    (transition.state, transition.events)
}

fn judge_level(transition: &mut Transition<'_>, seen: &Assessment<'_>, rule: &AlertRule) {
    let (level, limit) = (seen.sample().level(), seen.sample().limit());
    let taken_us = seen.sample().taken_us();
    let is = rule.thresholds().severity(level, limit);
    let still = rule.thresholds().severity_with_hysteresis(level, limit);
    let was = transition.state.severity;
    if is > was {
        transition.state.clearing = None;
        transition.worse(is, taken_us);
    } else if still < was {
        let clearing = transition.state.clearing.map_or(
            Clearing {
                since_us: taken_us,
                worst: still,
            },
            |begun| Clearing {
                // A clock that went back makes nothing calm for longer.
                since_us: begun.since_us.min(taken_us),
                worst: begun.worst.max(still),
            },
        );
        transition.state.clearing = Some(clearing);
        if taken_us - clearing.since_us >= rule.resolve_after_us() {
            transition.state.clearing = None;
            transition.better(clearing.worst, ResolveReason::Recovered, taken_us);
        }
    } else {
        transition.state.clearing = None;
    }
}

/// Tells an open alert again when its time has come, or when the silence that covered it is over.
fn remind(transition: &mut Transition<'_>, rule: &AlertRule) {
    let state = &transition.state;
    let severity = state.severity;
    if severity == Severity::Normal || transition.silence(severity).is_some() {
        return;
    }
    let waited_us = transition.now_us.saturating_sub(state.told_us);
    let is_due = rule.remind_us(severity).is_some_and(|us| waited_us >= us);
    if is_due || state.told < severity {
        let since_us = state.since_us;
        transition.state.told = state.told.max(severity);
        transition.state.told_us = transition.now_us;
        let group = transition.state.episode;
        transition.emit(EventKind::Reminder { since_us }, severity, None, "level", group);
    }
}

/// A step being taken: the state so far and what it tells.
pub(crate) struct Transition<'a> {
    pub(crate) state: AlertState,
    pub(crate) events: Vec<Event>,
    pub(crate) now_us: u64,
    silences: &'a [Silence],
}

impl<'a> Transition<'a> {
    fn new(state: &AlertState, now_us: u64, silences: &'a [Silence]) -> Self {
        Self {
            state: state.clone(),
            events: Vec::new(),
            now_us,
            silences,
        }
    }

    fn worse(&mut self, to: Severity, at_us: u64) {
        let from = self.state.severity;
        if from == Severity::Normal {
            self.state.episode = self.state.sequence;
            self.state.peak = Severity::Normal;
            self.state.told = Severity::Normal;
        }
        let silence = self.silence(to);
        self.state.severity = to;
        self.state.since_us = at_us;
        self.state.peak = self.state.peak.max(to);
        if silence.is_none() {
            self.state.told = self.state.told.max(to);
            self.state.told_us = self.now_us;
        }
        let group = self.state.episode;
        self.emit(EventKind::Raised { from, to }, to, silence, "level", group);
    }

    fn better(&mut self, to: Severity, reason: ResolveReason, at_us: u64) {
        let from = self.state.severity;
        let (kind, concerns) = match to {
            Severity::Normal => (EventKind::Resolved { from, reason }, self.state.peak),
            _ => (EventKind::Lowered { from, to }, from),
        };
        // Whoever was told that it is bad is told that it is better, silence or not: a page that
        // nobody takes back is worse than one too many.
        let silence = match self.state.told {
            Severity::Normal => self.silence(concerns),
            _ => None,
        };
        self.state.severity = to;
        self.state.since_us = at_us;
        // If it gets worse again within a silence, that has to be told anew.
        self.state.told = self.state.told.min(to);
        self.state.told_us = self.now_us;
        let group = self.state.episode;
        self.emit(kind, concerns, silence, "level", group);
    }

    /// The silence that covers a severity of this bucket now.
    pub(crate) fn silence(&self, severity: Severity) -> Option<String> {
        let bucket = &self.state.bucket;
        let policy = Some(bucket.policy());
        covering(
            self.silences,
            bucket.participant(),
            policy,
            severity,
            self.now_us,
        )
        .map(str::to_owned)
    }

    pub(crate) fn emit(
        &mut self,
        kind: EventKind,
        severity: Severity,
        silenced_by: Option<String>,
        group: &str,
        group_sequence: u64,
    ) {
        let state = &mut self.state;
        let subject = format!("{}/{}", state.bucket.participant(), state.bucket.policy());
        self.events.push(Event {
            key: key(&subject, state.epoch_us, state.sequence, &kind.label()),
            episode: episode(&subject, state.epoch_us, group_sequence, group),
            participant: state.bucket.participant().to_owned(),
            policy: Some(state.bucket.policy().to_owned()),
            at_us: self.now_us,
            kind,
            severity,
            level: state.level,
            capacity: state.capacity,
            silenced_by,
        });
        state.sequence += 1;
    }
}
