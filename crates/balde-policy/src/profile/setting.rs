//! Named values of a profile that its users may change without touching the policies.

use balde_config::Span;

/// A named value that policies, or the adapter of an API, refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    name: Box<str>,
    value: SettingValue,
    span: Option<Span>,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Number(u64),
    /// A string.
    Text(Box<str>),
    /// A list of integers.
    Numbers(Vec<u64>),
}

impl Setting {
    /// A setting that was not read from a file.
    pub fn new(name: impl Into<Box<str>>, value: SettingValue) -> Self {
        Self {
            name: name.into(),
            value,
            span: None,
        }
    }

    pub(super) fn at(self, span: Span) -> Self {
        Self {
            span: Some(span),
            ..self
        }
    }

    pub(super) fn overridden(self, value: SettingValue) -> Self {
        Self {
            value,
            span: None,
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

    /// Where its value is in the file; nothing for a value from elsewhere.
    pub const fn span(&self) -> Option<Span> {
        self.span
    }
}
