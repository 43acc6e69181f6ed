//! Keys of the form before 0.1, whose names ended in a unit or were written with hyphens.

use super::units::format_size;
use super::value::Value;

/// Writes a number of the old unit as a text.
type ToText = fn(u64) -> String;

/// Endings of keys that held numbers of a unit, and the text that has replaced such a number.
const UNITS: [(&str, ToText); 9] = [
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
    // `percent` alone is a unit, too.
    let is_unit = |ending: &str| old.key().ends_with(ending) || old.key() == &ending[1..];
    let unit = UNITS.iter().find(|(ending, _)| is_unit(ending));
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
    let number = |value: &Value<'_>| {
        value
            .as_number()
            .map(|number| format!("\"{}\"", text(number)))
    };
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
    let units = [
        ("days", 86_400_000),
        ("h", 3_600_000),
        ("min", 60_000),
        ("s", 1_000),
    ];
    let found = units
        .iter()
        .find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit));
    let (name, unit) = found.unwrap_or(&("ms", 1));
    match (ms / unit, *name) {
        (0, _) => "0 s".to_owned(),
        (1, "days") => "1 day".to_owned(),
        (number, name) => format!("{number} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Diagnostics, Document, Source};

    /// What is reported for a file whose section knows these keys.
    fn reported(text: &str) -> String {
        let source = Source::new("file.toml", text);
        let mut diagnostics = Diagnostics::new(&source);
        let document = Document::parse(&source, &mut diagnostics).unwrap();
        let mut root = document.root();
        for key in [
            "timeout",
            "windows",
            "share",
            "body_size_max",
            "on_failure",
            "resolve_after",
        ] {
            root.get(key);
        }
        root.renamed(&[("calm_s", "resolve_after"), ("percent", "share")]);
        root.finish(&mut diagnostics);
        diagnostics.into_result(()).unwrap_err().to_string()
    }

    #[test]
    fn a_key_of_the_old_form_is_refused_with_the_new_line() {
        for (old, new) in [
            ("timeout_ms = 10000", "`timeout = \"10 s\"`"),
            ("timeout_ms = 1500", "`timeout = \"1500 ms\"`"),
            ("timeout_s = 86400", "`timeout = \"1 day\"`"),
            ("timeout_s = 0", "`timeout = \"0 s\"`"),
            ("timeout_ms = \"soon\"", "`timeout`, as a text with a unit"),
            ("windows_s = [60, 90]", "`windows = [\"1 min\", \"90 s\"]`"),
            ("share_pct = 25", "`share = \"25%\"`"),
            ("percent = 25", "`share = \"25%\"`"),
            ("body_bytes_max = 10485760", "`body_size_max = \"10 MiB\"`"),
            ("on-failure = \"deny\"", "`on_failure`"),
            ("calm_s = 120", "`resolve_after = \"2 min\"`"),
        ] {
            let reported = reported(old);
            let expected = format!("has a new form: write {new}");
            assert!(reported.contains(&expected), "{old}: {reported}");
        }
        assert!(reported("pause_ms = 3").contains("unknown key"));
    }
}
