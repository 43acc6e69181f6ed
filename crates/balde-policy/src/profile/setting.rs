//! Questions that a profile leaves to whoever runs it, with an answer.

use super::Place;

/// A named answer to an open question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    name: Box<str>,
    value: SettingValue,
    place: Option<Place>,
}

/// What a setting may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Number(u64),
    /// A word.
    Text(Box<str>),
    /// Whole numbers.
    Numbers(Vec<u64>),
}

impl Setting {
    /// A setting that was not read from a file.
    pub fn new(name: impl Into<Box<str>>, value: SettingValue) -> Self {
        Self {
            name: name.into(),
            value,
            place: None,
        }
    }

    pub(super) fn at(self, place: Place) -> Self {
        Self {
            place: Some(place),
            ..self
        }
    }

    pub(super) fn overridden(self, value: SettingValue) -> Self {
        Self {
            value,
            place: None,
            ..self
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &SettingValue {
        &self.value
    }

    /// Where the file says so; nothing for one that was given from outside.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }
}
