//! The sections `[patterns]`, `[scopes]` and `[variants]`, which policies refer to by name.

use balde_config::Value;

use super::NAME_BYTES_MAX;
use super::reader::{NAME_RULE, Reader, is_name};
use crate::policy::{KeyPart, NamedPattern, Pattern, Scope, Variant, VariantSource};

/// The most patterns, scopes or variants of a profile, and values of a variant.
const DEFINITIONS_MAX: usize = 128;

/// The most parts of a scope.
const PARTS_MAX: usize = 8;

pub(super) fn patterns(value: Option<Value<'_>>, reader: &mut Reader<'_>) -> Vec<NamedPattern> {
    let mut patterns = Vec::new();
    for entry in named(value, reader) {
        let Some(text) = entry.string(reader.diagnostics) else {
            continue;
        };
        // A valid pattern replaces an invalid one, so that rules that name it are not reported as
        // well.
        let pattern = Pattern::new(text.value).or_else(|error| {
            reader.diagnostics.at(text.span, error.to_string());
            Pattern::new("x")
        });
        patterns.extend(pattern.ok().map(|pattern| (entry.key().into(), pattern)));
    }
    patterns
}

pub(super) fn scopes(value: Option<Value<'_>>, reader: &mut Reader<'_>) -> Vec<Scope> {
    let mut scopes = Vec::new();
    for entry in named(value, reader) {
        let Some(items) = entry.array(reader.diagnostics) else {
            continue;
        };
        if items.is_empty() || items.len() > PARTS_MAX {
            let message = format!("a scope must have 1 to {PARTS_MAX} parts");
            reader.diagnostics.at(entry.span(), message);
            continue;
        }
        let parts = items.iter().filter_map(|item| key_part(item, reader));
        scopes.push(Scope::new(entry.key(), parts));
    }
    scopes
}

pub(super) fn variants(
    value: Option<Value<'_>>,
    patterns: &[NamedPattern],
    reader: &mut Reader<'_>,
) -> Vec<Variant> {
    let mut variants = Vec::new();
    for entry in named(value, reader) {
        let source = if entry.is_array() {
            let part = KeyPart::Participant;
            let values = values(&entry, reader);
            Some(VariantSource::Assigned { part, values })
        } else {
            request_variant(&entry, patterns, reader)
        };
        variants.extend(source.map(|source| Variant::new(entry.key(), source)));
    }
    variants
}

/// A variant whose value is read from the request: a key part, with the patterns or the words that
/// it may have.
fn request_variant(
    value: &Value<'_>,
    patterns: &[NamedPattern],
    reader: &mut Reader<'_>,
) -> Option<VariantSource> {
    let mut section = value.table(reader.diagnostics)?;
    let part = section.require("part", reader.diagnostics);
    let part = part.and_then(|part| key_part(&part, reader));
    let named_patterns = section.get("patterns");
    let words = section.get("values");
    let otherwise = section.get("otherwise");
    let assigned = section.get("assigned");
    section.finish(reader.diagnostics);
    match (named_patterns, words, assigned) {
        (None, None, Some(assigned)) => {
            let values = values(&assigned, reader);
            let part = part?;
            Some(VariantSource::Assigned { part, values })
        }
        (Some(named_patterns), None, None) => {
            if let Some(otherwise) = otherwise {
                let message = "`otherwise` is only used with `values`";
                reader.diagnostics.at(otherwise.span(), message);
            }
            let mut known = Vec::new();
            for entry in named(Some(named_patterns), reader) {
                let found = pattern(&entry, patterns, reader);
                known.extend(found.map(|(_, pattern)| (entry.key().into(), pattern)));
            }
            Some(VariantSource::Matched {
                part: part?,
                patterns: known,
            })
        }
        (None, Some(words), None) => {
            let values = values(&words, reader);
            let otherwise = otherwise.and_then(|value| {
                let name = reader.name(&value)?;
                if !values.contains(&name) {
                    let message = "`otherwise` must be one of the values";
                    reader.diagnostics.at(value.span(), message);
                }
                Some(name)
            });
            Some(VariantSource::Listed {
                part: part?,
                values,
                otherwise,
            })
        }
        _ => {
            let message = "a variant needs one of `patterns`, `values` and `assigned`";
            reader.diagnostics.at(value.span(), message);
            None
        }
    }
}

/// A pattern by its name.
pub(super) fn pattern(
    value: &Value<'_>,
    patterns: &[NamedPattern],
    reader: &mut Reader<'_>,
) -> Option<NamedPattern> {
    let name = value.string(reader.diagnostics)?;
    let found = patterns.iter().find(|(other, _)| **other == *name.value);
    if found.is_none() {
        let message = format!(
            "there is no pattern `{}` in [patterns]",
            name.value.escape_debug()
        );
        let diagnostics = &mut *reader.diagnostics;
        diagnostics.unknown("pattern", name.value, name.span, message);
    }
    found.cloned()
}

/// A part of a bucket's key.
fn key_part(value: &Value<'_>, reader: &mut Reader<'_>) -> Option<KeyPart> {
    let text = value.string(reader.diagnostics)?;
    let part = Some(text.value)
        .filter(|text| text.len() <= NAME_BYTES_MAX)
        .and_then(KeyPart::parse);
    if part.is_none() {
        let message = "a key part must be participant, user, value:NAME, header:NAME, query:NAME, \
                       path:NAME or const:TEXT";
        reader.diagnostics.at(text.span, message);
    }
    part
}

/// The values of a variant.
fn values(value: &Value<'_>, reader: &mut Reader<'_>) -> Vec<Box<str>> {
    let mut values: Vec<Box<str>> = Vec::new();
    let Some(items) = value.array(reader.diagnostics) else {
        return values;
    };
    if items.is_empty() || items.len() > DEFINITIONS_MAX {
        let message = format!("a variant must have 1 to {DEFINITIONS_MAX} values");
        reader.diagnostics.at(value.span(), message);
        return values;
    }
    for item in items {
        if let Some(name) = reader.name(&item) {
            if values.contains(&name) || *name == *"by" {
                let message = "the values of a variant must differ, and `by` is reserved";
                reader.diagnostics.at(item.span(), message);
            } else {
                values.push(name);
            }
        }
    }
    values
}

/// The entries of a table of definitions; those with an invalid name are reported and left out.
fn named<'v>(value: Option<Value<'v>>, reader: &mut Reader<'_>) -> Vec<Value<'v>> {
    let Some(section) = value.and_then(|value| value.table(reader.diagnostics)) else {
        return Vec::new();
    };
    let mut entries = section.entries();
    entries.retain(|entry| {
        if !is_name(entry.key()) {
            reader.diagnostics.at(entry.key_span(), NAME_RULE);
        }
        is_name(entry.key())
    });
    if let Some(entry) = entries.get(DEFINITIONS_MAX) {
        let message = format!(
            "{} has more than {DEFINITIONS_MAX} entries",
            section.title()
        );
        reader.diagnostics.at(entry.key_span(), message);
        entries.truncate(DEFINITIONS_MAX);
    }
    entries
}
