//! Named values of a profile that its users can change without editing the policies.

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
    /// Creates a setting that was not read from a file.
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

    /// The setting's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The setting's value.
    pub fn value(&self) -> &SettingValue {
        &self.value
    }

    /// Where the value is in the file; `None` for a value that is not from the file.
    pub const fn span(&self) -> Option<Span> {
        self.span
    }
}
