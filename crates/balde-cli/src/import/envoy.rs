//! The configuration of envoyproxy/ratelimit: a domain with nested descriptors.
//!
//! The original looks up one entry of a descriptor after the other: the value itself, then wildcards in
//! the order of the file, then the key without a value. It never goes back: if nothing fits below the
//! value that it found, the descriptor is not limited, even if a less specific branch has a limit. Rules
//! of the service are compared as a whole, so this file writes `unlimited` rules for what the original
//! does not limit in this way.

use std::collections::HashSet;

use balde_core::Limit as Numbers;

use super::notes::{Notes, Place};
use super::service_file::{Limit, NEVER, Pattern, Rule, ServiceFile};
use super::yaml::Node;

/// All domains of the files.
#[derive(Debug, Default)]
pub(super) struct Domains {
    all: Vec<(String, Vec<Descriptor>)>,
}

#[derive(Debug)]
struct Descriptor {
    place: Place,
    key: String,
    value: Value,
    limit: Option<RateLimit>,
    name: Option<String>,
    is_shadow: bool,
    /// Whether all values that a wildcard matches share a bucket.
    is_shared: bool,
    nested: Vec<Descriptor>,
}

#[derive(Debug, PartialEq, Eq)]
enum Value {
    Any,
    Prefix(String),
    Exact(String),
}

#[derive(Debug)]
enum RateLimit {
    Unlimited,
    Numbers(String),
    /// It has been noted.
    NotImported,
}

/// An entry of the descriptors that a rule matches.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    text: String,
    is_shared: bool,
}

impl Domains {
    pub(super) fn read(
        &mut self,
        file: &str,
        node: &Node,
        notes: &mut Notes,
    ) -> Result<(), String> {
        let domain = node.get("domain").and_then(Node::text);
        let domain = domain.filter(|domain| !domain.is_empty());
        let domain = domain.ok_or_else(|| format!("{file}:{}: there is no `domain`", node.line))?;
        for (key, value) in node.entries().into_iter().flatten() {
            if !matches!(key, "domain" | "descriptors") {
                notes.add(
                    &Place::new(file, value.line),
                    format!("unknown key `{key}`"),
                );
            }
        }
        let known = self.all.iter().position(|(name, _)| name == domain);
        let place = known.unwrap_or_else(|| {
            self.all.push((domain.to_owned(), Vec::new()));
            self.all.len() - 1
        });
        let read = Reader { file, notes }.descriptors(node)?;
        for descriptor in read {
            descriptor.add_to(&mut self.all[place].1, notes);
        }
        Ok(())
    }

    pub(super) fn into_file(self, notes: &mut Notes) -> ServiceFile {
        let mut file = ServiceFile::default();
        for (domain, descriptors) in &self.all {
            let mut writer = Writer {
                domain,
                file: &mut file,
                matches: HashSet::new(),
                notes,
            };
            writer.rules(&[], descriptors);
        }
        file
    }
}

struct Reader<'r> {
    file: &'r str,
    notes: &'r mut Notes,
}

