//! The numbers of a limit: in one string, as `limit = "10/s burst 20"`, or one by one with a
//! `strategy`.

use balde_config::{Diagnostics, Section, Span, Value};
use balde_core::Limit;

/// The keys in which the numbers of a limit can be written; each is optional here.
struct Keys<'a> {
    limit: Option<Value<'a>>,
    rate: Option<Value<'a>>,
    burst: Option<Value<'a>>,
    window: Option<Value<'a>>,
}

#[derive(Clone, Copy)]
enum Strategy {
    TokenBucket,
    FixedWindow,
}

pub(super) fn read(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Option<Limit> {
    let words = [
        ("token_bucket", Strategy::TokenBucket),
        ("fixed_window", Strategy::FixedWindow),
    ];
    let keys = Keys {
        limit: section.get("limit"),
        rate: section.get("rate"),
        burst: section.get("burst"),
        window: section.get("window"),
    };
    let Some(strategy) = section.get("strategy") else {
        return keys.one_string(section, diagnostics);
    };
    let strategy = strategy.choice(&words, diagnostics)?;
    match strategy.value {
        Strategy::TokenBucket => keys.token_bucket(strategy.span, diagnostics),
        Strategy::FixedWindow => keys.fixed_window(strategy.span, diagnostics),
    }
}

impl Keys<'_> {
    fn one_string(&self, section: &Section<'_>, diagnostics: &mut Diagnostics) -> Option<Limit> {
        for value in [&self.rate, &self.burst, &self.window]
            .into_iter()
            .flatten()
        {
            let key = value.key();
            let message = format!("`{key}` needs `strategy`, or belongs in the string of `limit`");
            diagnostics.at(value.span(), message);
        }
        let Some(limit) = &self.limit else {
            let title = section.title();
            let message =
                format!("missing key `limit` in {title}; write limit = \"10/s burst 20\"");
            diagnostics.at(section.span(), message);
            return None;
        };
        if limit.is_integer() {
            let message = "`limit` must be a string such as \"10/s burst 20\"; an integer needs \
                           strategy = \"fixed_window\" and `window`";
            diagnostics.at(limit.span(), message);
            return None;
        }
        limit.limit(diagnostics).map(|limit| limit.value)
    }

    fn token_bucket(&self, strategy: Span, diagnostics: &mut Diagnostics) -> Option<Limit> {
        for value in [&self.limit, &self.window].into_iter().flatten() {
            let key = value.key();
            let message = format!("a token bucket takes `rate` and `burst`, not `{key}`");
            diagnostics.at(value.span(), message);
        }
        let Some((rate, burst)) = self.rate.as_ref().zip(self.burst.as_ref()) else {
            let message = "a token bucket needs `rate`, in tokens per second, and `burst`";
            diagnostics.at(strategy, message);
            return None;
        };
        let tokens = rate.decimal(diagnostics);
        let burst = burst.integer(1..=u64::MAX, diagnostics);
        let text = format!("{}/s burst {}", tokens?.value, burst?.value);
        rate.composed_limit(&text, diagnostics)
    }

    fn fixed_window(&self, strategy: Span, diagnostics: &mut Diagnostics) -> Option<Limit> {
        for value in [&self.rate, &self.burst].into_iter().flatten() {
            let key = value.key();
            let message = format!("a fixed window takes `limit` and `window`, not `{key}`");
            diagnostics.at(value.span(), message);
        }
        let Some((limit, window)) = self.limit.as_ref().zip(self.window.as_ref()) else {
            let message =
                "a fixed window needs `limit`, an integer, and `window`, such as \"1 min\"";
            diagnostics.at(strategy, message);
            return None;
        };
        let count = limit.integer(1..=u64::MAX, diagnostics);
        let length = window.string(diagnostics);
        let text = format!("{}/{} window", count?.value, length?.value);
        window.composed_limit(&text, diagnostics)
    }
}
