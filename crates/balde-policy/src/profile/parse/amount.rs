//! Limits, prices and credits, for all or by variant.

use super::reader::{Reader, Value, entries};
use crate::policy::{ByVariant, COST_MAX, PriceList, Variant};
use balde_core::{Limit, Strategy};

/// How the limits of a policy refill and start where their text does not say.
#[derive(Clone, Copy, Default)]
pub(super) struct Manner {
    pub(super) is_stepwise: bool,
    pub(super) starts_empty: bool,
}

/// A limit as people write it, in this manner unless the text says otherwise.
pub(super) fn limit(reader: &mut Reader<'_>, value: &Value<'_>, manner: Manner) -> Option<Limit> {
    let text = reader.text(value)?;
    let limit: Limit = match text.parse() {
        Ok(limit) => limit,
        Err(error) => {
            let full = format!("{error}");
            let reason = full.split_once(": ").map_or(&*full, |(_, reason)| reason);
            reader.problem(reader.inside(value, error.column()), reason);
            return None;
        }
    };
    let says = |words: &[&str]| text.split_whitespace().any(|word| words.contains(&word));
    let limit = if manner.is_stepwise && !says(&["continuous", "stepwise", "window"]) {
        limit.stepwise()
    } else {
        limit
    };
    let is_window = limit.strategy() == Strategy::FixedWindow;
    if manner.starts_empty && !is_window && !says(&["full", "empty"]) {
        return limit.starting_empty().ok();
    }
    Some(limit)
}

/// `{ by = "variant", VALUE = …, … }`, with something for every value of the variant.
pub(super) fn by_variant<T>(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    variants: &[Variant],
    mut read: impl FnMut(&mut Reader<'_>, &Value<'_>) -> Option<T>,
) -> Option<ByVariant<T>> {
    let table = reader.table(value)?;
    let Some(by) = table.get("by") else {
        reader.missing(value.span(), "this needs `by`, the name of a variant");
        return None;
    };
    let name = reader.text(by)?;
    let Some(variant) = variants.iter().find(|variant| variant.name() == name) else {
        let name = name.escape_debug();
        reader.missing(
            by.span(),
            format!("there is no variant `{name}` in [variants]"),
        );
        return None;
    };
    let mut values: Vec<(Box<str>, T)> = Vec::new();
    for (key, span, value) in entries(table).into_iter().filter(|(key, ..)| *key != "by") {
        if !variant.values().any(|known| known == key) {
            let known: Vec<&str> = variant.values().collect();
            let (key, known) = (key.escape_debug(), known.join(", "));
            reader.problem(span, format!("`{key}` is no {name}; there are {known}"));
        } else if let Some(read) = read(reader, value) {
            values.push((key.into(), read));
        }
    }
    let missing: Vec<&str> = variant
        .values()
        .filter(|v| !table.contains_key(*v))
        .collect();
    if !missing.is_empty() {
        let reason = format!("nothing is said for {name} {}", missing.join(", "));
        reader.missing(value.span(), reason);
    }
    let variant = name.into();
    Some(ByVariant::By { variant, values })
}

/// Tokens for an event: a number, or one for each value of a variant.
pub(super) fn tokens(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    variants: &[Variant],
) -> Option<ByVariant<u64>> {
    if value.get_ref().is_table() {
        return by_variant(reader, value, variants, |reader, value| {
            reader.number(value, COST_MAX)
        });
    }
    reader.number(value, COST_MAX).map(ByVariant::One)
}

/// `{ default = 1, 500 = 0, 4xx = 2, unanswered = 1 }`.
pub(super) fn prices(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<PriceList> {
    let table = reader.table(value)?;
    let Some(default) = table.get("default") else {
        reader.missing(
            value.span(),
            "costs need `default`, the price of what is not listed",
        );
        return None;
    };
    let mut prices = PriceList::new(reader.number(default, COST_MAX).unwrap_or(0));
    for (key, span, value) in entries(table) {
        if key == "default" {
            continue;
        }
        let Some(cost) = reader.number(value, COST_MAX) else {
            continue;
        };
        prices = match price_of(key) {
            Some(Priced::Unanswered) => prices.with_unanswered(cost),
            Some(Priced::Class(class)) => prices.with_class(class, cost),
            Some(Priced::Status(status)) => prices.with_status(status, cost),
            None => {
                let key: String = key.escape_debug().collect();
                let help = "use 100 to 599, 1xx to 5xx, unanswered or default";
                reader.problem(span, format!("`{key}` is no status; {help}"));
                continue;
            }
        };
    }
    Some(prices)
}

enum Priced {
    Unanswered,
    Class(u8),
    Status(u16),
}

fn price_of(key: &str) -> Option<Priced> {
    match key.as_bytes() {
        b"unanswered" => Some(Priced::Unanswered),
        [class @ b'1'..=b'5', b'x', b'x'] => Some(Priced::Class(class - b'0')),
        [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => key.parse().ok().map(Priced::Status),
        _ => None,
    }
}
