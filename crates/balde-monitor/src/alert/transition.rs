//! One evaluation in progress: the state so far, and the events it has produced.

use super::event::{Event, EventKind, ResolveReason, episode, key};
use super::silence::{Silence, covering};
use super::state::AlertState;
use crate::severity::Severity;

pub(super) struct Transition<'a> {
    pub(super) state: AlertState,
    pub(super) events: Vec<Event>,
    pub(super) now_us: u64,
    silences: &'a [Silence],
}

impl<'a> Transition<'a> {
    pub(super) fn new(state: &AlertState, now_us: u64, silences: &'a [Silence]) -> Self {
        Self {
            state: state.clone(),
            events: Vec::new(),
            now_us,
            silences,
        }
    }

    /// Raises the severity to `to`.
    pub(super) fn raise(&mut self, to: Severity, at_us: u64) {
        let from = self.state.severity;
        if from == Severity::Normal {
            self.state.episode = self.state.sequence;
            self.state.peak = Severity::Normal;
            self.state.notified = Severity::Normal;
        }
        let silence = self.silence(to);
        self.state.severity = to;
        self.state.since_us = at_us;
        self.state.peak = self.state.peak.max(to);
        if silence.is_none() {
            self.state.notified = self.state.notified.max(to);
            self.state.notified_us = self.now_us;
        }
        let group = self.state.episode;
        self.emit(EventKind::Raised { from, to }, to, silence, "level", group);
    }

    /// Lowers the severity to `to`, which resolves the alert if it is NORMAL.
    pub(super) fn lower(&mut self, to: Severity, reason: ResolveReason, at_us: u64) {
        let from = self.state.severity;
        let (kind, severity) = match to {
            Severity::Normal => (EventKind::Resolved { from, reason }, self.state.peak),
            _ => (EventKind::Lowered { from, to }, from),
        };
        // A recovery is sent in spite of a silence if the alert was sent: an alert that is never
        // resolved at the receiver is worse than one message too many.
        let silence = match self.state.notified {
            Severity::Normal => self.silence(severity),
            _ => None,
        };
        self.state.severity = to;
        self.state.since_us = at_us;
        // If it gets worse again during a silence, that has to be sent again afterwards.
        self.state.notified = self.state.notified.min(to);
        self.state.notified_us = self.now_us;
        let group = self.state.episode;
        self.emit(kind, severity, silence, "level", group);
    }

    /// Returns the id of the silence that covers a severity of this bucket's level now.
    pub(super) fn silence(&self, severity: Severity) -> Option<String> {
        self.silence_of(self.state.open_episode(), severity)
    }

    /// Returns the id of the silence that covers a severity of this bucket's forecast now.
    pub(super) fn forecast_silence(&self, severity: Severity) -> Option<String> {
        self.silence_of(self.state.forecast_episode(), severity)
    }

    fn silence_of(&self, episode: Option<String>, severity: Severity) -> Option<String> {
        let bucket = &self.state.bucket;
        let policy = Some(bucket.policy());
        covering(
            self.silences,
            bucket.participant(),
            policy,
            episode.as_deref(),
            severity,
            self.now_us,
        )
        .map(str::to_owned)
    }

    pub(super) fn emit(
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
            recovery_us: state.recovery_us,
            silenced_by,
        });
        state.sequence += 1;
    }
}
