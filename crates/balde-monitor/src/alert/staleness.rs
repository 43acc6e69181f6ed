//! The state over the data itself: is there any, and what did the other side change.

use serde::{Deserialize, Serialize};

use crate::alert::event::{episode, key};
use crate::alert::silence::covering;
use crate::alert::{Event, EventKind, Silence, StalenessRule};
use crate::analyse::{Change, Freshness};
use crate::severity::Severity;

/// What is known about the data of one participant, to be kept between steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StalenessCheck {
    /// Whose data.
    pub participant: String,
    /// When this state began: part of every key, and what a first answer is awaited from.
    pub epoch_us: u64,
    /// How many events it has given: the next one's number.
    pub sequence: u64,
    /// The newest answer; nothing before the first.
    pub newest_us: Option<u64>,
    /// The staleness that is open.
    pub stale: Option<Staleness>,
}

/// Data that is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness {
    /// The number of the event that told it.
    pub episode: u64,
    /// Whether somebody was told, or a silence covered it.
    pub is_told: bool,
    /// When it was told last.
    pub told_us: u64,
}

impl StalenessCheck {
    /// A participant about whom nothing was heard yet. Keep it before its first step.
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

/// One step: the state afterwards, and what to tell. `polled_us` is the moment of a new answer, if
/// there is one, and `changes` what is different in it. An answer that was seen already tells
/// nothing again.
pub fn check_staleness(
    state: &StalenessCheck,
    polled_us: Option<u64>,
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
    // After a step back of the clock an older moment is the newer answer.
    let is_news = |us: &u64| {
        state
            .newest_us
            .is_none_or(|newest| *us > newest || newest > now_us)
    };
    if let Some(us) = polled_us.filter(is_news) {
        transition.state.newest_us = Some(us);
        for change in changes {
            let group = transition.state.sequence;
            let silence = transition.silence(rule.changed_as);
            let kind = EventKind::Changed(change.clone());
            transition.emit(kind, rule.changed_as, silence, "change", group);
        }
    }
    let newest_us = transition.state.newest_us.unwrap_or(state.epoch_us);
    match (
        Freshness::of(newest_us, now_us, rule.stale_after_us),
        transition.state.stale,
    ) {
        (Freshness::Fresh, None) => {}
        (Freshness::Fresh, Some(open)) => {
            transition.state.stale = None;
            let silence = transition.silence(rule.stale_as).filter(|_| !open.is_told);
            let kind = EventKind::Fresh {
                newest_us: known_us,
            };
            transition.emit(kind, rule.stale_as, silence, "stale", open.episode);
        }
        (Freshness::Stale { .. }, None) => {
            let silence = transition.silence(rule.stale_as);
            let group = transition.state.sequence;
            transition.state.stale = Some(Staleness {
                episode: group,
                is_told: silence.is_none(),
                told_us: now_us,
            });
            transition.emit(
                EventKind::Stale { newest_us },
                rule.stale_as,
                silence,
                "stale",
                group,
            );
        }
        (Freshness::Stale { .. }, Some(open)) => {
            let waited_us = now_us.saturating_sub(open.told_us);
            let is_due = rule
                .stale_remind_us
                .is_some_and(|us| waited_us >= us.max(1));
            if (is_due || !open.is_told) && transition.silence(rule.stale_as).is_none() {
                transition.state.stale = Some(Staleness {
                    is_told: true,
                    told_us: now_us,
                    ..open
                });
                let kind = EventKind::StillStale { newest_us };
                transition.emit(kind, rule.stale_as, None, "stale", open.episode);
            }
        }
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
    fn silence(&self, severity: Severity) -> Option<String> {
        let participant = &self.state.participant;
        covering(self.silences, participant, None, severity, self.now_us).map(str::to_owned)
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
            silenced_by,
        });
        state.sequence += 1;
    }
}
