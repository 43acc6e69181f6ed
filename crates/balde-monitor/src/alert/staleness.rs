//! The state machine of one participant's data: whether it is up to date, and what changed in it.

use serde::{Deserialize, Serialize};

use super::event::{Event, EventKind, ResolveReason, episode, key};
use super::rule::StalenessRule;
use super::silence::{Silence, covering};
use crate::analyse::{Change, Freshness};
use crate::severity::Severity;

/// The state of one participant's data, stored between checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StalenessCheck {
    /// The participant.
    pub participant: String,
    /// When this state was created. It is part of every event key, and staleness is measured from it
    /// until the first poll.
    pub epoch_us: u64,
    /// The sequence number of the next event.
    pub sequence: u64,
    /// The time of the newest poll; `None` before the first.
    pub newest_us: Option<u64>,
    /// The open alert about stale data.
    pub stale: Option<Staleness>,
}

/// An open alert about stale data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness {
    /// The sequence number of the event that opened it.
    pub episode: u64,
    /// Whether it was sent; false if a silence covered it.
    pub is_notified: bool,
    /// When it was last sent.
    pub notified_us: u64,
}

/// What the source of a participant has answered since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceAnswer {
    /// Nothing, or an error that may be over soon.
    None,
    /// The states of its buckets.
    Poll {
        /// When they were taken.
        taken_us: u64,
    },
    /// That it does not know the participant, or does not accept whoever asked.
    Refused,
}

impl StalenessCheck {
    /// The initial state of a participant. Store it before its first check.
    pub fn new(participant: impl Into<String>, now_us: u64) -> Self {
        Self {
            participant: participant.into(),
            epoch_us: now_us,
            sequence: 0,
            newest_us: None,
            stale: None,
        }
    }
}

/// Checks whether a participant's data is stale: returns the state afterwards and the events to send.
///
/// `answer` is the newest poll, if there is one, and `changes` are its differences to the previous
/// poll. A poll that was checked before is ignored. A participant whose source refuses it and that was
/// never polled is stale at once, until its first poll: its ISPB, address or token is probably wrong.
pub fn check_staleness(
    state: &StalenessCheck,
    answer: SourceAnswer,
    changes: &[Change],
    now_us: u64,
    rule: &StalenessRule,
    silences: &[Silence],
) -> (StalenessCheck, Vec<Event>) {
    let mut transition = Transition {
        state: state.clone(),
        events: Vec::new(),
        now_us,
        silences,
    };
    let known_us = state.newest_us.unwrap_or(state.epoch_us);
    // If the clock was set back to before the newest poll, older times are new.
    let is_new = |us: u64| {
        state
            .newest_us
            .is_none_or(|newest| us > newest || newest > now_us)
    };
    if let SourceAnswer::Poll { taken_us } = answer
        && is_new(taken_us)
    {
        transition.state.newest_us = Some(taken_us);
        let severity = rule.changed_severity;
        for change in changes {
            let group = transition.state.sequence;
            let silence = transition.silence(None, severity);
            let kind = EventKind::Changed(change.clone());
            transition.emit(kind, severity, silence, "change", group);
        }
    }
    let newest_us = transition.state.newest_us.unwrap_or(state.epoch_us);
    let severity = rule.stale_severity;
    let is_never_polled = transition.state.newest_us.is_none();
    let is_refused = answer == SourceAnswer::Refused || transition.state.stale.is_some();
    let freshness = if is_never_polled && is_refused {
        Freshness::Stale { overdue_us: 0 }
    } else {
        Freshness::of(newest_us, now_us, rule.stale_after_us)
    };
    match (freshness, transition.state.stale) {
        (Freshness::Fresh, None) => {}
        (Freshness::Fresh, Some(open)) => {
            let episode = transition.state.open_episode();
            let silence = transition.silence(episode.as_deref(), severity);
            let silence = silence.filter(|_| !open.is_notified);
            transition.state.stale = None;
            let kind = EventKind::Fresh {
                newest_us: known_us,
            };
            transition.emit(kind, severity, silence, "stale", open.episode);
        }
        (Freshness::Stale { .. }, None) => {
            let silence = transition.silence(None, severity);
            let group = transition.state.sequence;
            transition.state.stale = Some(Staleness {
                episode: group,
                is_notified: silence.is_none(),
                notified_us: now_us,
            });
            let kind = EventKind::Stale {
                newest_us,
                reason: None,
            };
            transition.emit(kind, severity, silence, "stale", group);
        }
        (Freshness::Stale { .. }, Some(open)) => {
            let waited_us = now_us.saturating_sub(open.notified_us);
            let is_due = rule
                .remind_every_us
                .is_some_and(|us| waited_us >= us.max(1));
            let episode = transition.state.open_episode();
            let silence = transition.silence(episode.as_deref(), severity);
            if (is_due || !open.is_notified) && silence.is_none() {
                transition.state.stale = Some(Staleness {
                    is_notified: true,
                    notified_us: now_us,
                    ..open
                });
                let kind = EventKind::StillStale {
                    newest_us,
                    reason: None,
                };
                transition.emit(kind, severity, None, "stale", open.episode);
            }
        }
    }
    (transition.state, transition.events)
}

/// Closes the open alert about the stale data of a participant that is no longer configured.
pub fn close_staleness(
    state: &StalenessCheck,
    now_us: u64,
    rule: &StalenessRule,
) -> (StalenessCheck, Vec<Event>) {
    let mut transition = Transition {
        state: state.clone(),
        events: Vec::new(),
        now_us,
        silences: &[],
    };
    if let Some(open) = transition.state.stale.take() {
        let kind = EventKind::Resolved {
            from: rule.stale_severity,
            reason: ResolveReason::NotConfigured,
        };
        let severity = rule.stale_severity;
        transition.emit(kind, severity, None, "stale", open.episode);
    }
    (transition.state, transition.events)
}

struct Transition<'a> {
    state: StalenessCheck,
    events: Vec<Event>,
    now_us: u64,
    silences: &'a [Silence],
}

impl Transition<'_> {
    /// The id of the silence that covers a severity now, or of the acknowledgement of an episode.
    fn silence(&self, episode: Option<&str>, severity: Severity) -> Option<String> {
        let participant = &self.state.participant;
        covering(
            self.silences,
            participant,
            None,
            episode,
            severity,
            self.now_us,
        )
        .map(str::to_owned)
    }

    fn emit(
        &mut self,
        kind: EventKind,
        severity: Severity,
        silenced_by: Option<String>,
        group: &str,
        group_sequence: u64,
    ) {
        let state = &mut self.state;
        let subject = &state.participant;
        self.events.push(Event {
            key: key(subject, state.epoch_us, state.sequence, &kind.label()),
            episode: episode(subject, state.epoch_us, group_sequence, group),
            participant: subject.clone(),
            policy: None,
            at_us: self.now_us,
            kind,
            severity,
            level: None,
            capacity: None,
            recovery_us: None,
            silenced_by,
        });
        state.sequence += 1;
    }
}
