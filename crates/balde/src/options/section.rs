//! A table of the file, and how its keys are taken out of it one by one. What is left over at the
//! end is a mistake.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Faults;

type Value<'a> = Spanned<DeValue<'a>>;

/// A table of a file whose keys are taken out one by one. [`finish`](Section::finish) tells of those
/// that nobody asked for.
pub struct Section<'a> {
    table: &'a DeTable<'a>,
    /// As written in the file, for messages; nothing for the file itself.
    path: String,
    span: Option<Range<usize>>,
    known: Vec<&'static str>,
    /// Keys that have a message of their own, and are nobody's advice.
    hidden: Vec<&'static str>,
}

/// A value, and where it is.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its bytes in the file.
    pub span: Range<usize>,
}

impl<'a> Section<'a> {
    /// The keys of a table; `path` is what messages call it.
    pub fn new(
        table: &'a DeTable<'a>,
        path: impl Into<String>,
        span: Option<Range<usize>>,
    ) -> Self {
        Self {
            table,
            path: path.into(),
            span,
            known: Vec::new(),
            hidden: Vec::new(),
        }
    }

    /// Where it begins.
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// What messages call it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A table inside this one.
    pub fn table(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<Section<'a>> {
        let (key, value) = self.entry(key)?;
        let path = self.path_of(key.get_ref());
        inner(path, key.span(), value, faults)
    }

    /// The tables of a list, as `[[key]]` writes them.
    pub fn list(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Vec<Section<'a>> {
        let Some((name, value)) = self.entry(key) else {
            return Vec::new();
        };
        let path = self.path_of(name.get_ref());
        let Some(list) = value.get_ref().as_array() else {
            let message = format!("`{path}` is a list of tables: write [[{path}]]");
            faults.at(Some(name.span()), message);
            return Vec::new();
        };
        let one = |item: &'a Value<'a>| inner(path.clone(), item.span(), item, faults);
        list.iter().filter_map(one).collect()
    }

    /// All tables inside this one, whatever they are called.
    pub fn tables(&self, faults: &mut Faults<'_>) -> Vec<(At<&'a str>, Section<'a>)> {
        let mut tables = Vec::new();
        for (key, value) in self.table {
            let path = self.path_of(key.get_ref());
            if let Some(section) = inner(path, key.span(), value, faults) {
                let name = At {
                    value: &**key.get_ref(),
                    span: key.span(),
                };
                tables.push((name, section));
            }
        }
        tables
    }

    /// The value of a key, of whatever type.
    pub fn any(&mut self, key: &'static str) -> Option<&'a Value<'a>> {
        self.entry(key).map(|(_, value)| value)
    }

    /// Where a key is that must not be there; the caller tells of it.
    pub fn forbidden(&mut self, key: &'static str) -> Option<Range<usize>> {
        self.hidden.push(key);
        self.find(key).map(|(key, _)| key.span())
    }

    /// A text.
    pub fn text(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<At<&'a str>> {
        let value = self.any(key)?;
        let Some(text) = value.get_ref().as_str() else {
            faults.at(Some(value.span()), expected(key, "a text in quotes", value));
            return None;
        };
        Some(At {
            value: text,
            span: value.span(),
        })
    }

    /// A whole number from `least` to `most`.
    pub fn number(
        &mut self,
        key: &'static str,
        (least, most): (u64, u64),
        faults: &mut Faults<'_>,
    ) -> Option<At<u64>> {
        let value = self.any(key)?;
        let span = value.span();
        let DeValue::Integer(digits) = value.get_ref() else {
            faults.at(Some(span), expected(key, "a whole number", value));
            return None;
        };
        let number = u64::from_str_radix(digits.as_str(), digits.radix()).ok();
        let Some(number) = number.filter(|number| (least..=most).contains(number)) else {
            faults.at(
                Some(span),
                format!("`{key}` must be between {least} and {most}"),
            );
            return None;
        };
        Some(At {
            value: number,
            span,
        })
    }

    /// Yes or no.
    pub fn flag(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<At<bool>> {
        let value = self.any(key)?;
        let Some(flag) = value.get_ref().as_bool() else {
            faults.at(Some(value.span()), expected(key, "true or false", value));
            return None;
        };
        Some(At {
            value: flag,
            span: value.span(),
        })
    }

    /// One of a few words.
    pub fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
        faults: &mut Faults<'_>,
    ) -> Option<At<T>> {
        let text = self.text(key, faults)?;
        let found = words.iter().find(|(word, _)| *word == text.value);
        let Some((_, meaning)) = found else {
            let all: Vec<String> = words
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            let message = format!("`{key}` must be {}", all.join(" or "));
            faults.at(Some(text.span), message);
            return None;
        };
        Some(At {
            value: *meaning,
            span: text.span,
        })
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Vec<At<&'a str>> {
        let Some(value) = self.any(key) else {
            return Vec::new();
        };
        let Some(list) = value.get_ref().as_array() else {
            faults.at(Some(value.span()), expected(key, "a list of texts", value));
            return Vec::new();
        };
        let mut texts = Vec::new();
        for item in list {
            match item.get_ref().as_str() {
                Some(text) => texts.push(At {
                    value: text,
                    span: item.span(),
                }),
                None => faults.at(Some(item.span()), expected(key, "texts in quotes", item)),
            }
        }
        texts
    }

    /// Refuses every key that nobody asked for.
    pub fn finish(self, faults: &mut Faults<'_>) {
        for (key, _) in self.table {
            if faults.is_full() {
                return;
            }
            let name = &**key.get_ref();
            if self.known.contains(&name) || self.hidden.contains(&name) {
                continue;
            }
            let shown = shortened(name);
            let place = match &*self.path {
                "" => "here".to_owned(),
                path => format!("in [{path}]"),
            };
            let advice = match nearest(name, &self.known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", self.known.join(", ")),
            };
            let message = format!("there is no key `{shown}` {place}; {advice}");
            faults.at(Some(key.span()), message);
        }
    }

    fn entry(&mut self, key: &'static str) -> Option<(&'a Spanned<Text<'a>>, &'a Value<'a>)> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.find(key)
    }

    fn find(&self, key: &str) -> Option<(&'a Spanned<Text<'a>>, &'a Value<'a>)> {
        self.table.iter().find(|(name, _)| name.get_ref() == key)
    }

    fn path_of(&self, key: &str) -> String {
        match &*self.path {
            "" => shortened(key),
            path => format!("{path}.{}", shortened(key)),
        }
    }
}

type Text<'a> = std::borrow::Cow<'a, str>;

fn inner<'a>(
    path: String,
    key: Range<usize>,
    value: &'a Value<'a>,
    faults: &mut Faults<'_>,
) -> Option<Section<'a>> {
    let Some(table) = value.get_ref().as_table() else {
        faults.at(Some(value.span()), expected(&path, "a table", value));
        return None;
    };
    Some(Section::new(table, path, Some(key)))
}

fn expected(key: &str, what: &str, found: &Value<'_>) -> String {
    let found = match found.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    format!("`{key}` must be {what}, and this is {found}")
}

fn shortened(name: &str) -> String {
    name.chars().take(64).flat_map(char::escape_debug).collect()
}

/// The known key that was probably meant.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let distances = known.iter().map(|key| (distance(name, key), *key));
    let (distance, key) = distances.min()?;
    (distance <= 2 && distance < key.len()).then_some(key)
}

/// Letters to change, add or leave out to get from one word to the other.
fn distance(one: &str, other: &str) -> usize {
    const WORD_BYTES_MAX: usize = 64;
    if one.len() > WORD_BYTES_MAX {
        return usize::MAX;
    }
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}
