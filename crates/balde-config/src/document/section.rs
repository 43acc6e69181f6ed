//! A table whose keys are taken out one by one.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use balde_core::Limit;
use toml::de::DeTable;

use super::renamed::advice;
use super::value::{Located, Value, shortened};
use crate::diagnostic::Diagnostics;
use crate::source::Span;
use crate::suggest::nearest;

/// A table of a file.
///
/// To take a key is to look it up and to mark it as known. Call one of the methods for every key
/// that the program supports; [`finish`](Section::finish) reports the keys in the file that were
/// never taken.
///
/// A method that returns a value of a certain type returns `None` if the key is missing. A value of
/// another type is reported and also gives `None`.
pub struct Section<'a> {
    table: &'a DeTable<'a>,
    /// As in a TOML header, without brackets; empty for the root.
    path: String,
    /// The header in messages: `[a.b]` or `[[a]]`; empty for the root.
    title: String,
    span: Option<Span>,
    known: Vec<&'static str>,
    /// Keys that are reported elsewhere, and never suggested.
    forbidden: Vec<&'static str>,
    /// Earlier names of keys.
    renames: Vec<(&'static str, &'static str)>,
}

impl<'a> Section<'a> {
    pub(super) fn root(table: &'a DeTable<'a>) -> Self {
        Self {
            table,
            path: String::new(),
            title: String::new(),
            span: None,
            known: Vec::new(),
            forbidden: Vec::new(),
            renames: Vec::new(),
        }
    }

    pub(super) fn new(table: &'a DeTable<'a>, value: &Value<'a>) -> Self {
        let path = value.path.to_string();
        let title = if value.is_item {
            format!("[[{path}]]")
        } else {
            format!("[{path}]")
        };
        Self {
            path,
            title,
            span: Some(value.key_span),
            ..Self::root(table)
        }
    }

    /// The header as messages show it: `[limits.user]`, `[[policy]]`; empty for the root.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Where the section begins; `None` for the root.
    pub const fn span(&self) -> Option<Span> {
        self.span
    }

    /// Whether the file has a key. This does not take the key.
    pub fn contains(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Takes the value of a key; `None` if the key is missing.
    pub fn get(&mut self, key: &'static str) -> Option<Value<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.find(key)
    }

    /// Takes the value of a key; a missing key is reported.
    pub fn require(
        &mut self,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Value<'a>> {
        let value = self.get(key);
        if value.is_none() {
            let message = format!("missing key `{key}`{}", self.in_title());
            diagnostics.at(self.span, message);
        }
        value
    }

    /// Takes a key that must not be there, and returns its position if it is. The caller reports
    /// it.
    pub fn forbidden(&mut self, key: &'static str) -> Option<Span> {
        self.forbidden.push(key);
        self.find(key).map(|value| value.key_span)
    }

    /// All values in the order of the file, for tables whose keys are free names.
    pub fn entries(&self) -> Vec<Value<'a>> {
        let mut entries: Vec<Value<'a>> = self
            .table
            .keys()
            .filter_map(|key| self.find(key.get_ref()))
            .collect();
        entries.sort_by_key(|value| value.key_span.start());
        entries
    }

    /// Takes the key and returns its value if that is a string. A value of another type is reported.
    pub fn string(
        &mut self,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<&'a str>> {
        self.get(key)?.string(diagnostics)
    }

