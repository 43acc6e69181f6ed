//! TOML values with their places, and the problems found on the way.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::WORD_BYTES_MAX;
use crate::profile::{Place, Problem, ProfileError, Setting, SettingValue};

pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// Collects problems, and turns values into what they should be.
pub(super) struct Reader<'t> {
    text: &'t str,
    problems: Vec<Problem>,
    /// Lines that are no TOML: what else seems wrong there follows from that.
    broken_lines: BTreeSet<usize>,
    settings: Vec<Setting>,
    used: BTreeSet<String>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            problems: Vec::new(),
            broken_lines: BTreeSet::new(),
            settings: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    pub(super) fn place(&self, span: Range<usize>) -> Place {
        Place::of(self.text, span)
    }

    /// What is no TOML.
    pub(super) fn syntax(&mut self, span: Range<usize>, message: &str) {
        let place = self.place(span);
        self.broken_lines.insert(place.line());
        let problem = Problem::new(Some(place), message);
        self.problems.push(problem);
    }

    pub(super) fn problem(&mut self, span: Range<usize>, reason: impl Into<String>) {
        let place = self.place(span);
        if !self.broken_lines.contains(&place.line()) {
            self.problems.push(Problem::new(Some(place), reason));
        }
    }

    /// Something is not there. Where the text is no TOML, it may only seem so.
    pub(super) fn missing(&mut self, span: Range<usize>, reason: impl Into<String>) {
        if self.broken_lines.is_empty() {
            self.problem(span, reason);
        }
    }

    pub(super) fn problem_outside(&mut self, reason: impl Into<String>) {
        self.problems.push(Problem::new(None, reason));
    }

    pub(super) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    pub(super) fn into_error(self) -> ProfileError {
        let reason = "the profile cannot be read";
        ProfileError::of(self.problems)
            .or_else(|| ProfileError::of([Problem::new(None, reason)].into()))
            .expect("one problem makes an error")
    }

    pub(super) fn remember(&mut self, settings: &[Setting]) {
        self.settings = settings.to_vec();
    }

    /// Without an adapter that reads them, settings that nothing refers to are mistakes.
    pub(super) fn unused_settings(&mut self, settings: &[Setting]) {
        for setting in settings {
            if let (false, Some(place)) = (self.used.contains(setting.name()), setting.place()) {
                let reason = format!("nothing refers to the setting `{}`", setting.name());
                self.problem(place.span(), reason);
            }
        }
    }

    /// The setting that a text of the form `$name` refers to.
    pub(super) fn referred(&mut self, value: &Value<'_>) -> Option<SettingValue> {
        let name = value.get_ref().as_str()?.strip_prefix('$')?;
        self.used.insert(name.to_owned());
        let found = self.settings.iter().find(|setting| setting.name() == name);
        let answer = found.map(|setting| setting.value().clone());
        if answer.is_none() {
            self.problem(value.span(), format!("there is no setting `{name}`"));
        }
        answer
    }

    pub(super) fn text<'v>(&mut self, value: &'v Value<'_>) -> Option<&'v str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.expected(value, "a text");
        }
        text
    }

    /// A text, or the setting it refers to.
    pub(super) fn text_or_setting(&mut self, value: &Value<'_>) -> Option<Box<str>> {
        if !is_reference(value) {
            return self.text(value).map(Into::into);
        }
        if let SettingValue::Text(text) = self.referred(value)? {
            return Some(text);
        }
        self.problem(value.span(), "the setting is not a text");
        None
    }

    /// A name: letters, digits, `.`, `_` and `-`.
    pub(super) fn word(&mut self, value: &Value<'_>) -> Option<Box<str>> {
        let text = self.text(value)?;
        if is_word(text) {
            return Some(text.into());
        }
        let reason = "a name is made of letters, digits, `.`, `_` and `-`, at most 256";
        self.problem(value.span(), reason);
        None
    }

    /// A whole number up to `most`, or the setting that says it.
    pub(super) fn number(&mut self, value: &Value<'_>, most: u64) -> Option<u64> {
        let number = if is_reference(value) {
            match self.referred(value)? {
                SettingValue::Number(number) => Some(number),
                SettingValue::Bool(is_one) => Some(u64::from(is_one)),
                _ => None,
            }
        } else {
            value.get_ref().as_integer().and_then(|integer| {
                let digits = integer.as_str();
                u64::from_str_radix(digits.strip_prefix('+').unwrap_or(digits), integer.radix())
                    .ok()
            })
        };
        match number {
            Some(number) if number <= most => Some(number),
            _ => {
                self.expected(value, &format!("a whole number from 0 to {most}"));
                None
            }
        }
    }

    pub(super) fn array<'v, 'i>(&mut self, value: &'v Value<'i>) -> &'v [Value<'i>] {
        if let Some(array) = value.get_ref().as_array() {
            return array;
        }
        self.expected(value, "a list");
        &[]
    }

    pub(super) fn table<'v, 'i>(&mut self, value: &'v Value<'i>) -> Option<&'v DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.expected(value, "a table");
        }
        table
    }

    pub(super) fn expected(&mut self, value: &Value<'_>, what: &str) {
        let found = value.get_ref().type_str();
        let article = if found.starts_with(['a', 'i']) {
            "an"
        } else {
            "a"
        };
        self.problem(
            value.span(),
            format!("expected {what}, found {article} {found}"),
        );
    }

    /// Where a column of a text value is in the file, if it was written without escapes.
    pub(super) fn inside(&self, value: &Value<'_>, column: usize) -> Range<usize> {
        let span = value.span();
        let raw = self.text.get(span.clone()).unwrap_or_default();
        let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
        if value.get_ref().as_str() != Some(inner) {
            return span;
        }
        let before = inner.char_indices().nth(column.saturating_sub(1));
        let offset = before.map_or(inner.len(), |(offset, _)| offset);
        span.start + 1 + offset..span.end
    }
}

