//! Match rules: `"GET /orders/{id}"`, or a table with `on` and conditions.

use super::reader::{Fields, Reader, Value, entries, is_reference};
use super::words;
use crate::policy::{Condition, FlagRule, Flags, KeyPart, MatchRule, NamedPattern, PathTemplate};

/// The most rules of a policy, and conditions of a rule.
const RULES_MAX: usize = 64;
const CONDITIONS_MAX: usize = 16;

pub(super) fn rules(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    patterns: &[NamedPattern],
) -> Vec<MatchRule> {
    let items = reader.array(value);
    if items.is_empty() || items.len() > RULES_MAX {
        let reason =
            format!("1 to {RULES_MAX} rules are possible; leave `match` out for all requests");
        reader.problem(value.span(), reason);
        return Vec::new();
    }
    let rules = items.iter().filter_map(|item| rule(reader, item, patterns));
    rules.collect()
}

fn rule(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    patterns: &[NamedPattern],
) -> Option<MatchRule> {
    if value.get_ref().is_str() {
        return on(reader, value);
    }
    let table = reader.table(value)?;
    let mut fields = Fields::new(table, "a rule", value.span());
    let route = fields.required(reader, "on");
    let query = fields.get("query");
    let headers = fields.get("headers");
    let filtered_by = fields.get("filtered-by");
    let not_filtered_by = fields.get("not-filtered-by");
    let filter = fields.get("filter");
    let written = fields.get("patterns");
    fields.finish(reader);

    let mut rule = route.and_then(|route| on(reader, route));
    for (name, condition) in conditions(reader, query) {
        rule = rule.map(|rule| rule.with_query(name, condition));
    }
    for (name, condition) in conditions(reader, headers) {
        rule = rule.map(|rule| rule.with_header(name, condition));
    }
    let meaning = filter
        .and_then(|filter| flag_rule(reader, filter))
        .unwrap_or_default();
    if let (Some(filter), None, None) = (filter, filtered_by, not_filtered_by) {
        let reason =
            "`filter` says when `filtered-by` or `not-filtered-by` hold, and neither is here";
        reader.missing(filter.span(), reason);
    }
    for (names, is_filtered) in [(filtered_by, true), (not_filtered_by, false)] {
        let Some(names) = names else {
            continue;
        };
        let flags = Flags {
            names: flag_names(reader, names),
            rule: meaning,
            is_filtered,
        };
        rule = rule.map(|rule| rule.with_flags(flags));
    }
    if let Some((part, patterns)) =
        written.and_then(|written| part_patterns(reader, written, patterns))
    {
        rule = rule.map(|rule| rule.with_patterns(part, patterns));
    }
    rule
}

/// `"GET /path"`, `"GET,POST /path"` or `"/path"`.
fn on(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<MatchRule> {
    let text = reader.text(value)?;
    let (methods, path) = match text.split_once(' ') {
        Some((methods, path)) => (methods.split(',').collect(), path.trim_start()),
        None => (Vec::new(), text),
    };
    let is_method = |method: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        !method.is_empty() && method.len() <= 32 && method.bytes().all(is_letter)
    };
    if !methods.iter().all(is_method) {
        let reason = "a rule is a path, or methods in capitals and a path: `GET,POST /orders/{id}`";
        reader.problem(value.span(), reason);
        return None;
    }
    if path.len() > super::WORD_BYTES_MAX {
        reader.problem(value.span(), "a path has at most 256 bytes");
        return None;
    }
    match PathTemplate::new(path) {
        Ok(template) => Some(MatchRule::new(methods, template)),
        Err(error) => {
            reader.problem(value.span(), format!("{error}"));
            None
        }
    }
}

fn conditions(reader: &mut Reader<'_>, value: Option<&Value<'_>>) -> Vec<(Box<str>, Condition)> {
    let Some(table) = value.and_then(|value| reader.table(value)) else {
        return Vec::new();
    };
    let mut conditions = Vec::new();
    for (name, span, value) in entries(table) {
        let Some(text) = reader.text(value) else {
            continue;
        };
        let condition = Condition::parse(text).filter(|_| !name.is_empty());
        if let Some(condition) = condition
            && conditions.len() < CONDITIONS_MAX
        {
            conditions.push((name.into(), condition));
        } else {
            let reason =
                "a condition is `*` (there), `!*` (not there), `text` or `!text`; at most 16";
            reader.problem(span, reason);
        }
    }
    conditions
}

fn flag_names(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<Box<str>> {
    let items = reader.array(value);
    if items.is_empty() || items.len() > CONDITIONS_MAX {
        reader.problem(
            value.span(),
            format!("1 to {CONDITIONS_MAX} names are possible"),
        );
        return Vec::new();
    }
    let words = items.iter().filter_map(|item| reader.word(item));
    words.collect()
}

fn flag_rule(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<FlagRule> {
    let text = reader.text_or_setting(value)?;
    let rule = FlagRule::parse(&text);
    if rule.is_none() {
        let of = if is_reference(value) {
            "the setting"
        } else {
            "a filter"
        };
        let reason = format!("{of} is exactly-one-true, any-true or any-present");
        reader.problem(value.span(), reason);
    }
    rule
}

/// `{ "path:Key" = ["EMAIL", "PHONE"] }`.
fn part_patterns(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    patterns: &[NamedPattern],
) -> Option<(KeyPart, Vec<NamedPattern>)> {
    let table = reader.table(value)?;
    let entries = entries(table);
    let [(name, span, names)] = entries.as_slice() else {
        reader.problem(
            value.span(),
            "patterns are given for one part: { \"path:id\" = [\"NAME\"] }",
        );
        return None;
    };
    let Some(part) = KeyPart::parse(name) else {
        let reason = "a part is participant, user, header:NAME, query:NAME or path:NAME";
        reader.problem(span.clone(), reason);
        return None;
    };
    let items = reader.array(names);
    if items.is_empty() || items.len() > CONDITIONS_MAX {
        reader.problem(
            names.span(),
            format!("1 to {CONDITIONS_MAX} patterns are possible"),
        );
        return None;
    }
    let found = items
        .iter()
        .filter_map(|item| words::pattern(reader, item, patterns));
    Some((part, found.collect()))
}