impl Reader<'_> {
    /// The list `descriptors` of a node; empty if there is none.
    fn descriptors(&mut self, node: &Node) -> Result<Vec<Descriptor>, String> {
        let mut all = Vec::new();
        let Some(list) = node.get("descriptors") else {
            return Ok(all);
        };
        let items = list.items();
        let items = items.ok_or_else(|| self.error(list, "`descriptors` must be a list"))?;
        for item in items {
            self.descriptor(item)?.add_to(&mut all, self.notes);
        }
        Ok(all)
    }

    fn descriptor(&mut self, node: &Node) -> Result<Descriptor, String> {
        let key = node.get("key").and_then(Node::text);
        let key = key.filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| self.error(node, "a descriptor needs a `key`"))?;
        let value = match node.get("value").and_then(Node::text).unwrap_or_default() {
            "" => Value::Any,
            value => match value.strip_suffix('*') {
                Some("") => Value::Any,
                Some(prefix) => Value::Prefix(prefix.to_owned()),
                None => Value::Exact(value.to_owned()),
            },
        };
        let rate_limit = node
            .get("rate_limit")
            .filter(|limit| limit.entries().is_some());
        let is_shared = node.get("share_threshold").is_some_and(Node::is_true);
        let is_wildcard = node
            .get("value")
            .and_then(Node::text)
            .is_some_and(|value| value.ends_with('*'));
        if is_shared && !is_wildcard {
            self.note(
                node,
                "`share_threshold` has an effect on a wildcard (`value: prefix*`) only",
            );
        }
        self.note_others(node);
        Ok(Descriptor {
            place: Place::new(self.file, node.line),
            key: key.to_owned(),
            value,
            limit: rate_limit.map(|limit| self.rate_limit(limit)),
            name: rate_limit
                .and_then(|limit| limit.get("name")?.text())
                .map(str::to_owned),
            is_shadow: node.get("shadow_mode").is_some_and(Node::is_true),
            is_shared: is_shared && is_wildcard,
            nested: self.descriptors(node)?,
        })
    }

    /// Says which keys of a descriptor have no equivalent.
    fn note_others(&mut self, node: &Node) {
        for (key, value) in node.entries().into_iter().flatten() {
            match key {
                "key" | "value" | "rate_limit" | "descriptors" | "shadow_mode"
                | "share_threshold" => {}
                "detailed_metric" | "value_to_metric" | "quota_mode" if !value.is_true() => {}
                "detailed_metric" | "value_to_metric" => {
                    let reason = format!(
                        "`{key}`: the service's metrics are by limit, and have no values of descriptors"
                    );
                    self.note(value, &reason);
                }
                "quota_mode" => self.note(value, "`quota_mode`: the limit refuses as any other"),
                _ => self.note(value, &format!("unknown key `{key}`")),
            }
        }
    }

    fn rate_limit(&mut self, node: &Node) -> RateLimit {
        for (key, value) in node.entries().into_iter().flatten() {
            match key {
                "unit" | "requests_per_unit" | "unit_multiplier" | "unlimited" | "name" => {}
                "replaces" => {
                    let names = value.items().into_iter().flatten();
                    let names = names.filter_map(|item| item.get("name")?.text());
                    let names: Vec<&str> = names.collect();
                    if !names.is_empty() {
                        let reason = format!(
                            "`replaces`: a request that has a descriptor of {} takes tokens there, too",
                            names.join(", ")
                        );
                        self.note(value, &reason);
                    }
                }
                _ => self.note(value, &format!("unknown key `{key}` of `rate_limit`")),
            }
        }
        if node.get("unlimited").is_some_and(Node::is_true) {
            return RateLimit::Unlimited;
        }
        match numbers(node) {
            Ok(numbers) => RateLimit::Numbers(numbers),
            Err(reason) => {
                self.note(node, &reason);
                RateLimit::NotImported
            }
        }
    }

    fn note(&mut self, node: &Node, reason: &str) {
        self.notes.add(&Place::new(self.file, node.line), reason);
    }

    fn error(&self, node: &Node, reason: &str) -> String {
        format!("{}:{}: {reason}", self.file, node.line)
    }
}

/// The numbers of a limit. The original counts in windows that begin at multiples of their length since
/// the Unix epoch; a stepwise bucket is filled at the same moments.
fn numbers(node: &Node) -> Result<String, String> {
    let requests = node.get("requests_per_unit").map(Node::number);
    let requests = requests.unwrap_or(Some(0));
    let requests = requests.ok_or("`requests_per_unit` is no whole number")?;
    let unit = node.get("unit").and_then(Node::text).unwrap_or_default();
    let (count, unit) = match unit.to_ascii_lowercase().as_str() {
        "second" => (1, "s"),
        "minute" => (1, "min"),
        "hour" => (1, "h"),
        "day" => (1, "day"),
        "week" => (7, "day"),
        "month" => (30, "day"),
        "year" => (365, "day"),
        _ => return Err(format!("`unit` `{unit}` is unknown")),
    };
    let multiplier = node.get("unit_multiplier").map(Node::number);
    let multiplier = multiplier.unwrap_or(Some(1)).filter(|number| *number > 0);
    let multiplier = multiplier.ok_or("`unit_multiplier` must be a number above 0")?;
    if requests == 0 {
        return Ok(NEVER.to_owned());
    }
    let period = match multiplier.saturating_mul(count) {
        1 => unit.to_owned(),
        count => format!("{count} {unit}"),
    };
    let text = format!("{requests}/{period} stepwise");
    let parsed: Result<Numbers, _> = text.parse();
    parsed.map_err(|error| format!("`{text}`: {error}"))?;
    Ok(text)
}

impl Descriptor {
    /// Adds a descriptor to its siblings, unless the original would never find it there.
    fn add_to(self, siblings: &mut Vec<Self>, notes: &mut Notes) {
        let mut others = siblings.iter().filter(|other| other.key == self.key);
        let hides = |other: &&Self| match (&other.value, &self.value) {
            (other, own) if other == own => true,
            // Of two wildcards that match, the first in the file counts.
            (Value::Prefix(first), Value::Prefix(own)) => own.starts_with(first.as_str()),
            _ => false,
        };
        let hidden_by = others.find(hides);
        if let Some(other) = hidden_by {
            let reason = format!(
                "the descriptor `{}`: that of {} is found before it",
                self.text(),
                other.place
            );
            notes.add(&self.place, reason);
        } else if self.key.contains('=') {
            let reason = format!(
                "a rule cannot have the key `{}`, because of its =",
                self.key
            );
            notes.add(&self.place, reason);
        } else {
            siblings.push(self);
        }
    }

