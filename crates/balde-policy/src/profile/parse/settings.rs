//! The table `[settings]`, and answers from outside that take the place of the file's.

use super::reader::{Reader, Value, entries, is_word};
use crate::profile::{Setting, SettingValue};

/// The most settings of a profile.
const SETTINGS_MAX: usize = 128;

pub(super) fn read(
    reader: &mut Reader<'_>,
    value: Option<&Value<'_>>,
    overrides: &[(&str, &str)],
) -> Vec<Setting> {
    let mut settings = Vec::new();
    if let Some(table) = value.and_then(|value| reader.table(value)) {
        for (name, span, value) in entries(table) {
            if settings.len() == SETTINGS_MAX {
                reader.problem(
                    span,
                    format!("a profile has at most {SETTINGS_MAX} settings"),
                );
                break;
            }
            if !is_word(name) {
                reader.problem(
                    span,
                    "a setting's name is made of letters, digits, `_` and `-`",
                );
            } else if let Some(read) = read_value(reader, value) {
                let place = reader.place(value.span());
                settings.push(Setting::new(name, read).at(place));
            }
        }
    }
    for (name, text) in overrides {
        override_one(reader, &mut settings, name, text);
    }
    reader.remember(&settings);
    settings
}

fn read_value(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<SettingValue> {
    let plain = value.get_ref();
    if let Some(flag) = plain.as_bool() {
        return Some(SettingValue::Bool(flag));
    }
    if plain.is_integer() {
        return reader.number(value, u64::MAX).map(SettingValue::Number);
    }
    if let Some(text) = plain.as_str() {
        return Some(SettingValue::Text(text.into()));
    }
    if plain.is_array() {
        let items = reader.array(value).iter();
        let numbers: Option<Vec<u64>> = items.map(|item| reader.number(item, u64::MAX)).collect();
        return numbers.map(SettingValue::Numbers);
    }
    reader.expected(
        value,
        "true, false, a whole number, a text or a list of whole numbers",
    );
    None
}

fn override_one(reader: &mut Reader<'_>, settings: &mut [Setting], name: &str, text: &str) {
    let Some(setting) = settings.iter_mut().find(|setting| setting.name() == name) else {
        let name = name.escape_debug();
        reader.problem_outside(format!("the profile has no setting `{name}`"));
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
    let what = match setting.value() {
        SettingValue::Bool(_) => "true or false",
        SettingValue::Numbers(_) => "whole numbers with commas between",
        _ => "a whole number",
    };
    reader.problem_outside(format!("setting `{name}`: expected {what}"));
}
