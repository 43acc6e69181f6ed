//! The parts of a request that policies look at, as they were received.

use std::borrow::Cow;
use std::fmt;

use super::query::QueryReadings;
use crate::path::{PathError, PathRules};

/// The most query parameters that are read.
pub(super) const QUERY_PAIRS_MAX: usize = 256;

/// A request's headers. A header whose value is not text counts as absent.
pub trait Headers: Sync {
    /// The first value of a header. Names are not case-sensitive.
    fn value_of(&self, name: &str) -> Option<&str>;

    /// Whether a header occurs several times with different values, so that it is ambiguous which
    /// of them counts.
    fn values_differ(&self, name: &str) -> bool;
}

impl Headers for &[(&str, &str)] {
    fn value_of(&self, name: &str) -> Option<&str> {
        let is_called = |(other, _): &&(&str, &str)| other.eq_ignore_ascii_case(name);
        self.iter().find(is_called).map(|(_, value)| *value)
    }

    fn values_differ(&self, name: &str) -> bool {
        let first = self.value_of(name);
        let mut named = self
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.any(|(_, value)| Some(*value) != first)
    }
}

impl<const N: usize> Headers for [(&str, &str); N] {
    fn value_of(&self, name: &str) -> Option<&str> {
        let is_called = |(other, _): &&(&str, &str)| other.eq_ignore_ascii_case(name);
        self.iter().find(is_called).map(|(_, value)| *value)
    }

    fn values_differ(&self, name: &str) -> bool {
        (&self.as_slice()).values_differ(name)
    }
}

/// The parts of a request that policies look at. An adapter for a protocol fills them in.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// The method as sent, such as `GET`.
    pub method: &'r str,
    /// The path, without the profile's base path; still percent-encoded. Rules see its
    /// [normal form](PathRules::normalized).
    pub path: &'r str,
    /// Which spellings of the path are accepted.
    pub path_rules: PathRules,
    /// The raw query, without its question mark.
    pub query: &'r str,
    /// The headers.
    pub headers: &'r dyn Headers,
    /// The institution or tenant that sent the request, if the adapter knows it.
    pub participant: Option<&'r str>,
    /// The user that the request belongs to, if the adapter knows it.
    pub user: Option<&'r str>,
    /// Other values that the adapter has determined, by name.
    pub values: &'r [(&'r str, &'r str)],
    /// The class of the caller, for [reserves](crate::Policy::with_reserve).
    pub class: Option<&'r str>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Paths, queries and headers carry personal data, which does not belong in logs.
        f.debug_struct("Request")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl<'r> Request<'r> {
    /// Creates a request with a method, a path and a query; all other fields are empty.
    pub fn new(method: &'r str, path: &'r str, query: &'r str) -> Self {
        const NONE: &&[(&str, &str)] = &[].as_slice();
        Self {
            method,
            path,
            path_rules: PathRules::default(),
            query,
            headers: NONE,
            participant: None,
            user: None,
            values: &[],
            class: None,
        }
    }

    /// The value with this name in [`values`](Request::values).
    pub fn value(&self, name: &str) -> Option<&'r str> {
        let found = self.values.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| *value)
    }

    /// Calls `use_it` with the request whose path is in its normal form.
    pub(crate) fn with_normal_path<T>(
        &self,
        use_it: impl FnOnce(&Request<'_>) -> T,
    ) -> Result<T, PathError> {
        Ok(match self.path_rules.normalized(self.path)? {
            Cow::Borrowed(_) => use_it(self),
            Cow::Owned(path) => use_it(&Request {
                path: &path,
                ..*self
            }),
        })
    }

    /// All values that servers could read for a query parameter.
    pub(crate) fn query_readings(&self, name: &str) -> QueryReadings<'r> {
        QueryReadings::new(self.query, name)
    }

    /// The first value of a query parameter, decoded.
    pub fn query_first(&self, name: &str) -> Option<Cow<'r, str>> {
        let mut pairs = query_pairs(self.query);
        pairs
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }
}

/// The parameters of a raw query in their order, decoded as forms are (`+` is a space). A parameter
/// that cannot be decoded is returned as it was received.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.take(QUERY_PAIRS_MAX).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (form_decoded(name), form_decoded(value))
    })
}

pub(super) fn form_decoded(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        let decoded = percent_decoded(&spaced).map(Cow::into_owned);
        return Cow::Owned(decoded.unwrap_or(spaced));
    }
    percent_decoded(text).unwrap_or(Cow::Borrowed(text))
}

/// Decodes percent-encoding once. `None` if an escape is broken or the result is not UTF-8.
pub fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let [high, low, after @ ..] = after else {
                return None;
            };
            bytes.push(hex(*high)? << 4 | hex(*low)?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
