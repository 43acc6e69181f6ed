//! A value of a file, and its conversion to the expected type.

use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;

use toml::Spanned;
use toml::de::DeValue;

use crate::diagnostic::Diagnostics;
use crate::source::Span;

/// A value and its position in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its position in the file.
    pub span: Span,
}

impl<T> Located<T> {
    /// Converts the value and keeps its span.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Located<U> {
        Located {
            value: convert(self.value),
            span: self.span,
        }
    }
}

/// A value of a file: that of a key, or an item of an array.
///
/// Methods that take [`Diagnostics`] report a value of another type and return `None`.
#[derive(Clone)]
pub struct Value<'a> {
    /// The key, or that of the array.
    pub(super) key: &'a str,
    pub(super) key_span: Span,
    pub(super) is_item: bool,
    /// The keys of all tables around it, and its own, with dots between them.
    pub(super) path: Rc<str>,
    pub(super) parsed: &'a Spanned<DeValue<'a>>,
}

impl<'a> Value<'a> {
    /// The key of the value; for an item of an array, the key of the array.
    pub const fn key(&self) -> &'a str {
        self.key
    }

    /// The position of the key; for an item of an array, the position of the item.
    pub const fn key_span(&self) -> Span {
        self.key_span
    }

    /// The position of the value in the file, as a range of bytes.
    pub fn span(&self) -> Span {
        self.parsed.span().into()
    }

    /// The string, if the value is one.
    pub fn as_str(&self) -> Option<&'a str> {
        self.parsed.get_ref().as_str()
    }

    /// The keys of the value, if it is a table; `None` otherwise.
    pub fn keys(&self) -> Option<Vec<&'a str>> {
        let table = self.parsed.get_ref().as_table()?;
        Some(table.keys().map(|key| &**key.get_ref()).collect())
    }

    /// The number, if the value is a decimal integer that is not negative.
    pub(super) fn as_number(&self) -> Option<u64> {
        let integer = self.parsed.get_ref().as_integer()?;
        integer.as_str().parse().ok()
    }

    /// The items, if the value is an array.
    pub(super) fn items(&self) -> Option<Vec<Value<'a>>> {
        let array = self.parsed.get_ref().as_array()?;
        let item = |parsed| Value {
            is_item: true,
            parsed,
            ..self.clone()
        };
        Some(array.iter().map(item).collect())
    }

    /// Whether the value is an integer.
    pub fn is_integer(&self) -> bool {
        self.parsed.get_ref().is_integer()
    }

    /// Whether the value is a boolean.
    pub fn is_boolean(&self) -> bool {
        self.parsed.get_ref().is_bool()
    }

    /// Whether the value is an array.
    pub fn is_array(&self) -> bool {
        self.parsed.get_ref().is_array()
    }

    /// Whether the value is a table.
    pub fn is_table(&self) -> bool {
        self.parsed.get_ref().is_table()
    }

    /// The value as a string.
    pub fn string(&self, diagnostics: &mut Diagnostics) -> Option<Located<&'a str>> {
        let string = self.as_str();
        self.checked(string, "a string", diagnostics)
    }

    /// The value as an integer. One outside of `range` is reported.
    pub fn integer(
        &self,
        range: RangeInclusive<u64>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<u64>> {
        let integer = self.parsed.get_ref().as_integer();
        let integer = self.checked(integer, "an integer", diagnostics)?.value;
        let digits = integer.as_str();
        let digits = digits.strip_prefix('+').unwrap_or(digits);
        let number = u64::from_str_radix(digits, integer.radix()).ok();
        let Some(number) = number.filter(|number| range.contains(number)) else {
            let (least, most) = range.into_inner();
            let subject = self.subject();
            let message = if most == u64::MAX {
                format!("{subject} must be at least {least}")
            } else {
                format!("{subject} must be between {least} and {most}")
            };
            diagnostics.at(self.span(), message);
            return None;
        };
        Some(self.located(number))
    }

    /// A decimal integer or float as it was written. It is never converted to a float, so no digit
    /// is lost.
    pub fn decimal(&self, diagnostics: &mut Diagnostics) -> Option<Located<&'a str>> {
        let digits = match self.parsed.get_ref() {
            DeValue::Integer(integer) if integer.radix() == 10 => Some(integer.as_str()),
            DeValue::Float(float) => Some(float.as_str()),
            _ => None,
        };
        self.checked(digits, "a decimal number", diagnostics)
    }

    /// The value as a boolean.
    pub fn boolean(&self, diagnostics: &mut Diagnostics) -> Option<Located<bool>> {
        let boolean = self.parsed.get_ref().as_bool();
        self.checked(boolean, "true or false", diagnostics)
    }

    /// The value as one of `words`: returns what the word stands for.
    pub fn choice<T: Copy>(
        &self,
        words: &[(&str, T)],
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<T>> {
        let string = self.string(diagnostics)?;
        let found = words.iter().find(|(word, _)| *word == string.value);
        if found.is_none() {
            let words: Vec<String> = words
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            let message = format!("{} must be {}", self.subject(), either(&words));
            diagnostics.at(string.span, message);
        }
        found.map(|(_, meaning)| string.map(|_| *meaning))
    }

    /// The items of an array.
    pub fn array(&self, diagnostics: &mut Diagnostics) -> Option<Vec<Self>> {
        let array = self.parsed.get_ref().as_array();
        let array = self.checked(array, "an array", diagnostics)?.value;
        let item = |value: &'a Spanned<DeValue<'a>>| Self {
            key: self.key,
            key_span: value.span().into(),
            is_item: true,
            path: self.path.clone(),
            parsed: value,
        };
        Some(array.iter().map(item).collect())
    }

    /// The items of an array of strings. Items of another type are reported and left out.
    pub fn strings(&self, diagnostics: &mut Diagnostics) -> Vec<Located<&'a str>> {
        let items = self.array(diagnostics).unwrap_or_default();
        let strings = items.iter().filter_map(|item| item.string(diagnostics));
        strings.collect()
    }

    /// Reports that the value is not what was `expected`.
    pub fn mismatch(&self, expected: &str, diagnostics: &mut Diagnostics) {
        let found = match self.parsed.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let message = format!("{} must be {expected}, not {found}", self.subject());
        diagnostics.at(self.span(), message);
    }

    pub(super) fn checked<T>(
        &self,
        value: Option<T>,
        expected: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<T>> {
        if value.is_none() {
            self.mismatch(expected, diagnostics);
        }
        value.map(|value| self.located(value))
    }

    fn located<T>(&self, value: T) -> Located<T> {
        Located {
            value,
            span: self.span(),
        }
    }

    pub(super) fn subject(&self) -> String {
        let key = shortened(self.key);
        if self.is_item {
            format!("an item of `{key}`")
        } else {
            format!("`{key}`")
        }
    }
}

/// A name from a file, fit for a message.
pub(super) fn shortened(name: &str) -> String {
    name.chars().take(64).flat_map(char::escape_debug).collect()
}

/// `a`, `a or b`, `a, b or c`.
fn either(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a secret.
        f.debug_struct("Value")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
