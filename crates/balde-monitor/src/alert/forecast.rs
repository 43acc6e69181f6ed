//! Forecasts: alerts about a bucket that will be empty soon.

use super::event::{EventKind, ForecastResult};
use super::rule::AlertRule;
use super::state::Forecast;
use super::transition::Transition;
use crate::analyse::Assessment;
use crate::severity::Severity;

/// The silence that the end of a silenced forecast names when that silence has ended.
const ENDED_SILENCE: &str = "a silence that has ended";

/// Opens and closes the forecast of a bucket.
pub(super) fn evaluate(
    transition: &mut Transition<'_>,
    assessment: &Assessment<'_>,
    rule: &AlertRule,
) {
    if transition.state.severity == Severity::Exhausted {
        close(transition, ForecastResult::CameTrue, rule);
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

    match (transition.state.forecast, expected_us) {
        (None, Some((us, confidence))) if us <= within_us => {
            let severity = rule.predicted_severity();
            let silence = transition.silence(severity);
            let episode = transition.state.sequence;
            transition.state.forecast = Some(Forecast {
                episode,
                since_us: taken_us,
                is_notified: silence.is_none(),
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
            let severity = rule.predicted_severity();
            // It was made during a silence that has ended, and still holds.
            let is_unsilenced = !open.is_notified && transition.silence(severity).is_none();
            transition.state.forecast = Some(Forecast {
                clearing_since_us: None,
                is_notified: open.is_notified || is_unsilenced,
                ..open
            });
            if is_unsilenced {
                let kind = EventKind::Predicted {
                    empty_at_us: taken_us.saturating_add(us),
                    confidence,
                };
                transition.emit(kind, severity, None, "forecast", open.episode);
            }
        }
        (Some(open), _) => {
            let since_us = open.clearing_since_us.unwrap_or(taken_us).min(taken_us);
            transition.state.forecast = Some(Forecast {
                clearing_since_us: Some(since_us),
                ..open
            });
            if taken_us - since_us >= rule.resolve_after_us() {
                close(transition, ForecastResult::Averted, rule);
            }
        }
        (None, _) => {}
    }
}

/// Closes the open forecast, if there is one.
pub(super) fn close(transition: &mut Transition<'_>, result: ForecastResult, rule: &AlertRule) {
    let Some(open) = transition.state.forecast.take() else {
        return;
    };
    let severity = rule.predicted_severity();
    let silence = if open.is_notified {
        None
    } else {
        // The forecast was never sent, so its end is not sent either, also after the silence.
        let ended = || Some(ENDED_SILENCE.to_owned());
        transition.silence(severity).or_else(ended)
    };
    let kind = EventKind::ForecastOver { result };
    transition.emit(kind, severity, silence, "forecast", open.episode);
}
