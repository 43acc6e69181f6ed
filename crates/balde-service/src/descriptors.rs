//! Which limit applies to a descriptor of Envoy: a list of keys with values.
//!
//! A rule matches a descriptor with the same keys in the same order. Of several rules that match, the
//! one with the more specific value wins, and the first entries count most: an exact value before a
//! prefix, a longer prefix before a shorter one, and any value last.

use std::collections::HashMap;

/// A rule of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorRule {
    /// The domain of the request.
    pub domain: String,
    /// The entries of the descriptor.
    pub entries: Vec<EntryPattern>,
    /// The limit of the file that applies; `None` if requests are not limited.
    pub limit: Option<String>,
    /// Whether refusals are only counted.
    pub is_shadow: bool,
}

/// A key, and which values of it match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPattern {
    key: String,
    value: ValuePattern,
}

/// In the order of their precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ValuePattern {
    Any,
    Prefix(String),
    Exact(String),
}

/// How specific a match is; greater wins.
type Rank = (u8, usize);

impl EntryPattern {
    /// Parses `key`, `key=value` or `key=prefix*`. `None` if the key is empty.
    pub fn parse(text: &str) -> Option<Self> {
        let (key, value) = match text.split_once('=') {
            None => (text, ValuePattern::Any),
            Some((key, value)) => match value.strip_suffix('*') {
                Some("") => (key, ValuePattern::Any),
                Some(prefix) => (key, ValuePattern::Prefix(prefix.to_owned())),
                None => (key, ValuePattern::Exact(value.to_owned())),
            },
        };
        (!key.is_empty()).then(|| Self {
            key: key.to_owned(),
            value,
        })
    }

    fn rank(&self, key: &str, value: &str) -> Option<Rank> {
        if self.key != key {
            return None;
        }
        match &self.value {
            ValuePattern::Any => Some((0, 0)),
            ValuePattern::Prefix(prefix) => value.starts_with(prefix).then_some((1, prefix.len())),
            ValuePattern::Exact(exact) => (exact == value).then_some((2, 0)),
        }
    }
}

/// All rules, found by domain and number of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorRules {
    rules: HashMap<String, Vec<DescriptorRule>>,
}

impl DescriptorRules {
    /// All rules of a file.
    pub fn new(rules: impl IntoIterator<Item = DescriptorRule>) -> Self {
        let mut all = Self::default();
        for rule in rules {
            let domain = all.rules.entry(rule.domain.clone()).or_default();
            domain.push(rule);
        }
        all
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.values().map(Vec::len).sum()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule that applies to a descriptor; `None` if there is none, so that it is not limited.
    pub fn find(&self, domain: &str, entries: &[(&str, &str)]) -> Option<&DescriptorRule> {
        let rules = self.rules.get(domain)?.iter();
        let ranked = rules.filter_map(|rule| Some((rule.rank(entries)?, rule)));
        let best = ranked.reduce(|best, other| if other.0 > best.0 { other } else { best });
        best.map(|(_, rule)| rule)
    }
}

impl DescriptorRule {
    fn rank(&self, entries: &[(&str, &str)]) -> Option<Vec<Rank>> {
        if self.entries.len() != entries.len() {
            return None;
        }
        let pairs = self.entries.iter().zip(entries);
        pairs
            .map(|(pattern, (key, value))| pattern.rank(key, value))
            .collect()
    }
}

/// The key of a descriptor's bucket. Two descriptors have the same one only if they are equal.
pub(crate) fn bucket_key(domain: &str, entries: &[(&str, &str)]) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    let mut part = |text: &str, end: u8| {
        for byte in text.bytes() {
            // What separates parts, and the escape itself.
            if matches!(byte, b'|' | b'=' | b'\\') {
                key.push(b'\\');
            }
            key.push(byte);
        }
        key.push(end);
    };
    part(domain, b'|');
    for (name, value) in entries {
        part(name, b'=');
        part(value, b'|');
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(domain: &str, entries: &[&str], limit: &str) -> DescriptorRule {
        DescriptorRule {
            domain: domain.to_owned(),
            entries: entries
                .iter()
                .map(|text| EntryPattern::parse(text).unwrap())
                .collect(),
            limit: Some(limit.to_owned()),
            is_shadow: false,
        }
    }

    #[test]
    fn the_most_specific_rule_wins_and_the_first_entries_count_most() {
        let rules = DescriptorRules::new([
            rule("edge", &["path"], "any"),
            rule("edge", &["path=/a*"], "prefix"),
            rule("edge", &["path=/api/*"], "longer"),
            rule("edge", &["path=/api/x"], "exact"),
            rule("edge", &["path", "user=bob"], "second"),
            rule("edge", &["path=/api/x", "user"], "first"),
            rule("other", &["path=*"], "other"),
        ]);
        let find = |domain: &str, entries: &[(&str, &str)]| {
            let found = rules.find(domain, entries);
            found
                .and_then(|rule| rule.limit.clone())
                .unwrap_or_default()
        };
        assert_eq!(find("edge", &[("path", "/")]), "any");
        assert_eq!(find("edge", &[("path", "/about")]), "prefix");
        assert_eq!(find("edge", &[("path", "/api/y")]), "longer");
        assert_eq!(find("edge", &[("path", "/api/x")]), "exact");
        assert_eq!(
            find("edge", &[("path", "/api/x"), ("user", "bob")]),
            "first"
        );
        assert_eq!(find("edge", &[("path", "/"), ("user", "bob")]), "second");
        assert_eq!(find("edge", &[("user", "bob"), ("path", "/")]), "");
        assert_eq!(find("edge", &[]), "");
        assert_eq!(find("other", &[("path", "/")]), "other");
        assert_eq!(find("none", &[("path", "/")]), "");
        assert_eq!(rules.len(), 7);
    }

    #[test]
    fn different_descriptors_have_different_buckets() {
        let keys = [
            bucket_key("d", &[("a", "b|c=d")]),
            bucket_key("d", &[("a", "b"), ("c", "d")]),
            bucket_key("d|a=b", &[("c", "d")]),
            bucket_key("d", &[("a", "b\\"), ("c", "d")]),
            bucket_key("d", &[("a=b", ""), ("c", "d")]),
        ];
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }

    #[test]
    fn an_entry_needs_a_key() {
        assert_eq!(EntryPattern::parse(""), None);
        assert_eq!(EntryPattern::parse("=a"), None);
    }
}
