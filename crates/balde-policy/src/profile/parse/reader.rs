//! Values that may be references to settings (`"$name"`), and names.

use std::collections::BTreeSet;

use balde_config::{Diagnostics, Value};

use super::NAME_BYTES_MAX;
use crate::profile::{Setting, SettingValue};

/// What a name may consist of, for messages.
pub(super) const NAME_RULE: &str =
    "a name must consist of letters, digits, `.`, `_` and `-`, at most 256";

/// Reads values, resolves the settings that they refer to, and reports problems.
pub(super) struct Reader<'a> {
    pub(super) diagnostics: &'a mut Diagnostics,
    settings: &'a [Setting],
    used: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(settings: &'a [Setting], diagnostics: &'a mut Diagnostics) -> Self {
        Self {
            diagnostics,
            settings,
            used: BTreeSet::new(),
        }
    }

    /// Reports settings that nothing refers to. With an adapter (`api`) they may still be used.
    pub(super) fn report_unused_settings(&mut self) {
        for setting in self.settings {
            if !self.used.contains(setting.name())
                && let Some(span) = setting.span()
            {
                let message = format!("nothing refers to the setting `{}`", setting.name());
                self.diagnostics.at(span, message);
            }
        }
    }

    /// A string, or the setting that it refers to.
    pub(super) fn string(&mut self, value: &Value<'_>) -> Option<Box<str>> {
        if !is_reference(value) {
            return value.string(self.diagnostics).map(|text| text.value.into());
        }
        if let SettingValue::Text(text) = self.setting(value)? {
            return Some(text.clone());
        }
        self.diagnostics
            .at(value.span(), "the setting must be a string");
        None
    }

    /// An integer up to `max`, or the setting that it refers to. A setting that is true is 1.
    pub(super) fn integer(&mut self, value: &Value<'_>, max: u64) -> Option<u64> {
        if !is_reference(value) {
            let integer = value.integer(0..=max, self.diagnostics);
            return integer.map(|integer| integer.value);
        }
        let number = match self.setting(value)? {
            SettingValue::Number(number) => Some(*number),
            SettingValue::Bool(is_one) => Some(u64::from(*is_one)),
            _ => None,
        };
        if let Some(number) = number.filter(|number| *number <= max) {
            return Some(number);
        }
        let message = format!("the setting must be an integer between 0 and {max}");
        self.diagnostics.at(value.span(), message);
        None
    }

    /// A name: letters, digits, `.`, `_` and `-`.
    pub(super) fn name(&mut self, value: &Value<'_>) -> Option<Box<str>> {
        let text = value.string(self.diagnostics)?;
        if is_name(text.value) {
            return Some(text.value.into());
        }
        self.diagnostics.at(text.span, NAME_RULE);
        None
    }

    /// Notes the keys of a table that are not among the names that were read from it, so that
    /// references to them are no further problems.
    pub(super) fn note_failed(
        &mut self,
        kind: &'static str,
        table: Option<Value<'_>>,
        names: &[&str],
    ) {
        let Some(table) = table else { return };
        let Some(keys) = table.keys() else {
            self.diagnostics.failed(kind, None);
            return;
        };
        for key in keys.iter().filter(|key| !names.contains(key)) {
            self.diagnostics.failed(kind, Some(key));
        }
    }

    /// The setting that a reference names.
    fn setting(&mut self, value: &Value<'_>) -> Option<&'a SettingValue> {
        let name = value.as_str()?.strip_prefix('$')?;
        self.used.insert(name.to_owned());
        let found = self.settings.iter().find(|setting| setting.name() == name);
        if found.is_none() {
            let shown = name.escape_debug();
            let message = format!("there is no setting `{shown}` in [settings]");
            let span = value.span();
            self.diagnostics.unknown("setting", name, span, message);
        }
        found.map(Setting::value)
    }
}

pub(super) fn is_reference(value: &Value<'_>) -> bool {
    value.as_str().is_some_and(|text| text.starts_with('$'))
}

pub(super) fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_allowed)
}
