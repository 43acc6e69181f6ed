//! Predicted alerts: a bucket that will be empty soon.

use serde::{Deserialize, Serialize};

use crate::alert::alarm::Telling;
use crate::alert::{Kind, Outcome, Rule};
use crate::analyse::Assessment;
use crate::severity::Severity;

/// What the end of an untold prediction names as its silence when that is over.
const SILENCE_OVER: &str = "a silence that is over";

/// A prediction that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// The number of the event that told it.
    pub episode: u64,
    /// When it was made.
    pub since_us: u64,
    /// Whether somebody was told, or a silence covered it.
    pub is_told: bool,
    /// Since when it no longer looks like it.
    pub clearing_since_us: Option<u64>,
}

/// Opens and closes predictions by what is seen.
pub(crate) fn judge(telling: &mut Telling<'_>, seen: &Assessment<'_>, rule: &Rule) {
    if telling.alarm.severity == Severity::Exhausted {
        // It happened, or had happened before anybody could say so.
        end(telling, Outcome::CameTrue, rule);
        return;
    }
    let taken_us = seen.sample().taken_us();
    let within_us = rule.predict_within_us();
    let sure = seen
        .time_to_empty()
        .filter(|outlook| outlook.confidence() >= rule.predict_confidence());
    let expected_us = sure
        .and_then(|outlook| Some((outlook.expected_us()?, outlook.confidence())))
        .filter(|_| within_us > 0);

    match (telling.alarm.forecast, expected_us) {
        (None, Some((us, confidence))) if us <= within_us => {
            let severity = rule.predicted_as();
            let silence = telling.silence(severity);
            let episode = telling.alarm.sequence;
            telling.alarm.forecast = Some(Forecast {
                episode,
                since_us: taken_us,
                is_told: silence.is_none(),
                clearing_since_us: None,
            });
            let kind = Kind::Predicted {
                empty_at_us: taken_us.saturating_add(us),
                confidence,
            };
            telling.tell(kind, severity, silence, "forecast", episode);
        }
        // As with levels, what was told needs a margin to be over: twice the time.
        (Some(open), Some((us, confidence))) if us <= within_us.saturating_mul(2) => {
            let severity = rule.predicted_as();
            // Made under a silence that is over, and still so.
            let is_news = !open.is_told && telling.silence(severity).is_none();
            telling.alarm.forecast = Some(Forecast {
                clearing_since_us: None,
                is_told: open.is_told || is_news,
                ..open
            });
            if is_news {
                let kind = Kind::Predicted {
                    empty_at_us: taken_us.saturating_add(us),
                    confidence,
                };
                telling.tell(kind, severity, None, "forecast", open.episode);
            }
        }
        (Some(open), _) => {
            let since_us = open.clearing_since_us.unwrap_or(taken_us).min(taken_us);
            telling.alarm.forecast = Some(Forecast {
                clearing_since_us: Some(since_us),
                ..open
            });
            if taken_us - since_us >= rule.calm_us() {
                end(telling, Outcome::Averted, rule);
            }
        }
        (None, _) => {}
    }
}

/// Closes the open prediction, if there is one.
pub(crate) fn end(telling: &mut Telling<'_>, outcome: Outcome, rule: &Rule) {
    let Some(open) = telling.alarm.forecast.take() else {
        return;
    };
    let severity = rule.predicted_as();
    let silence = if open.is_told {
        None
    } else {
        // Nobody heard of it, so nobody hears of its end either, also after the silence.
        let over = || Some(SILENCE_OVER.to_owned());
        telling.silence(severity).or_else(over)
    };
    let kind = Kind::ForecastOver { outcome };
    telling.tell(kind, severity, silence, "forecast", open.episode);
}