pub(super) fn is_reference(value: &Value<'_>) -> bool {
    let text = value.get_ref().as_str();
    text.is_some_and(|text| text.starts_with('$'))
}

pub(super) fn is_word(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.len() <= WORD_BYTES_MAX && text.bytes().all(is_letter)
}

/// Entries of a table in the order of the file; the table itself sorts them by name.
pub(super) fn entries<'v, 'i>(
    table: &'v DeTable<'i>,
) -> Vec<(&'v str, Range<usize>, &'v Value<'i>)> {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, value)| (&**key.get_ref(), key.span(), value))
        .collect();
    entries.sort_by_key(|(_, span, _)| span.start);
    entries
}

/// The fields of a table, and whether all of them were meant.
pub(super) struct Fields<'v> {
    table: &'v DeTable<'v>,
    what: &'static str,
    span: Range<usize>,
    known: Vec<&'static str>,
}

impl<'v> Fields<'v> {
    pub(super) fn new(table: &'v DeTable<'v>, what: &'static str, span: Range<usize>) -> Self {
        Self {
            table,
            what,
            span,
            known: Vec::new(),
        }
    }

    pub(super) fn get(&mut self, name: &'static str) -> Option<&'v Value<'v>> {
        self.known.push(name);
        self.table.get(name)
    }

    pub(super) fn required(
        &mut self,
        reader: &mut Reader<'_>,
        name: &'static str,
    ) -> Option<&'v Value<'v>> {
        let value = self.get(name);
        if value.is_none() {
            reader.missing(self.span.clone(), format!("{} needs `{name}`", self.what));
        }
        value
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub(super) fn finish(self, reader: &mut Reader<'_>) {
        for (key, span, _) in entries(self.table) {
            if self.known.contains(&key) {
                continue;
            }
            let near = self.known.iter().find(|known| is_near(key, known));
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it has {}", self.known.join(", ")),
            };
            let key = key.escape_debug().to_string();
            reader.problem(span, format!("{} has no `{key}`; {help}", self.what));
        }
    }
}

/// Whether one name is the other with a letter changed, swapped, added or left out.
fn is_near(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let same_start = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[same_start..], &other[same_start..]);
    let same_end = one.iter().rev().zip(other.iter().rev());
    let same_end = same_end.take_while(|(a, b)| a == b).count();
    let (one, other) = (
        &one[..one.len() - same_end],
        &other[..other.len() - same_end],
    );
    match (one, other) {
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => one.len() <= 1 && other.len() <= 1,
    }
}
