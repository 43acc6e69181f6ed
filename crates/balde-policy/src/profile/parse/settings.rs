//! The section `[settings]`, and values from outside the file that override it.

use balde_config::{Diagnostics, Value};

use super::reader::{NAME_RULE, is_name};
use crate::profile::{Setting, SettingValue};

/// The most settings of a profile.
const SETTINGS_MAX: usize = 128;

pub(super) fn read(
    value: Option<Value<'_>>,
    overrides: &[(&str, &str)],
    diagnostics: &mut Diagnostics,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    let section = value.and_then(|value| value.table(diagnostics));
    for entry in section.map(|section| section.entries()).unwrap_or_default() {
        if settings.len() == SETTINGS_MAX {
            let message = format!("a profile has at most {SETTINGS_MAX} settings");
            diagnostics.at(entry.key_span(), message);
            break;
        }
        if !is_name(entry.key()) {
            diagnostics.at(entry.key_span(), NAME_RULE);
        } else if let Some(value) = read_value(&entry, diagnostics) {
            settings.push(Setting::new(entry.key(), value).at(entry.span()));
        }
    }
    for (name, text) in overrides {
        override_one(&mut settings, name, text, diagnostics);
    }
    settings
}

fn read_value(value: &Value<'_>, diagnostics: &mut Diagnostics) -> Option<SettingValue> {
    if let Some(text) = value.as_str() {
        return Some(SettingValue::Text(text.into()));
    }
    if value.is_boolean() {
        let boolean = value.boolean(diagnostics)?;
        return Some(SettingValue::Bool(boolean.value));
    }
    if value.is_integer() {
        let integer = value.integer(0..=u64::MAX, diagnostics)?;
        return Some(SettingValue::Number(integer.value));
    }
    if value.is_array() {
        let mut numbers = Vec::new();
        for item in value.array(diagnostics)? {
            numbers.push(item.integer(0..=u64::MAX, diagnostics)?.value);
        }
        return Some(SettingValue::Numbers(numbers));
    }
    value.mismatch(
        "a boolean, an integer, a string or an array of integers",
        diagnostics,
    );
    None
}

fn override_one(settings: &mut [Setting], name: &str, text: &str, diagnostics: &mut Diagnostics) {
    let Some(setting) = settings.iter_mut().find(|setting| setting.name() == name) else {
        let name = name.escape_debug();
        diagnostics.at(None, format!("the profile has no setting `{name}`"));
        return;
    };
    let value = match setting.value() {
        SettingValue::Bool(_) => text.parse().ok().map(SettingValue::Bool),
        SettingValue::Number(_) => text.parse().ok().map(SettingValue::Number),
        SettingValue::Text(_) => Some(SettingValue::Text(Box::from(text))),
        SettingValue::Numbers(_) => {
            let items = text.split(',').filter(|item| !item.trim().is_empty());
            let numbers: Result<Vec<u64>, _> = items.map(|item| item.trim().parse()).collect();
            numbers.ok().map(SettingValue::Numbers)
        }
    };
    if let Some(value) = value {
        *setting = setting.clone().overridden(value);
        return;
    }
    let expected = match setting.value() {
        SettingValue::Bool(_) => "true or false",
        SettingValue::Numbers(_) => "integers separated by commas",
        _ => "an integer",
    };
    diagnostics.at(None, format!("setting `{name}`: expected {expected}"));
}
