//! The monitor's alerts as sentences, for people who watch them pass.

use std::fmt;
use std::fmt::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::print::print_line;

/// Whether an event of the log is an alert.
pub(crate) fn is_alert(metadata: &Metadata<'_>) -> bool {
    metadata.target() == "balde_monitor" && metadata.fields().field("current_severity").is_some()
}

/// Writes each alert as one line.
pub(crate) struct AlertLines {
    has_colors: bool,
}

impl AlertLines {
    pub(crate) const fn new(has_colors: bool) -> Self {
        Self { has_colors }
    }
}

impl<S: Subscriber> Layer<S> for AlertLines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut alert = Alert::default();
        event.record(&mut alert);
        print_line(alert.line(self.has_colors));
    }
}

/// The fields of an alert that a sentence needs.
#[derive(Clone, Default)]
struct Alert {
    kind: String,
    participant: String,
    policy: Option<String>,
    /// The severity by which it was sent: before it improved.
    severity: String,
    current_severity: String,
    level: Option<i64>,
    capacity: Option<u64>,
    at: String,
    empty_in_s: Option<u64>,
    message: String,
}

impl Alert {
    /// The time of the day and the sentence.
    fn line(&self, has_colors: bool) -> String {
        let time = self.at.get(11..19).unwrap_or("");
        let mut sentence = String::new();
        // Names come from other machines, and must not change the terminal.
        for c in self.sentence().chars() {
            if c.is_control() {
                sentence.extend(c.escape_default());
            } else {
                sentence.push(c);
            }
        }
        if has_colors {
            let color = match self.current_severity.as_str() {
                "NORMAL" if self.level.is_some_and(|level| level <= 0) => 31,
                "NORMAL" => 32,
                "WARNING" => 33,
                _ => 31,
            };
            format!("\x1b[2m{time}\x1b[0m  \x1b[{color}m{sentence}\x1b[0m")
        } else {
            format!("{time}  {sentence}")
        }
    }

    fn sentence(&self) -> String {
        let (Some(policy), Some(level), Some(capacity)) = (&self.policy, self.level, self.capacity)
        else {
            return self.message.clone();
        };
        let subject = format!("{policy} of {}", self.participant);
        let filled = filled(level, capacity);
        let severity = &self.current_severity;
        let down = match level {
            ..0 => format!("{subject} is {filled}"),
            0 => format!("{subject} is empty ({filled})"),
            1.. => format!("{subject} is down to {filled}"),
        };
        match (self.kind.as_str(), self.empty_in_s) {
            ("predicted", Some(seconds)) => {
                format!("{down}: empty in about {}", duration(seconds))
            }
            ("forecast-over", _) if level <= 0 => format!("{down}, as predicted"),
            ("forecast-over", _) => {
                format!("{subject} is at {filled}: no longer empty soon")
            }
            ("resolved", _) => format!("{subject} is back at {filled}: resolved"),
            ("reminder", _) => format!("{subject} is still at {filled}: {severity}"),
            (kind, _) if kind.starts_with("raised-") => format!("{down}: {severity}"),
            (kind, _) if kind.starts_with("lowered-") => {
                format!("{subject} is back at {filled}: no longer {}", self.severity)
            }
            _ => self.message.clone(),
        }
    }
}

