//! What different servers read in the same query.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::request::{QUERY_PAIRS_MAX, form_decoded};

/// The values that servers could read for one query parameter: the first, the last, and with `;` as a
/// second separator or not. `None` stands for a server that finds no such parameter.
pub(crate) struct QueryReadings<'q> {
    values: SmallVec<[Option<Cow<'q, str>>; 2]>,
    /// There are more parameters than are read.
    is_incomplete: bool,
}

impl<'q> QueryReadings<'q> {
    pub(super) fn new(query: &'q str, name: &str) -> Self {
        let mut readings = Self {
            values: SmallVec::new(),
            is_incomplete: false,
        };
        readings.read(query, &['&'], name);
        if query.contains(';') {
            readings.read(query, &['&', ';'], name);
        }
        readings
    }

    fn read(&mut self, query: &'q str, separators: &[char], name: &str) {
        let mut is_absent = true;
        let pairs = query.split(separators).filter(|pair| !pair.is_empty());
        for (index, pair) in pairs.enumerate() {
            if index == QUERY_PAIRS_MAX {
                self.is_incomplete = true;
                break;
            }
            let (other, value) = pair.split_once('=').unwrap_or((pair, ""));
            if form_decoded(other) == name {
                is_absent = false;
                self.add(Some(form_decoded(value)));
            }
        }
        if is_absent {
            self.add(None);
        }
    }

    /// Adds a value that differs from those before. Absent and empty are the same to every condition.
    fn add(&mut self, value: Option<Cow<'q, str>>) {
        let value = value.filter(|value| !value.is_empty());
        if !self.values.contains(&value) {
            self.values.push(value);
        }
    }

    /// Whether servers read different values.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.is_incomplete || self.values.len() > 1
    }

    /// Whether a condition holds for a value that some server reads, or may hold for one that was not
    /// looked at.
    pub(crate) fn any(&self, holds: impl Fn(Option<&str>) -> bool) -> bool {
        self.is_incomplete || self.values.iter().any(|value| holds(value.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_that_a_server_could_read_is_considered() {
        for (query, values) in [
            ("q=a", vec![Some("a")]),
            ("%71=a&x=1", vec![Some("a")]),
            ("q=a&q=a", vec![Some("a")]),
            ("q=a&q=b", vec![Some("a"), Some("b")]),
            ("q=a&q=", vec![Some("a"), None]),
            ("x=1", vec![None]),
            ("q", vec![None]),
            ("x=1;q=a", vec![None, Some("a")]),
            ("q=a;b", vec![Some("a;b"), Some("a")]),
            ("q=a+b;x=1", vec![Some("a b;x=1"), Some("a b")]),
            ("q=a%3Bb", vec![Some("a;b")]),
            ("x=1;2&q=a", vec![Some("a")]),
        ] {
            let readings = QueryReadings::new(query, "q");
            let found: Vec<Option<&str>> = readings.values.iter().map(Option::as_deref).collect();
            assert_eq!(found, values, "{query}");
            assert_eq!(readings.is_ambiguous(), values.len() > 1, "{query}");
        }
    }

    #[test]
    fn a_parameter_behind_too_many_others_is_not_overlooked() {
        let query = "x=1&".repeat(QUERY_PAIRS_MAX) + "q=a";
        let readings = QueryReadings::new(&query, "q");
        assert!(readings.is_ambiguous());
        assert!(readings.any(|_| false));
        let query = "x=1&".repeat(QUERY_PAIRS_MAX - 1) + "q=a";
        assert!(!QueryReadings::new(&query, "q").is_ambiguous());
    }
}
