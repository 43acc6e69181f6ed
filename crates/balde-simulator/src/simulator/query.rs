//! Query parameters of lists and of the inspection endpoints.

use balde_policy::query_pairs;

use crate::directory::{Cursor, LIST_LIMIT_MAX, ListFilter, Side};
use crate::wire::{Problem, Timestamp, is_uuid};

/// The default number of records in a list.
pub(super) const LIST_LIMIT_DEFAULT: usize = 20;

/// The parameters of a query string.
pub(super) struct Query<'q>(&'q str);

impl<'q> Query<'q> {
    pub(super) fn new(query: &'q str) -> Self {
        Self(query)
    }

    /// The first value of a parameter, unless it is missing or empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let mut pairs = query_pairs(self.0);
        let found = pairs.find(|(other, _)| other == name);
        found
            .map(|(_, value)| value.into_owned())
            .filter(|value| !value.is_empty())
    }

    /// The value of a parameter that must not have several.
    pub(super) fn one(&self, name: &str) -> Result<Option<String>, Problem> {
        let mut values = self.all(name);
        let first = values.next();
        if values.any(|other| Some(&other) != first.as_ref()) {
            return Err(invalid(name, "has several values"));
        }
        Ok(first)
    }

    fn all(&self, name: &str) -> impl Iterator<Item = String> {
        let pairs = query_pairs(self.0).filter(move |(other, _)| other == name);
        let values = pairs.map(|(_, value)| value.into_owned());
        values.filter(|value| !value.is_empty())
    }

    /// A value of an enumeration, if the parameter is present.
    pub(super) fn value<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        match self.one(name)? {
            None => Ok(None),
            Some(text) => parse(&text)
                .map(Some)
                .ok_or_else(|| invalid(name, "is not a known value")),
        }
    }

    /// The values of an enumeration: the parameter may be repeated.
    pub(super) fn values<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, Problem> {
        let values = self.all(name).map(|text| {
            let value = parse(&text);
            value.ok_or_else(|| invalid(name, "is not a known value"))
        });
        values.collect()
    }

    /// A boolean, if the parameter is present.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        self.value(name, |text| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        })
    }

    /// A timestamp, if the parameter is present.
    pub(super) fn timestamp(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        match self.one(name)? {
            None => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| invalid(name, "is not a timestamp such as 2020-01-10T10:00:00.000Z")),
        }
    }

    /// The most items to list.
    pub(super) fn limit(&self, default: usize) -> Result<usize, Problem> {
        match self.one("Limit")? {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(limit) if (1..=LIST_LIMIT_MAX).contains(&limit) => Ok(limit),
                _ => Err(invalid("Limit", "is not 1 to 200")),
            },
        }
    }

    /// The position of a page, as the response before it named it: milliseconds and id.
    pub(super) fn cursor(&self) -> Result<Option<Cursor>, Problem> {
        let Some(text) = self.one("Cursor")? else {
            return Ok(None);
        };
        let position = text.split_once('.').and_then(|(ms, id)| {
            let ms = ms.parse().ok()?;
            is_uuid(id).then(|| (ms, id.to_owned()))
        });
        match position {
            Some(position) => Ok(Some(position)),
            None => Err(invalid("Cursor", "is not the NextCursor of a response")),
        }
    }

    /// The filter of the list of some participants. Without a side, both sides are listed.
    pub(super) fn filter(
        &self,
        participants: Vec<String>,
        sides: Vec<Side>,
    ) -> Result<ListFilter, Problem> {
        Ok(ListFilter {
            participants,
            sides: if sides.is_empty() {
                vec![Side::Initiator, Side::Counterparty]
            } else {
                sides
            },
            modified_after: self.timestamp("ModifiedAfter")?,
            modified_before: self.timestamp("ModifiedBefore")?,
            limit: self.limit(LIST_LIMIT_DEFAULT)?,
            after: None,
        })
    }

    /// The sides that two boolean parameters select.
    pub(super) fn sides(&self, initiator: &str, counterparty: &str) -> Result<Vec<Side>, Problem> {
        let (is_initiator, is_counterparty) = (self.flag(initiator)?, self.flag(counterparty)?);
        let mut sides = Vec::new();
        if is_initiator == Some(true) {
            sides.push(Side::Initiator);
        }
        if is_counterparty == Some(true) {
            sides.push(Side::Counterparty);
        }
        // One parameter that is false, and none that is true, selects the other side.
        if sides.is_empty() {
            match (is_initiator, is_counterparty) {
                (Some(false), None) => sides.push(Side::Counterparty),
                (None, Some(false)) => sides.push(Side::Initiator),
                _ => {}
            }
        }
        Ok(sides)
    }
}

fn invalid(name: &str, reason: &str) -> Problem {
    Problem::bad_request(format!("Request parameter '{name}' {reason}"))
}
