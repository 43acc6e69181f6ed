//! The numbers of a limit: in one text, as `limit = "10/s burst 20"`, or one by one with a strategy.

use std::ops::Range;

use balde_core::{Limit, ParseLimitError};
use toml::Spanned;
use toml::de::DeValue;

use super::fault::Faults;
use super::section::{At, Section};

/// All that may be written, whatever of it is.
struct Written<'a> {
    limit: Option<&'a Spanned<DeValue<'a>>>,
    rate: Option<&'a Spanned<DeValue<'a>>>,
    burst: Option<At<u64>>,
    window: Option<At<&'a str>>,
}

#[derive(Clone, Copy)]
enum Kind {
    TokenBucket,
    FixedWindow,
}

pub(super) fn check(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Limit> {
    let words = [
        ("token_bucket", Kind::TokenBucket),
        ("fixed_window", Kind::FixedWindow),
    ];
    let written = Written {
        limit: section.any("limit"),
        rate: section.any("rate"),
        burst: section.number("burst", (1, u64::MAX), faults),
        window: section.text("window", faults),
    };
    if section.any("strategy").is_none() {
        return written.text(section, faults);
    }
    let kind = section.word("strategy", &words, faults)?;
    match kind.value {
        Kind::TokenBucket => written.token_bucket(kind.span, faults),
        Kind::FixedWindow => written.fixed_window(kind.span, faults),
    }
}

impl Written<'_> {
    fn text(&self, section: &Section<'_>, faults: &mut Faults<'_>) -> Option<Limit> {
        self.refuse(&["rate", "burst", "window"], faults, |key| {
            format!("`{key}` needs a `strategy`, or belongs into the text of `limit`")
        });
        let Some(value) = self.limit else {
            let path = section.path();
            let message = format!("[{path}] has no limit; write limit = \"10/s burst 20\"");
            faults.at(section.span(), message);
            return None;
        };
        let Some(text) = value.get_ref().as_str() else {
            let message = "`limit` is a text, as \"10/s burst 20\"; a number needs \
                           strategy = \"fixed_window\" and a window";
            faults.at(Some(value.span()), message);
            return None;
        };
        match text.parse() {
            Ok(limit) => Some(limit),
            Err(error) => {
                let span = span_of(&error, text, value.span(), faults.text());
                faults.at(Some(span), why(&error));
                None
            }
        }
    }

    fn token_bucket(&self, strategy: Range<usize>, faults: &mut Faults<'_>) -> Option<Limit> {
        self.refuse(&["limit", "window"], faults, |key| {
            format!("a token bucket has no `{key}`, but `rate` and `burst`")
        });
        let Some((rate, burst)) = self.rate.zip(self.burst.as_ref()) else {
            let message = "a token bucket needs `rate`, in tokens per second, and `burst`";
            faults.at(Some(strategy), message);
            return None;
        };
        let digits = match rate.get_ref() {
            DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str(),
            DeValue::Float(digits) => digits.as_str(),
            _ => {
                let message = "`rate` must be a number of tokens per second";
                faults.at(Some(rate.span()), message);
                return None;
            }
        };
        let text = format!("{digits}/s burst {}", burst.value);
        composed(&text, rate.span(), faults)
    }

    fn fixed_window(&self, strategy: Range<usize>, faults: &mut Faults<'_>) -> Option<Limit> {
        self.refuse(&["rate", "burst"], faults, |key| {
            format!("a fixed window has no `{key}`, but `limit` and `window`")
        });
        let Some((limit, window)) = self.limit.zip(self.window.as_ref()) else {
            let message = "a fixed window needs `limit`, a number, and `window`, as \"1 min\"";
            faults.at(Some(strategy), message);
            return None;
        };
        let DeValue::Integer(digits) = limit.get_ref() else {
            let message = "the `limit` of a fixed window is a whole number";
            faults.at(Some(limit.span()), message);
            return None;
        };
        let Ok(count) = u64::from_str_radix(digits.as_str(), digits.radix()) else {
            faults.at(
                Some(limit.span()),
                "the `limit` of a fixed window is 1 or more",
            );
            return None;
        };
        let text = format!("{count}/{} window", window.value);
        composed(&text, window.span.clone(), faults)
    }

    /// Refuses what does not go with the rest.
    fn refuse(&self, keys: &[&str], faults: &mut Faults<'_>, why: impl Fn(&str) -> String) {
        for key in keys {
            let span = match *key {
                "limit" => self.limit.map(Spanned::span),
                "rate" => self.rate.map(Spanned::span),
                "burst" => self.burst.as_ref().map(|at| at.span.clone()),
                _ => self.window.as_ref().map(|at| at.span.clone()),
            };
            if span.is_some() {
                faults.at(span, why(key));
            }
        }
    }
}

fn composed(text: &str, span: Range<usize>, faults: &mut Faults<'_>) -> Option<Limit> {
    match text.parse::<Limit>() {
        Ok(limit) => Some(limit),
        Err(error) => {
            faults.at(Some(span), why(&error));
            None
        }
    }
}

/// The very column where reading stopped, if the text is in the file as it is; else all of it.
fn span_of(error: &ParseLimitError, text: &str, span: Range<usize>, file: &str) -> Range<usize> {
    let inside = span.start + 1..span.end.saturating_sub(1);
    if file.get(inside.clone()) != Some(text) || error.limit_error().is_some() {
        return span;
    }
    let read = text.chars().take(error.column().saturating_sub(1));
    let start = inside.start + read.map(char::len_utf8).sum::<usize>();
    start..inside.end.max(start + 1)
}

/// The reason without its column: the column of the file says more.
fn why(error: &ParseLimitError) -> String {
    if let Some(error) = error.limit_error() {
        return error.to_string();
    }
    let text = error.to_string();
    match text.split_once(": ") {
        Some((_, why)) => why.to_owned(),
        None => text,
    }
}
