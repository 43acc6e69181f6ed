//! Match rules: `"GET /orders/{id}"`, or a table with `on`, `values` and other conditions.

use balde_config::Value;

use super::NAME_BYTES_MAX;
use super::definitions;
use super::reader::{Reader, is_reference};
use crate::policy::{Condition, FlagRule, Flags, KeyPart, MatchRule, NamedPattern, PathTemplate};

/// The most rules of a policy, and conditions of a rule.
const RULES_MAX: usize = 64;
const CONDITIONS_MAX: usize = 16;

pub(super) fn rules(
    value: &Value<'_>,
    patterns: &[NamedPattern],
    reader: &mut Reader<'_>,
) -> Vec<MatchRule> {
    let Some(items) = value.array(reader.diagnostics) else {
        return Vec::new();
    };
    if items.is_empty() || items.len() > RULES_MAX {
        let message =
            format!("`match` must have 1 to {RULES_MAX} rules; leave it out to match all requests");
        reader.diagnostics.at(value.span(), message);
        return Vec::new();
    }
    let rules = items.iter().filter_map(|item| rule(item, patterns, reader));
    rules.collect()
}

fn rule(
    value: &Value<'_>,
    patterns: &[NamedPattern],
    reader: &mut Reader<'_>,
) -> Option<MatchRule> {
    if value.as_str().is_some() {
        return route(value, reader);
    }
    let mut section = value.table(reader.diagnostics)?;
    let values = section.get("values");
    let on = match &values {
        // What is counted by values alone may have no method and path.
        Some(_) => section.get("on"),
        None => section.require("on", reader.diagnostics),
    };
    let query = section.get("query");
    let headers = section.get("headers");
    let filtered_by = section.get("filtered_by");
    let not_filtered_by = section.get("not_filtered_by");
    let filter = section.get("filter");
    let named_patterns = section.get("patterns");
    section.finish(reader.diagnostics);

    let mut rule = match on {
        Some(on) => route(&on, reader),
        None => values.is_some().then(MatchRule::default),
    };
    for (name, condition) in conditions(query, reader) {
        rule = rule.map(|rule| rule.with_query(name, condition));
    }
    for (name, condition) in conditions(headers, reader) {
        rule = rule.map(|rule| rule.with_header(name, condition));
    }
    for (name, condition) in conditions(values, reader) {
        rule = rule.map(|rule| rule.with_value(name, condition));
    }
    if let (Some(filter), None, None) = (&filter, &filtered_by, &not_filtered_by) {
        let message = "`filter` needs `filtered_by` or `not_filtered_by`";
        reader.diagnostics.at(filter.span(), message);
    }
    let flag_rule = filter
        .and_then(|filter| flag_rule(&filter, reader))
        .unwrap_or_default();
    for (names, is_filtered) in [(filtered_by, true), (not_filtered_by, false)] {
        let Some(names) = names else {
            continue;
        };
        let flags = Flags {
            names: flag_names(&names, reader),
            rule: flag_rule,
            is_filtered,
        };
        rule = rule.map(|rule| rule.with_flags(flags));
    }
    let part = named_patterns.and_then(|named| part_patterns(&named, patterns, reader));
    if let Some((part, patterns)) = part {
        rule = rule.map(|rule| rule.with_patterns(part, patterns));
    }
    rule
}

