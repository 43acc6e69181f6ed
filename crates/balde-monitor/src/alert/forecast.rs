//! Forecasts: alerts about a bucket that will be empty soon.

use super::event::{EventKind, ForecastResult};
use super::rule::AlertRule;
use super::state::Forecast;
use super::transition::Transition;
use crate::analyse::{Assessment, Confidence};
use crate::severity::Severity;

/// The silence that the end of a silenced forecast names when that silence has ended.
const ENDED_SILENCE: &str = "a silence that has ended";

/// Opens, escalates and closes the forecast of a bucket.
///
/// A forecast is routed by the time that is left: within the rule's
/// [`page_within_us`](AlertRule::page_within_us) as CRITICAL, before that by its
/// [`predicted_severity`](AlertRule::predicted_severity). One of low confidence waits until samples
/// have confirmed it for the rule's [`confirm_after_us`](AlertRule::confirm_after_us): a single burst
/// looks like a bucket that is about to be empty, and the samples after it show that it is not.
pub(super) fn evaluate(
    transition: &mut Transition<'_>,
    assessment: &Assessment<'_>,
    rule: &AlertRule,
) {
    if transition.state.severity == Severity::Exhausted {
        transition.state.unconfirmed_since_us = None;
        close(transition, ForecastResult::CameTrue);
        return;
    }
    let taken_us = assessment.sample().taken_us();
    let within_us = rule.predict_within_us();
    let confident = assessment
        .time_to_empty()
        .filter(|outlook| outlook.confidence() >= rule.predict_confidence());
    let expected_us = confident
        .and_then(|outlook| Some((outlook.expected_us()?, outlook.confidence())))
        .filter(|_| within_us > 0);
    let unconfirmed_since_us = transition.state.unconfirmed_since_us.take();

    match (transition.state.forecast, expected_us) {
        (None, Some((us, Confidence::Low)))
            if us <= within_us && !is_confirmed(assessment, unconfirmed_since_us, rule) =>
        {
            // A clock that was set back must not make it look older than it is.
            let since_us = unconfirmed_since_us.unwrap_or(taken_us).min(taken_us);
            transition.state.unconfirmed_since_us = Some(since_us);
        }
        (None, Some((us, confidence))) if us <= within_us => {
            let severity = severity_by_time_left(us, rule);
            let silence = transition.forecast_silence(severity);
            let episode = transition.state.sequence;
            transition.state.forecast = Some(Forecast {
                episode,
                since_us: taken_us,
                is_notified: silence.is_none(),
                severity,
                clearing_since_us: None,
            });
            let kind = EventKind::Predicted {
                empty_at_us: taken_us.saturating_add(us),
                confidence,
            };
            transition.emit(kind, severity, silence, "forecast", episode);
        }
        // Hysteresis, as for levels: an open forecast stays open until twice the time.
        (Some(open), Some((us, confidence))) if us <= within_us.saturating_mul(2) => {
            let severity = severity_by_time_left(us, rule).max(open.severity);
            let silence = transition.forecast_silence(severity);
            // It was made during a silence that has ended, or there is less time left now.
            let is_unsilenced = !open.is_notified && silence.is_none();
            let is_news = is_unsilenced || severity > open.severity;
            transition.state.forecast = Some(Forecast {
                clearing_since_us: None,
                is_notified: open.is_notified || silence.is_none(),
                severity,
                ..open
            });
            if is_news {
                let kind = EventKind::Predicted {
                    empty_at_us: taken_us.saturating_add(us),
                    confidence,
                };
                transition.emit(kind, severity, silence, "forecast", open.episode);
            }
        }
        (Some(open), _) => {
            let since_us = open.clearing_since_us.unwrap_or(taken_us).min(taken_us);
            transition.state.forecast = Some(Forecast {
                clearing_since_us: Some(since_us),
                ..open
            });
            if taken_us - since_us >= rule.resolve_after_us() {
                close(transition, ForecastResult::Averted);
            }
        }
        (None, _) => {}
    }
}

/// Returns true if a forecast of low confidence is worth a message: much of the bucket is gone, and the
/// samples have said the same for long enough.
fn is_confirmed(assessment: &Assessment<'_>, since_us: Option<u64>, rule: &AlertRule) -> bool {
    let taken_us = assessment.sample().taken_us();
    let lasted_us = taken_us.saturating_sub(since_us.unwrap_or(taken_us));
    lasted_us >= rule.confirm_after_us()
        && assessment.remaining_bp() <= i64::from(rule.confirm_below_bp())
}

/// The severity by which a forecast is routed.
fn severity_by_time_left(us: u64, rule: &AlertRule) -> Severity {
    if us <= rule.page_within_us() {
        rule.predicted_severity().max(Severity::Critical)
    } else {
        rule.predicted_severity()
    }
}

/// Closes the open forecast, if there is one.
pub(super) fn close(transition: &mut Transition<'_>, result: ForecastResult) {
    let Some(open) = transition.state.forecast else {
        return;
    };
    // It goes to every sink that got the forecast.
    let severity = open.severity;
    let silence = if open.is_notified {
        None
    } else {
        // The forecast was never sent, so its end is not sent either, also after the silence.
        let ended = || Some(ENDED_SILENCE.to_owned());
        transition.forecast_silence(severity).or_else(ended)
    };
    transition.state.forecast = None;
    let kind = EventKind::ForecastOver { result };
    transition.emit(kind, severity, silence, "forecast", open.episode);
}