    /// Takes an integer. One outside of `range` is reported.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<u64>> {
        self.get(key)?.integer(range, diagnostics)
    }

    /// Takes the key and returns its value if that is a boolean. A value of another type is reported.
    pub fn boolean(
        &mut self,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<bool>> {
        self.get(key)?.boolean(diagnostics)
    }

    /// Takes a string that is one of `words`, and returns what the word stands for.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<T>> {
        self.get(key)?.choice(words, diagnostics)
    }

    /// Takes an array of strings; empty if the key is missing.
    pub fn strings(
        &mut self,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Vec<Located<&'a str>> {
        let value = self.get(key);
        value.map_or_else(Vec::new, |value| value.strings(diagnostics))
    }

    /// Takes a duration, such as `30 s`. One outside of `range` is reported.
    pub fn duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<Duration>> {
        self.get(key)?.duration(range, diagnostics)
    }

    /// Sets `target` to a duration, if the key is there.
    pub fn set_duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
        target: &mut Duration,
        diagnostics: &mut Diagnostics,
    ) {
        if let Some(duration) = self.duration(key, range, diagnostics) {
            *target = duration.value;
        }
    }

    /// Sets `target` to a number, if the key is there.
    pub fn set_count(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        target: &mut usize,
        diagnostics: &mut Diagnostics,
    ) {
        if let Some(number) = self.integer(key, range, diagnostics) {
            *target = usize::try_from(number.value).unwrap_or(usize::MAX);
        }
    }

    /// Takes a share in whole percent, such as `25%`. One outside of `range` is reported.
    pub fn percent(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<u64>> {
        self.get(key)?.percent(range, diagnostics)
    }

    /// Takes a number of bytes, such as `10 MiB`. One outside of `range` is reported.
    pub fn size(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<u64>> {
        self.get(key)?.size(range, diagnostics)
    }

    /// Names keys by which this section had others before: pairs of the old name and the new one. A key
    /// whose old name only ended in a unit, or had hyphens, need not be named.
    pub fn renamed(&mut self, names: &[(&'static str, &'static str)]) {
        self.renames.extend_from_slice(names);
    }

    /// Takes a limit, such as `10/s burst 20`.
    pub fn limit(
        &mut self,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<Limit>> {
        self.get(key)?.limit(diagnostics)
    }

    /// Takes a table.
    pub fn table(
        &mut self,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Section<'a>> {
        self.get(key)?.table(diagnostics)
    }

    /// Takes an array of tables, written as `[[key]]`; empty if the key is missing.
    pub fn tables(&mut self, key: &'static str, diagnostics: &mut Diagnostics) -> Vec<Section<'a>> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        if !value.is_array() {
            let path = &value.path;
            let message = format!("`{path}` must be an array of tables: write [[{path}]]");
            diagnostics.at(value.key_span, message);
            return Vec::new();
        }
        let items = value.array(diagnostics).unwrap_or_default();
        let tables = items.iter().filter_map(|item| item.table(diagnostics));
        tables.collect()
    }

    /// Reports every key that no method has taken, with the known key that was probably meant or a
    /// list of the known keys.
    pub fn finish(self, diagnostics: &mut Diagnostics) {
        for key in self.table.keys() {
            let name = &**key.get_ref();
            if self.known.contains(&name) || self.forbidden.contains(&name) {
                continue;
            }
            let old = self.find(name);
            let old = old.and_then(|old| advice(&old, &self.known, &self.renames));
            if let Some((new, written)) = old {
                if !self.contains(new) {
                    diagnostics.misspelled(self.span, new);
                }
                let name = shortened(name);
                let message = format!(
                    "`{name}` has a new form{}: write {written}",
                    self.in_title()
                );
                diagnostics.at(Span::from(key.span()), message);
                continue;
            }
            let advice = match nearest(name, &self.known) {
                Some(near) => {
                    if !self.contains(near) {
                        diagnostics.misspelled(self.span, near);
                    }
                    format!("did you mean `{near}`?")
                }
                None => format!("expected one of {}", self.known.join(", ")),
            };
            let name = shortened(name);
            let message = format!("unknown key `{name}`{}; {advice}", self.in_title());
            diagnostics.at(Span::from(key.span()), message);
        }
    }

    fn find(&self, key: &str) -> Option<Value<'a>> {
        let (key, value) = self.table.get_key_value(key)?;
        let name = shortened(key.get_ref());
        let path = match &*self.path {
            "" => name.into(),
            path => format!("{path}.{name}").into(),
        };
        Some(Value {
            key: key.get_ref(),
            key_span: key.span().into(),
            is_item: false,
            path,
            parsed: value,
        })
    }

    fn in_title(&self) -> String {
        match &*self.title {
            "" => String::new(),
            title => format!(" in {title}"),
        }
    }
}

impl<'a> Value<'a> {
    /// The value as a table.
    pub fn table(&self, diagnostics: &mut Diagnostics) -> Option<Section<'a>> {
        let table = self.parsed.get_ref().as_table();
        let table = self.checked(table, "a table", diagnostics)?.value;
        Some(Section::new(table, self))
    }
}

impl fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may be secrets.
        f.debug_struct("Section")
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}