/// `"GET /path"`, `"GET,POST /path"` or `"/path"`.
fn route(value: &Value<'_>, reader: &mut Reader<'_>) -> Option<MatchRule> {
    let text = value.string(reader.diagnostics)?;
    let (methods, path) = match text.value.split_once(' ') {
        Some((methods, path)) => (methods.split(',').collect(), path.trim_start()),
        None => (Vec::new(), text.value),
    };
    let is_method = |method: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        !method.is_empty() && method.len() <= 32 && method.bytes().all(is_letter)
    };
    if !methods.iter().all(is_method) {
        let message =
            "a rule must be a path, or methods in capitals and a path: `GET,POST /orders/{id}`";
        reader.diagnostics.at(text.span, message);
        return None;
    }
    if let Some(method) = methods.iter().find(|own| matches!(**own, "ANY" | "ALL")) {
        let path = path.escape_debug();
        let message = format!(
            "`{method}` is no method of HTTP, and the rule would match nothing: leave the methods out \
             to match all of them, as in \"{path}\""
        );
        reader.diagnostics.at(text.span, message);
        return None;
    }
    if path.len() > NAME_BYTES_MAX {
        let message = format!("a path must have at most {NAME_BYTES_MAX} bytes");
        reader.diagnostics.at(text.span, message);
        return None;
    }
    match PathTemplate::new(path) {
        Ok(template) => Some(MatchRule::new(methods, template)),
        Err(error) => {
            reader.diagnostics.at(text.span, error.to_string());
            None
        }
    }
}

fn conditions(value: Option<Value<'_>>, reader: &mut Reader<'_>) -> Vec<(Box<str>, Condition)> {
    let Some(section) = value.and_then(|value| value.table(reader.diagnostics)) else {
        return Vec::new();
    };
    let mut conditions = Vec::new();
    for entry in section.entries() {
        let Some(text) = entry.string(reader.diagnostics) else {
            continue;
        };
        let condition = Condition::parse(text.value).filter(|_| !entry.key().is_empty());
        if let Some(condition) = condition
            && conditions.len() < CONDITIONS_MAX
        {
            conditions.push((entry.key().into(), condition));
        } else {
            let message = "a condition must be `*` (present), `!*` (absent), `text` or `!text`; \
                           at most 16";
            reader.diagnostics.at(entry.key_span(), message);
        }
    }
    conditions
}

fn flag_names(value: &Value<'_>, reader: &mut Reader<'_>) -> Vec<Box<str>> {
    let items = few(value, "names", reader);
    let names = items.iter().filter_map(|item| reader.name(item));
    names.collect()
}

fn flag_rule(value: &Value<'_>, reader: &mut Reader<'_>) -> Option<FlagRule> {
    let text = reader.string(value)?;
    let rule = FlagRule::parse(&text);
    if rule.is_none() {
        let subject = if is_reference(value) {
            "the setting"
        } else {
            "`filter`"
        };
        let message = format!("{subject} must be exactly_one_true, any_true or any_present");
        reader.diagnostics.at(value.span(), message);
    }
    rule
}

/// `{ "path:Key" = ["EMAIL", "PHONE"] }`.
fn part_patterns(
    value: &Value<'_>,
    patterns: &[NamedPattern],
    reader: &mut Reader<'_>,
) -> Option<(KeyPart, Vec<NamedPattern>)> {
    let entries = value.table(reader.diagnostics)?.entries();
    let [entry] = entries.as_slice() else {
        let message = "`patterns` must name one part: { \"path:id\" = [\"NAME\"] }";
        reader.diagnostics.at(value.span(), message);
        return None;
    };
    let Some(part) = KeyPart::parse(entry.key()) else {
        let message = "a part must be participant, user, header:NAME, query:NAME or path:NAME";
        reader.diagnostics.at(entry.key_span(), message);
        return None;
    };
    let items = few(entry, "patterns", reader);
    let found: Vec<NamedPattern> = items
        .iter()
        .filter_map(|item| definitions::pattern(item, patterns, reader))
        .collect();
    (!items.is_empty()).then_some((part, found))
}

/// The items of an array with 1 to [`CONDITIONS_MAX`] of them; none otherwise.
fn few<'v>(value: &Value<'v>, what: &str, reader: &mut Reader<'_>) -> Vec<Value<'v>> {
    let Some(items) = value.array(reader.diagnostics) else {
        return Vec::new();
    };
    if items.is_empty() || items.len() > CONDITIONS_MAX {
        let key = value.key().escape_debug();
        let message = format!("`{key}` must have 1 to {CONDITIONS_MAX} {what}");
        reader.diagnostics.at(value.span(), message);
        return Vec::new();
    }
    items
}
