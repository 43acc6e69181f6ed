//! Durations as people write them: `500 ms`, `30 s`, `10 min`.

use std::ops::RangeInclusive;
use std::time::Duration;

use balde_core::Limit;

use super::limit::reason;
use super::value::{Located, Value};
use crate::diagnostic::Diagnostics;

impl Value<'_> {
    /// The value as a duration: a number and a unit, such as `30 s`, with the units of limits. One
    /// outside of `range` is reported.
    pub fn duration(
        &self,
        range: RangeInclusive<Duration>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<Duration>> {
        if let Some(number) = self.as_number() {
            let message = format!(
                "{} needs a unit: write \"{number} s\", for instance",
                self.subject()
            );
            diagnostics.at(self.span(), message);
            return None;
        }
        let text = self.string(diagnostics)?;
        let problem = match parse_duration(text.value) {
            Ok(duration) if range.contains(&duration) => return Some(text.map(|_| duration)),
            Ok(_) => {
                let (least, most) = range.into_inner();
                format!("it must be between {least:?} and {most:?}")
            }
            Err(problem) => problem,
        };
        diagnostics.at(text.span, format!("{}: {problem}", self.subject()));
        None
    }
}

/// Reads a duration: a number and a unit, such as `30 s`, with the units of limits. An error says what is
/// wrong.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    // The period of a limit is a duration, so the parser of limits knows all units.
    let text = text.trim();
    if text.split_whitespace().next() == Some("0") || text.starts_with("0 ") {
        return Ok(Duration::ZERO);
    }
    let limit: Limit = format!("1/{text}")
        .parse()
        .map_err(|error| reason(&error))?;
    let period = Duration::from_micros(limit.period_us());
    if Limit::bucket(1, period) != Ok(limit) {
        return Err("write a number and a unit, such as 30 s".to_owned());
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, duration) in [
            ("500 ms", Duration::from_millis(500)),
            ("30s", Duration::from_secs(30)),
            (" 10 min ", Duration::from_secs(600)),
            ("h", Duration::from_secs(3_600)),
            ("7 days", Duration::from_secs(7 * 86_400)),
            ("0 s", Duration::ZERO),
        ] {
            assert_eq!(parse_duration(text), Ok(duration), "{text}");
        }
        for text in [
            "",
            "30",
            "-1 s",
            "1 fortnight",
            "1 s burst 3",
            "min window",
            "1 s empty",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
