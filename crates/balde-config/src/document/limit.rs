//! Limits as people write them, with problems at the character where parsing stopped.

use balde_core::{Limit, ParseLimitError, Strategy};

use super::value::{Located, Value};
use crate::diagnostic::Diagnostics;
use crate::source::{Source, Span};

/// The shortest fixed window, in microseconds.
const WINDOW_US_MIN: u64 = 1_000_000;

const SHORT_WINDOW: &str =
    "a fixed window must be at least 1 s long; a token bucket can be faster: \"10/s burst 5\"";

impl Value<'_> {
    /// The value as a limit, such as `10/s burst 20`.
    pub fn limit(&self, diagnostics: &mut Diagnostics) -> Option<Located<Limit>> {
        let text = self.string(diagnostics)?;
        match text.value.parse::<Limit>() {
            Ok(limit) if is_short_window(&limit) => {
                diagnostics.at(text.span, SHORT_WINDOW);
                None
            }
            Ok(limit) => Some(text.map(|_| limit)),
            Err(error) => {
                let span = span_of(&error, text, diagnostics.source());
                diagnostics.at(span, reason(&error));
                None
            }
        }
    }

    /// A limit that is composed of several keys; problems are reported at this value.
    pub fn composed_limit(&self, text: &str, diagnostics: &mut Diagnostics) -> Option<Limit> {
        match text.parse() {
            Ok(limit) if is_short_window(&limit) => {
                diagnostics.at(self.span(), SHORT_WINDOW);
                None
            }
            Ok(limit) => Some(limit),
            Err(error) => {
                diagnostics.at(self.span(), reason(&error));
                None
            }
        }
    }
}

/// From the character where parsing stopped, if the string is in the file without escapes; else the
/// whole string.
fn span_of(error: &ParseLimitError, text: Located<&str>, source: &Source) -> Span {
    let inside = text.span.start() + 1..text.span.end().saturating_sub(1);
    if source.text().get(inside.clone()) != Some(text.value) || error.limit_error().is_some() {
        return text.span;
    }
    let parsed = text.value.chars().take(error.column().saturating_sub(1));
    let start = inside.start + parsed.map(char::len_utf8).sum::<usize>();
    Span::from(start..inside.end.max(start + 1))
}

/// The reason without its column: the position in the file is more precise.
pub(super) fn reason(error: &ParseLimitError) -> String {
    if let Some(error) = error.limit_error() {
        return error.to_string();
    }
    let text = error.to_string();
    match text.split_once(": ") {
        Some((_, reason)) => reason.to_owned(),
        None => text,
    }
}

fn is_short_window(limit: &Limit) -> bool {
    limit.strategy() == Strategy::FixedWindow && limit.period_us() < WINDOW_US_MIN
}
