//! Which limit applies to a descriptor of Envoy: a list of keys with values.
//!
//! There are two kinds of rules. A rule with `match` matches a descriptor with the same keys in the same
//! order, as in envoyproxy/ratelimit. Of several such rules, the one with the more specific value wins,
//! and the first entries count most: an exact value before a prefix, a longer prefix before a shorter
//! one, and any value last. A rule with `contains` matches a descriptor that has its entries among
//! others, in any order, as in Limitador. All rules of this kind that match apply.

use std::collections::HashMap;

/// A rule of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorRule {
    /// The domain of the request.
    pub domain: String,
    /// Which descriptors match.
    pub pattern: DescriptorPattern,
    /// The keys whose values name the bucket; `None` for all keys of the descriptor.
    pub key: Option<Vec<String>>,
    /// The limit of the file that applies; `None` if requests are not limited.
    pub limit: Option<String>,
    /// Whether refusals are only counted.
    pub is_shadow: bool,
}

/// Which descriptors match a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptorPattern {
    /// Those with these entries, in this order, and no others.
    Exactly(Vec<EntryPattern>),
    /// Those that have these entries among others.
    Contains {
        /// The entries; a descriptor must have all of them.
        entries: Vec<EntryPattern>,
        /// The position of the descriptor in the request; `None` for every descriptor.
        index: Option<usize>,
    },
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
    Not(String),
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

    /// Like [`EntryPattern::parse`], and `key!=value`: the key is there with another value.
    pub fn parse_condition(text: &str) -> Option<Self> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) if key.ends_with('!') => (key.trim_end_matches('!'), value),
            _ => return Self::parse(text),
        };
        (!key.is_empty()).then(|| Self {
            key: key.to_owned(),
            value: ValuePattern::Not(value.to_owned()),
        })
    }

    fn rank(&self, key: &str, value: &str) -> Option<Rank> {
        if self.key != key {
            return None;
        }
        match &self.value {
            ValuePattern::Any => Some((0, 0)),
            ValuePattern::Not(other) => (other != value).then_some((0, 0)),
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

    /// The most specific rule with `match` for a descriptor; `None` if there is none.
    pub fn find(&self, domain: &str, entries: &[(&str, &str)]) -> Option<&DescriptorRule> {
        let rules = self.rules.get(domain)?.iter();
        let ranked = rules.filter_map(|rule| Some((rule.rank(entries)?, rule)));
        let best = ranked.reduce(|best, other| if other.0 > best.0 { other } else { best });
        best.map(|(_, rule)| rule)
    }

    /// All rules with `contains` that match the descriptor at a position of the request.
    pub fn containing<'r>(
        &'r self,
        domain: &str,
        at: usize,
        entries: &[(&str, &str)],
    ) -> impl Iterator<Item = &'r DescriptorRule> {
        let rules = self.rules.get(domain).into_iter().flatten();
        rules.filter(move |rule| rule.is_contained(at, entries))
    }
}

impl DescriptorRule {
    /// The key of the bucket of a descriptor that matches.
    pub(crate) fn bucket_key(&self, entries: &[(&str, &str)]) -> Vec<u8> {
        let Some(names) = &self.key else {
            return bucket_key(&self.domain, entries);
        };
        let named = names.iter().filter_map(|name| {
            let mut last_first = entries.iter().rev();
            last_first.find(|(key, _)| key == name).copied()
        });
        bucket_key(&self.domain, &named.collect::<Vec<_>>())
    }

    fn rank(&self, entries: &[(&str, &str)]) -> Option<Vec<Rank>> {
        let DescriptorPattern::Exactly(patterns) = &self.pattern else {
            return None;
        };
        if patterns.len() != entries.len() {
            return None;
        }
        let pairs = patterns.iter().zip(entries);
        pairs
            .map(|(pattern, (key, value))| pattern.rank(key, value))
            .collect()
    }

    /// Whether a rule with `contains` matches. A key that is there twice has its last value.
    fn is_contained(&self, at: usize, entries: &[(&str, &str)]) -> bool {
        let DescriptorPattern::Contains {
            entries: patterns,
            index,
        } = &self.pattern
        else {
            return false;
        };
        index.is_none_or(|index| index == at)
            && patterns.iter().all(|pattern| {
                let mut last_first = entries.iter().rev();
                let entry = last_first.find(|(key, _)| *key == pattern.key);
                entry.is_some_and(|(key, value)| pattern.rank(key, value).is_some())
            })
            && self.key.iter().flatten().all(|name| {
                let mut entries = entries.iter();
                entries.any(|(key, _)| key == name)
            })
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
            pattern: DescriptorPattern::Exactly(
                entries
                    .iter()
                    .map(|text| EntryPattern::parse(text).unwrap())
                    .collect(),
            ),
            key: None,
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
    fn rules_that_are_contained_all_apply_and_their_keys_name_the_bucket() {
        let contains = |entries: &[&str], key: &[&str], index, limit: &str| DescriptorRule {
            pattern: DescriptorPattern::Contains {
                entries: entries
                    .iter()
                    .map(|text| EntryPattern::parse_condition(text).unwrap())
                    .collect(),
                index,
            },
            key: Some(key.iter().map(|name| (*name).to_owned()).collect()),
            ..rule("edge", &[], limit)
        };
        let rules = DescriptorRules::new([
            contains(&["method=POST"], &["user"], None, "posts"),
            contains(&["method!=GET", "path=/api/*"], &[], None, "writes"),
            contains(&[], &[], Some(0), "all"),
            rule("edge", &["method=POST"], "exact"),
        ]);
        let find = |at, entries: &[(&str, &str)]| {
            let all = rules.containing("edge", at, entries);
            let names = all.map(|rule| rule.limit.clone().unwrap());
            names.collect::<Vec<_>>().join(" ")
        };
        let (post, api, bob) = (("method", "POST"), ("path", "/api/x"), ("user", "bob"));
        assert_eq!(find(0, &[bob, api, post]), "posts writes all");
        assert_eq!(find(1, &[post, bob]), "posts");
        assert_eq!(find(1, &[post]), "");
        assert_eq!(find(0, &[("method", "GET"), api]), "all");
        assert_eq!(find(1, &[api]), "");
        let posts = rules.containing("edge", 1, &[post, bob]).next().unwrap();
        assert_eq!(posts.bucket_key(&[post, bob, api]), b"edge|user=bob|");
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
