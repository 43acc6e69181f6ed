//! Parameters of lists.

use balde_policy::query_pairs;

use crate::directory::{LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, ListFilter, Side};
use crate::wire::{Problem, Timestamp};

/// The parameters of a query.
pub(super) struct Query<'q>(&'q str);

impl<'q> Query<'q> {
    pub(super) fn new(query: &'q str) -> Self {
        Self(query)
    }

    /// A parameter's first value, if it is there and not empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let mut pairs = query_pairs(self.0);
        let found = pairs.find(|(other, _)| other == name);
        found
            .map(|(_, value)| value.into_owned())
            .filter(|value| !value.is_empty())
    }

    /// A word, which must be known if it is there.
    pub(super) fn word<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        match self.text(name) {
            None => Ok(None),
            Some(text) => read(&text)
                .map(Some)
                .ok_or_else(|| wrong(name, "is none of the known words")),
        }
    }

    /// Whether a flag is true; nothing, where it is not there.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        self.word(name, |text| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        })
    }

    /// A moment, if it is there.
    pub(super) fn moment(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        match self.text(name) {
            None => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| wrong(name, "is no moment such as 2020-01-10T10:00:00.000Z")),
        }
    }

    /// How many to show.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        match self.text("Limit") {
            None => Ok(LIST_LIMIT_DEFAULT),
            Some(text) => match text.parse() {
                Ok(limit) if (1..=LIST_LIMIT_MAX).contains(&limit) => Ok(limit),
                _ => Err(wrong("Limit", "is not 1 to 200")),
            },
        }
    }

    /// What a list of a participant's shows: the sides that are asked for; both, where none is.
    pub(super) fn filter(
        &self,
        participant: &str,
        sides: Vec<Side>,
    ) -> Result<ListFilter, Problem> {
        Ok(ListFilter {
            participant: participant.to_owned(),
            sides: if sides.is_empty() {
                vec![Side::Initiator, Side::Counterparty]
            } else {
                sides
            },
            modified_after: self.moment("ModifiedAfter")?,
            modified_before: self.moment("ModifiedBefore")?,
            limit: self.limit()?,
        })
    }

    /// The sides that two flags ask for.
    pub(super) fn sides(&self, beginner: &str, other: &str) -> Result<Vec<Side>, Problem> {
        let (is_beginner, is_other) = (self.flag(beginner)?, self.flag(other)?);
        let mut sides = Vec::new();
        if is_beginner == Some(true) {
            sides.push(Side::Initiator);
        }
        if is_other == Some(true) {
            sides.push(Side::Counterparty);
        }
        // One that is false and none that is true asks for the other side.
        if sides.is_empty() {
            match (is_beginner, is_other) {
                (Some(false), None) => sides.push(Side::Counterparty),
                (None, Some(false)) => sides.push(Side::Initiator),
                _ => {}
            }
        }
        Ok(sides)
    }
}

fn wrong(name: &str, what: &str) -> Problem {
    Problem::bad_request(format!("Request parameter '{name}' {what}"))
}
