//! The words that policies use: patterns, scopes, variants.

use std::ops::Range;

use super::reader::{Fields, Reader, Value, entries, is_word};
use crate::policy::{KeyPart, NamedPattern, Pattern, Scope, Variant, VariantSource};

/// The most patterns, scopes or variants of a profile, and values of a variant.
const WORDS_MAX: usize = 128;

/// The most parts of a scope.
const PARTS_MAX: usize = 8;

pub(super) fn patterns(reader: &mut Reader<'_>, value: Option<&Value<'_>>) -> Vec<NamedPattern> {
    let mut patterns = Vec::new();
    for (name, _, value) in named(reader, value) {
        let Some(text) = reader.text(value) else {
            continue;
        };
        // In the place of a broken one, so that rules which name it are not told off, too.
        let pattern = Pattern::new(text).or_else(|error| {
            reader.problem(value.span(), format!("{error}"));
            Pattern::new("x")
        });
        patterns.extend(pattern.ok().map(|pattern| (name.into(), pattern)));
    }
    patterns
}

pub(super) fn scopes(reader: &mut Reader<'_>, value: Option<&Value<'_>>) -> Vec<Scope> {
    let mut scopes = Vec::new();
    for (name, _, value) in named(reader, value) {
        let items = reader.array(value);
        if items.is_empty() || items.len() > PARTS_MAX {
            reader.problem(value.span(), format!("a scope has 1 to {PARTS_MAX} parts"));
            continue;
        }
        let parts = items.iter().filter_map(|item| part(reader, item));
        scopes.push(Scope::new(name, parts));
    }
    scopes
}

pub(super) fn variants(
    reader: &mut Reader<'_>,
    value: Option<&Value<'_>>,
    patterns: &[NamedPattern],
) -> Vec<Variant> {
    let mut variants = Vec::new();
    for (name, _, value) in named(reader, value) {
        let source = if value.get_ref().is_array() {
            let values = values(reader, value);
            let part = KeyPart::Participant;
            Some(VariantSource::Assigned { part, values })
        } else {
            told(reader, value, patterns)
        };
        if let Some(source) = source {
            variants.push(Variant::new(name, source));
        }
    }
    variants
}

/// A variant that the request tells: a part, with the patterns or the words it may have.
fn told(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    patterns: &[NamedPattern],
) -> Option<VariantSource> {
    let table = reader.table(value)?;
    let mut fields = Fields::new(table, "a variant", value.span());
    let looked_at = fields.required(reader, "part");
    let looked_at = looked_at.and_then(|value| part(reader, value));
    let written = fields.get("patterns");
    let words = fields.get("values");
    let otherwise = fields.get("otherwise");
    let assigned = fields.get("assigned");
    fields.finish(reader);
    if let (Some(assigned), None, None) = (assigned, written, words) {
        return Some(VariantSource::Assigned {
            part: looked_at?,
            values: values(reader, assigned),
        });
    }
    match (written, words) {
        (Some(written), None) => {
            if let Some(otherwise) = otherwise {
                reader.problem(otherwise.span(), "`otherwise` goes with `values`");
            }
            let mut known = Vec::new();
            for (name, _, value) in named(reader, Some(written)) {
                let found = pattern(reader, value, patterns);
                known.extend(found.map(|(_, pattern)| (name.into(), pattern)));
            }
            Some(VariantSource::Matched {
                part: looked_at?,
                patterns: known,
            })
        }
        (None, Some(words)) => {
            let values = values(reader, words);
            let otherwise = otherwise.and_then(|value| {
                let word = reader.word(value)?;
                if !values.contains(&word) {
                    reader.problem(value.span(), "`otherwise` is one of the values");
                }
                Some(word)
            });
            Some(VariantSource::Listed {
                part: looked_at?,
                values,
                otherwise,
            })
        }
        _ => {
            reader.missing(
                value.span(),
                "a variant needs one of `patterns`, `values` and `assigned`",
            );
            None
        }
    }
}

/// A pattern by its name.
pub(super) fn pattern(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    patterns: &[NamedPattern],
) -> Option<NamedPattern> {
    let name = reader.text(value)?;
    let found = patterns.iter().find(|(other, _)| **other == *name);
    if found.is_none() {
        let name = name.escape_debug();
        reader.missing(
            value.span(),
            format!("there is no pattern `{name}` in [patterns]"),
        );
    }
    found.cloned()
}

/// A part of a request.
pub(super) fn part(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<KeyPart> {
    let text = reader.text(value)?;
    let part = (text.len() <= super::WORD_BYTES_MAX)
        .then(|| KeyPart::parse(text))
        .flatten();
    if part.is_none() {
        let reason = "a part is participant, user, value:NAME, header:NAME, query:NAME, path:NAME or const:TEXT";
        reader.problem(value.span(), reason);
    }
    part
}

fn values(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<Box<str>> {
    let mut words: Vec<Box<str>> = Vec::new();
    let items = reader.array(value);
    if items.is_empty() || items.len() > WORDS_MAX {
        reader.problem(
            value.span(),
            format!("a variant has 1 to {WORDS_MAX} values"),
        );
        return words;
    }
    for item in items {
        if let Some(word) = reader.word(item) {
            if words.contains(&word) || *word == *"by" {
                reader.problem(
                    item.span(),
                    "the values of a variant differ, and none is `by`",
                );
            } else {
                words.push(word);
            }
        }
    }
    words
}

type Entry<'v, 'i> = (&'v str, Range<usize>, &'v Value<'i>);

/// The entries of a table of named things; their names checked.
fn named<'v, 'i>(reader: &mut Reader<'_>, value: Option<&'v Value<'i>>) -> Vec<Entry<'v, 'i>> {
    let Some(table) = value.and_then(|value| reader.table(value)) else {
        return Vec::new();
    };
    let mut entries = entries(table);
    entries.retain(|(name, span, _)| {
        if !is_word(name) {
            let reason = "a name is made of letters, digits, `.`, `_` and `-`, at most 256";
            reader.problem(span.clone(), reason);
        }
        is_word(name)
    });
    if let Some((_, span, _)) = entries.get(WORDS_MAX) {
        reader.problem(
            span.clone(),
            format!("there are at most {WORDS_MAX} of these"),
        );
        entries.truncate(WORDS_MAX);
    }
    entries
}
