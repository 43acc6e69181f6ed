//! Limits, costs and credits: one for all requests, or one for each value of a variant.

use balde_config::Value;
use balde_core::{Limit, Strategy};

use super::reader::Reader;
use crate::policy::{ByVariant, COST_MAX, PriceList, Variant};

/// How a limit refills and starts when its own text does not say.
#[derive(Clone, Copy, Default)]
pub(super) struct LimitDefaults {
    pub(super) is_stepwise: bool,
    pub(super) starts_empty: bool,
}

/// A limit as people write it, with the defaults applied.
pub(super) fn limit(
    value: &Value<'_>,
    defaults: LimitDefaults,
    reader: &mut Reader<'_>,
) -> Option<Limit> {
    let limit = value.limit(reader.diagnostics)?.value;
    let text = value.as_str()?;
    let has_word = |words: &[&str]| text.split_whitespace().any(|word| words.contains(&word));
    let limit = if defaults.is_stepwise && !has_word(&["continuous", "stepwise", "window"]) {
        limit.stepwise()
    } else {
        limit
    };
    let is_window = limit.strategy() == Strategy::FixedWindow;
    if defaults.starts_empty && !is_window && !has_word(&["full", "empty"]) {
        return limit.starting_empty().ok();
    }
    Some(limit)
}

/// `{ by = "variant", VALUE = …, … }`, with an entry for every value of the variant.
pub(super) fn by_variant<T>(
    value: &Value<'_>,
    variants: &[Variant],
    reader: &mut Reader<'_>,
    mut read: impl FnMut(&Value<'_>, &mut Reader<'_>) -> Option<T>,
) -> Option<ByVariant<T>> {
    let mut section = value.table(reader.diagnostics)?;
    let Some(by) = section.get("by") else {
        let message = "missing key `by`, the name of a variant";
        reader.diagnostics.at(value.span(), message);
        return None;
    };
    let name = by.string(reader.diagnostics)?;
    let Some(variant) = variants.iter().find(|variant| variant.name() == name.value) else {
        let message = format!(
            "there is no variant `{}` in [variants]",
            name.value.escape_debug()
        );
        let diagnostics = &mut *reader.diagnostics;
        diagnostics.unknown("variant", name.value, name.span, message);
        return None;
    };
    let name = variant.name();
    let mut values: Vec<(Box<str>, T)> = Vec::new();
    let entries = section.entries().into_iter();
    for entry in entries.filter(|entry| entry.key() != "by") {
        if !variant.values().any(|known| known == entry.key()) {
            let known: Vec<&str> = variant.values().collect();
            let (key, known) = (entry.key().escape_debug(), known.join(", "));
            let message = format!("`{key}` is not a value of {name}; expected one of {known}");
            reader.diagnostics.at(entry.key_span(), message);
        } else if let Some(read) = read(&entry, reader) {
            values.push((entry.key().into(), read));
        }
    }
    let missing: Vec<&str> = variant
        .values()
        .filter(|value| !section.contains(value))
        .collect();
    if !missing.is_empty() {
        let message = format!("there is no entry for {name} {}", missing.join(", "));
        reader.diagnostics.at(value.span(), message);
    }
    Some(ByVariant::By {
        variant: name.into(),
        values,
    })
}

/// Tokens for an event: a number, or one for each value of a variant.
pub(super) fn tokens(
    value: &Value<'_>,
    variants: &[Variant],
    reader: &mut Reader<'_>,
) -> Option<ByVariant<u64>> {
    if value.is_table() {
        return by_variant(value, variants, reader, |value, reader| {
            reader.integer(value, COST_MAX)
        });
    }
    reader.integer(value, COST_MAX).map(ByVariant::One)
}

/// `{ default = 1, 500 = 0, 4xx = 2, unanswered = 1 }`.
pub(super) fn prices(value: &Value<'_>, reader: &mut Reader<'_>) -> Option<PriceList> {
    let mut section = value.table(reader.diagnostics)?;
    let Some(default) = section.get("default") else {
        let message = "missing key `default`, the cost of a status that is not listed";
        reader.diagnostics.at(value.span(), message);
        return None;
    };
    let mut prices = PriceList::new(reader.integer(&default, COST_MAX).unwrap_or(0));
    let entries = section.entries().into_iter();
    for entry in entries.filter(|entry| entry.key() != "default") {
        let Some(cost) = reader.integer(&entry, COST_MAX) else {
            continue;
        };
        prices = match Priced::parse(entry.key()) {
            Some(Priced::Unanswered) => prices.with_unanswered(cost),
            Some(Priced::Class(class)) => prices.with_class(class, cost),
            Some(Priced::Status(status)) => prices.with_status(status, cost),
            None => {
                let message = format!(
                    "`{}` is not a status; use 100 to 599, 1xx to 5xx, unanswered or default",
                    entry.key().escape_debug()
                );
                reader.diagnostics.at(entry.key_span(), message);
                continue;
            }
        };
    }
    Some(prices)
}

/// What a cost is for.
enum Priced {
    Unanswered,
    Class(u8),
    Status(u16),
}

impl Priced {
    fn parse(key: &str) -> Option<Self> {
        match key.as_bytes() {
            b"unanswered" => Some(Self::Unanswered),
            [class @ b'1'..=b'5', b'x', b'x'] => Some(Self::Class(class - b'0')),
            [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => key.parse().ok().map(Self::Status),
            _ => None,
        }
    }
}
