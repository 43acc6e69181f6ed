//! Keys of the form before 0.1, whose names ended in a unit or were written with hyphens.

use super::units::format_size;
use super::value::Value;

/// Endings of keys that held numbers of a unit, and the text that has replaced such a number.
const UNITS: [(&str, fn(u64) -> String); 9] = [
    ("_ms", |ms| duration(ms, 1)),
    ("_s", |s| duration(s, 1_000)),
    ("_seconds", |s| duration(s, 1_000)),
    ("_minutes", |minutes| duration(minutes, 60_000)),
    ("_hours", |hours| duration(hours, 3_600_000)),
    ("_days", |days| duration(days, 86_400_000)),
    ("_months", |months| format!("{months} months")),
    ("_pct", |percent| format!("{percent}%")),
    ("_percent", |percent| format!("{percent}%")),
];

/// What to write instead of an unknown key that was once valid; `None` if it never was. `renames` are
/// keys whose new name does not follow from the old one.
pub(super) fn advice(
    old: &Value<'_>,
    known: &[&'static str],
    renames: &[(&str, &'static str)],
) -> Option<(&'static str, String)> {
    let named = renames.iter().find(|(name, _)| *name == old.key());
    let named = named.map(|(_, new)| *new);
    let find = |name: &str| known.iter().copied().find(|known| *known == name);
    let unit = UNITS.iter().find(|(ending, _)| old.key().ends_with(ending));
    if let Some((ending, text)) = unit {
        let stem = old.key().strip_suffix(ending).unwrap_or_default();
        let new = named.or_else(|| find(stem))?;
        return Some((new, written(new, old, text)));
    }
    if let Some(stem) = old.key().strip_suffix("_bytes_max") {
        let new = named.or_else(|| find(&format!("{stem}_size_max")))?;
        return Some((new, written(new, old, &format_size)));
    }
    let new = named.or_else(|| find(&old.key().replace('-', "_")))?;
    Some((new, format!("`{new}`")))
}

/// The new line, with the old value if it was a number.
fn written(new: &str, old: &Value<'_>, text: &dyn Fn(u64) -> String) -> String {
    let number = |value: &Value<'_>| value.as_number().map(|number| format!("\"{}\"", text(number)));
    if let Some(items) = old.items() {
        let items: Option<Vec<String>> = items.iter().map(number).collect();
        return match items {
            Some(items) => format!("`{new} = [{}]`", items.join(", ")),
            None => format!("`{new}`, as texts with a unit"),
        };
    }
    match number(old) {
        Some(number) => format!("`{new} = {number}`"),
        None => format!("`{new}`, as a text with a unit"),
    }
}

/// A duration in the largest unit that has no fraction.
fn duration(number: u64, unit_ms: u64) -> String {
    let ms = number.saturating_mul(unit_ms);
    let units = [("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    let found = units.iter().find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit));
    let (name, unit) = found.unwrap_or(&("ms", 1));
    format!("{} {name}", ms / unit)
}