impl Visit for Alert {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "bucket_level" {
            self.level = Some(value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "capacity" => self.capacity = Some(value),
            "empty_in_s" => self.empty_in_s = Some(value),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let text = value.to_owned();
        match field.name() {
            "kind" => self.kind = text,
            "participant" => self.participant = text,
            "policy" => self.policy = Some(text),
            "severity" => self.severity = text,
            "current_severity" => self.current_severity = text,
            "at" => self.at = text,
            "message" => self.message = text,
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

/// How full a bucket is: `8 % (2,900 of 36,000)`.
fn filled(level: i64, capacity: u64) -> String {
    let capacity_text = grouped(capacity);
    let Ok(tokens) = u64::try_from(level) else {
        let debt = grouped(level.unsigned_abs());
        return format!("{debt} tokens in debt (capacity {capacity_text})");
    };
    let of = format!("{} of {capacity_text}", grouped(tokens));
    let percent = u128::from(tokens) * 100 / u128::from(capacity.max(1));
    match tokens {
        0 => of,
        _ => format!("{percent} % ({of})"),
    }
}

/// A number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn duration(seconds: u64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match seconds {
        0..120 => write!(text, "{seconds} s"),
        120..7_200 => write!(text, "{} min", seconds / 60),
        _ => write!(text, "{} h", seconds / 3_600),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(kind: &str, severity: &str, level: i64, capacity: u64) -> Alert {
        Alert {
            kind: kind.to_owned(),
            participant: "12345678".to_owned(),
            policy: Some("ENTRIES_WRITE".to_owned()),
            severity: "EXHAUSTED".to_owned(),
            current_severity: severity.to_owned(),
            level: Some(level),
            capacity: Some(capacity),
            at: "2026-03-04T09:31:07.000000Z".to_owned(),
            empty_in_s: (kind == "predicted").then_some(40),
            message: "a description".to_owned(),
        }
    }

    #[test]
    fn an_alert_is_a_sentence() {
        for (kind, severity, level, expected) in [
            (
                "predicted",
                "WARNING",
                2_900,
                "is down to 8 % (2,900 of 36,000): empty in about 40 s",
            ),
            (
                "raised-CRITICAL",
                "CRITICAL",
                3_600,
                "is down to 10 % (3,600 of 36,000): CRITICAL",
            ),
            (
                "raised-EXHAUSTED",
                "EXHAUSTED",
                0,
                "is empty (0 of 36,000): EXHAUSTED",
            ),
            (
                "raised-EXHAUSTED",
                "EXHAUSTED",
                -12,
                "is 12 tokens in debt (capacity 36,000): EXHAUSTED",
            ),
            (
                "lowered-WARNING",
                "WARNING",
                9_000,
                "is back at 25 % (9,000 of 36,000): no longer EXHAUSTED",
            ),
            (
                "resolved",
                "NORMAL",
                36_000,
                "is back at 100 % (36,000 of 36,000): resolved",
            ),
            (
                "forecast-over",
                "NORMAL",
                0,
                "is empty (0 of 36,000), as predicted",
            ),
            (
                "forecast-over",
                "NORMAL",
                9_000,
                "is at 25 % (9,000 of 36,000): no longer empty soon",
            ),
            (
                "reminder",
                "WARNING",
                9_000,
                "is still at 25 % (9,000 of 36,000): WARNING",
            ),
        ] {
            let line = alert(kind, severity, level, 36_000).line(false);
            assert_eq!(
                line,
                format!("09:31:07  ENTRIES_WRITE of 12345678 {expected}")
            );
        }
        let other = alert("stale", "WARNING", 1, 2).line(false);
        assert_eq!(other, "09:31:07  a description");
        let unknown = Alert {
            level: None,
            ..alert("raised-WARNING", "WARNING", 1, 2)
        };
        assert_eq!(unknown.line(false), "09:31:07  a description");
    }

    #[test]
    fn names_from_elsewhere_do_not_change_the_terminal() {
        let mut alert = alert("resolved", "NORMAL", 1, 0);
        alert.policy = Some("A\x1b[2J\nB".to_owned());
        assert!(!alert.line(false).contains(['\x1b', '\n']));
        let colored = alert.line(true);
        assert_eq!(colored.matches('\x1b').count(), 4, "{colored:?}");
        assert!(colored.contains("\x1b[32m"), "{colored:?}");
    }

    #[test]
    fn durations_have_one_unit() {
        for (seconds, expected) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h")] {
            assert_eq!(duration(seconds), expected);
        }
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(999), "999");
    }
}
