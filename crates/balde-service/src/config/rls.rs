//! The section `[rls]`: Envoy's rate limit service.

use balde_config::{Diagnostics, Located, Resolver, Section};

use super::listener::ListenerConfig;
use super::{count, size};
use crate::descriptors::{DescriptorPattern, DescriptorRule, DescriptorRules, EntryPattern};

const RULES_MAX: usize = 10_000;

/// Envoy's rate limit service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RlsConfig {
    /// The address with TLS and the limits on connections.
    pub listener: ListenerConfig,
    /// The longest message, in bytes.
    pub message_bytes_max: usize,
    /// The most descriptors of a request.
    pub descriptors_max: usize,
    /// Whether answers carry header fields for the client.
    pub has_headers: bool,
    /// Which limit applies to which descriptor.
    pub rules: DescriptorRules,
}

/// Reads the section. `limits` are the names of the file's limits.
pub(super) fn read(
    root: &mut Section<'_>,
    limits: &[&str],
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<RlsConfig> {
    let mut section = root.table("rls", diagnostics)?;
    let listener = ListenerConfig::read(&mut section, "127.0.0.1:8081", resolver, diagnostics);
    let bytes = 256..=4 << 20;
    let message_bytes_max = size(
        &mut section,
        "message_size_max",
        bytes,
        64 << 10,
        diagnostics,
    );
    let descriptors_max = count(&mut section, "descriptors_max", 1..=64, 32, diagnostics);
    let headers = section.boolean("headers", diagnostics);
    let sections = section.tables("rule", diagnostics);
    if sections.len() > RULES_MAX {
        let message = format!("there are more than {RULES_MAX} rules");
        diagnostics.at(section.span(), message);
    }
    let rules: Vec<DescriptorRule> = sections
        .into_iter()
        .take(RULES_MAX)
        .filter_map(|section| rule(section, limits, diagnostics))
        .collect();
    section.finish(diagnostics);
    Some(RlsConfig {
        listener: listener?,
        message_bytes_max,
        descriptors_max,
        has_headers: headers.is_none_or(|headers| headers.value),
        rules: DescriptorRules::new(rules),
    })
}

fn rule(
    mut section: Section<'_>,
    limits: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<DescriptorRule> {
    let span = section.span();
    let domain = section.require("domain", diagnostics);
    let domain = domain.and_then(|domain| domain.string(diagnostics));
    let pattern = pattern(&mut section, diagnostics);
    let key = section.get("key").map(|key| key.strings(diagnostics));
    let limit = section.string("limit", diagnostics);
    let is_unlimited = section.boolean("unlimited", diagnostics);
    let shadow = section.boolean("shadow", diagnostics);
    section.finish(diagnostics);
    let is_unlimited = is_unlimited.is_some_and(|is_unlimited| is_unlimited.value);
    if is_unlimited == limit.is_some() {
        let message = "a rule has either `limit`, the name of one of [limits], or unlimited = true";
        diagnostics.at(span, message);
    }
    if is_unlimited && matches!(pattern, Some(DescriptorPattern::Contains { .. })) {
        let message =
            "a rule with `contains` has a limit: unlimited = true exempts from rules with `match`";
        diagnostics.at(span, message);
    }
    if let Some(limit) = limit
        && !limits.contains(&limit.value)
    {
        let name = limit.value.escape_debug();
        let message = format!("there is no limit `{name}`; write [limits.{name}]");
        diagnostics.unknown("limits", limit.value, limit.span, message);
    }
    let key = key.map(|key| key.iter().map(|name| name.value.to_owned()).collect());
    Some(DescriptorRule {
        domain: domain?.value.to_owned(),
        pattern: pattern?,
        key,
        limit: limit.map(|limit| limit.value.to_owned()),
        is_shadow: shadow.is_some_and(|shadow| shadow.value),
    })
}

/// Reads `match`, or `contains` with `descriptor`.
fn pattern(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Option<DescriptorPattern> {
    let span = section.span();
    let (exactly, contains) = (section.get("match"), section.get("contains"));
    let index = section.integer("descriptor", 0..=63, diagnostics);
    if exactly.is_some() == contains.is_some() {
        let message = "a rule has either `match`, with all keys of a descriptor, or `contains`, with \
                       some of them";
        diagnostics.at(span, message);
        return None;
    }
    let (entries, parse): (_, fn(&str) -> Option<EntryPattern>) = match (&exactly, &contains) {
        (Some(entries), _) => (entries, EntryPattern::parse),
        (None, entries) => (entries.as_ref()?, EntryPattern::parse_condition),
    };
    let entries = entries.strings(diagnostics);
    if exactly.is_some() && entries.is_empty() {
        diagnostics.at(span, "`match` names at least one key of a descriptor");
    }
    if exactly.is_some()
        && let Some(index) = &index
    {
        let message =
            "`descriptor` belongs to `contains`; `match` is compared with every descriptor";
        diagnostics.at(index.span, message);
    }
    let mut pattern = |text: &Located<&str>| {
        let pattern = parse(text.value);
        if pattern.is_none() {
            let message = "an entry is `key`, `key=value` or `key=prefix*`, in `contains` also \
                           `key!=value`, and its key is not empty";
            diagnostics.at(text.span, message);
        }
        pattern
    };
    let entries = entries.iter().filter_map(&mut pattern).collect();
    Some(match exactly {
        Some(_) => DescriptorPattern::Exactly(entries),
        None => DescriptorPattern::Contains {
            entries,
            index: index.and_then(|index| usize::try_from(index.value).ok()),
        },
    })
}
