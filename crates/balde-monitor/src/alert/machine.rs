//! The state machine of one bucket's alert.

use super::event::{Event, EventKind, ForecastResult, ResolveReason};
use super::forecast;
use super::rule::AlertRule;
use super::silence::Silence;
use super::state::{AlertState, Clearing};
use super::transition::Transition;
use crate::analyse::Assessment;
use crate::severity::Severity;

/// Evaluates an alert rule: returns the state afterwards and the events to send.
///
/// `assessment` is the newest assessment of the bucket. An assessment of another bucket, or one that
/// was evaluated before, is ignored; without a new one only reminders are produced. A worse severity
/// takes effect at once. A better one takes effect when the level has been above the threshold and
/// its hysteresis for the rule's [`resolve_after_us`](AlertRule::resolve_after_us).
pub fn evaluate(
    state: &AlertState,
    assessment: Option<&Assessment<'_>>,
    now_us: u64,
    rule: &AlertRule,
    silences: &[Silence],
) -> (AlertState, Vec<Event>) {
    let mut transition = Transition::new(state, now_us, silences);
    if let Some(assessment) = assessment.filter(|new| state.is_new(new, now_us)) {
        let sample = assessment.sample();
        transition.state.sampled_us = Some(sample.taken_us());
        transition.state.level = Some(sample.level());
        transition.state.capacity = Some(sample.limit().capacity());
        transition.state.recovery_us = assessment.recovery_us();
        evaluate_level(&mut transition, assessment, rule);
        forecast::evaluate(&mut transition, assessment, rule);
    }
    remind(&mut transition, rule);
    (transition.state, transition.events)
}

/// Resolves everything that is open about a bucket whose policy is no longer listed.
pub fn resolve_vanished(state: &AlertState, now_us: u64) -> (AlertState, Vec<Event>) {
    resolve(state, ResolveReason::Vanished, now_us)
}

/// Resolves everything that is open about a bucket, for any reason.
pub fn resolve(state: &AlertState, reason: ResolveReason, now_us: u64) -> (AlertState, Vec<Event>) {
    let mut transition = Transition::new(state, now_us, &[]);
    forecast::close(&mut transition, ForecastResult::Averted);
    if transition.state.severity > Severity::Normal {
        transition.lower(Severity::Normal, reason, now_us);
    }
    transition.state.clearing = None;
    (transition.state, transition.events)
}

/// Closes the open forecast of a bucket, and nothing else.
pub(super) fn close_forecast(state: &AlertState, now_us: u64) -> (AlertState, Vec<Event>) {
    let mut transition = Transition::new(state, now_us, &[]);
    forecast::close(&mut transition, ForecastResult::Averted);
    (transition.state, transition.events)
}

fn evaluate_level(transition: &mut Transition<'_>, assessment: &Assessment<'_>, rule: &AlertRule) {
    let sample = assessment.sample();
    let (level, limit, taken_us) = (sample.level(), sample.limit(), sample.taken_us());
    let current = transition.state.severity;
    let raised = rule.thresholds().severity(level, limit);
    let lowered = rule.thresholds().severity_with_hysteresis(level, limit);
    if raised > current {
        transition.state.clearing = None;
        transition.raise(raised, taken_us);
    } else if lowered < current {
        let clearing = transition.state.clearing.map_or(
            Clearing {
                since_us: taken_us,
                worst: lowered,
            },
            |begun| Clearing {
                // A clock that was set back must not make the recovery look longer than it is.
                since_us: begun.since_us.min(taken_us),
                worst: begun.worst.max(lowered),
            },
        );
        transition.state.clearing = Some(clearing);
        if taken_us - clearing.since_us >= rule.resolve_after_us() {
            transition.state.clearing = None;
            transition.lower(clearing.worst, ResolveReason::Recovered, taken_us);
        }
    } else {
        transition.state.clearing = None;
    }
}

/// Sends an open alert again when a reminder is due, or when the silence that covered it has ended.
fn remind(transition: &mut Transition<'_>, rule: &AlertRule) {
    let state = &transition.state;
    let severity = state.severity;
    if severity == Severity::Normal || transition.silence(severity).is_some() {
        return;
    }
    let waited_us = transition.now_us.saturating_sub(state.notified_us);
    let is_due = rule
        .remind_every_us(severity)
        .is_some_and(|us| waited_us >= us);
    if is_due || state.notified < severity {
        let since_us = state.since_us;
        transition.state.notified = state.notified.max(severity);
        transition.state.notified_us = transition.now_us;
        let group = transition.state.episode;
        let kind = EventKind::Reminder { since_us };
        transition.emit(kind, severity, None, "level", group);
    }
}