    /// The entry of a rule.
    fn text(&self) -> String {
        match &self.value {
            Value::Any => self.key.clone(),
            Value::Prefix(prefix) => format!("{}={prefix}*", self.key),
            Value::Exact(value) => format!("{}={value}", self.key),
        }
    }

    /// Whether the original finds this descriptor before `other` for some value.
    fn hides(&self, other: &Self) -> bool {
        self.key == other.key
            && match (&self.value, &other.value) {
                (Value::Any, _) | (_, Value::Exact(_)) => false,
                (_, Value::Any) => true,
                (Value::Prefix(own) | Value::Exact(own), Value::Prefix(other)) => {
                    own.starts_with(other.as_str())
                }
            }
    }

    /// The keys of the entries that follow this one, for every limit here and below.
    fn paths(&self) -> Vec<Vec<&str>> {
        let mut paths = Vec::new();
        if self.limit.is_some() {
            paths.push(Vec::new());
        }
        for nested in &self.nested {
            for path in nested.paths() {
                let mut keys = vec![nested.key.as_str()];
                keys.extend(path);
                paths.push(keys);
            }
        }
        paths
    }
}

/// Writes the rules of a domain.
struct Writer<'w> {
    domain: &'w str,
    file: &'w mut ServiceFile,
    /// What the rules so far match.
    matches: HashSet<Vec<String>>,
    notes: &'w mut Notes,
}

impl Writer<'_> {
    fn rules(&mut self, above: &[Entry], descriptors: &[Descriptor]) {
        for descriptor in descriptors {
            let mut entries = above.to_vec();
            entries.push(Entry {
                key: descriptor.key.clone(),
                text: descriptor.text(),
                is_shared: descriptor.is_shared,
            });
            self.rule(&entries, descriptor);
            self.rules(&entries, &descriptor.nested);
            let hidden = descriptors.iter().filter(|other| descriptor.hides(other));
            for path in hidden.flat_map(Descriptor::paths) {
                let mut pattern: Vec<String> =
                    entries.iter().map(|entry| entry.text.clone()).collect();
                pattern.extend(path.into_iter().map(str::to_owned));
                self.push(descriptor, pattern, None, None);
            }
        }
    }

    fn rule(&mut self, entries: &[Entry], descriptor: &Descriptor) {
        let pattern: Vec<String> = entries.iter().map(|entry| entry.text.clone()).collect();
        let limit = match &descriptor.limit {
            Some(RateLimit::Numbers(text)) => {
                let path = format!("{}_{}", self.domain, pattern.join("_"));
                Some(Limit {
                    name: descriptor.name.clone().unwrap_or(path),
                    text: text.clone(),
                })
            }
            // Nothing else may apply to what could not be imported; it has been noted.
            Some(RateLimit::Unlimited | RateLimit::NotImported) => None,
            // A descriptor without a limit and without others in it exempts its value.
            None if descriptor.nested.is_empty() => None,
            None => return,
        };
        let key = match &limit {
            Some(_) if entries.iter().any(|entry| entry.is_shared) => {
                let keys = bucket_keys(entries);
                if keys.is_none() {
                    let reason = "`share_threshold`: the descriptor has a key twice; each value has \
                                  its own bucket";
                    self.notes.add(&descriptor.place, reason);
                }
                keys
            }
            _ => None,
        };
        self.push(descriptor, pattern, limit, key);
    }

    fn push(
        &mut self,
        descriptor: &Descriptor,
        pattern: Vec<String>,
        limit: Option<Limit>,
        key: Option<Vec<String>>,
    ) {
        if self.matches.insert(pattern.clone()) {
            self.file.push(Rule {
                place: descriptor.place.clone(),
                domain: self.domain.to_owned(),
                pattern: Pattern::Match(pattern),
                key,
                is_shadow: descriptor.is_shadow && limit.is_some(),
                limit,
            });
        }
    }
}

/// The keys that name the bucket where a wildcard shares one; `None` if a key is there twice.
fn bucket_keys(entries: &[Entry]) -> Option<Vec<String>> {
    let keys: HashSet<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let is_unique = keys.len() == entries.len();
    let named = entries.iter().filter(|entry| !entry.is_shared);
    is_unique.then(|| named.map(|entry| entry.key.clone()).collect())
}
