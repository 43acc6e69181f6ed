//! The sections `[alerts]` and `[severities]`: when alerts fire, and which kinds of sink each severity
//! goes to.

use std::time::Duration;

use balde_config::{Diagnostics, Located, Section, Value};

use crate::alert::{AlertRule, AlertRules, Routes, SinkClass, StalenessRule};
use crate::analyse::SettingsByPolicy;
use crate::analyse::{AnalysisSettings, Confidence};
use crate::severity::{Severity, Thresholds};
use crate::sink::{Language, Wording};

/// The longest duration of a key: thirty days.
const DURATION_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Keys whose names have changed otherwise than by their unit.
const RENAMED: [(&str, &str); 6] = [
    ("band_pct", "hysteresis"),
    ("calm_s", "resolve_after"),
    ("predicted_as", "predicted_severity"),
    ("stale_as", "stale_severity"),
    ("changed_as", "changed_severity"),
    ("credited", "credited_policies"),
];

pub(super) struct Alerts {
    pub(super) rules: AlertRules,
    pub(super) staleness: StalenessRule,
    pub(super) analysis: SettingsByPolicy,
    pub(super) wording: Wording,
}

const LANGUAGES: [(&str, Language); 2] =
    [("en", Language::English), ("pt-BR", Language::Portuguese)];

const SEVERITIES: [(&str, Severity); 3] = [
    ("WARNING", Severity::Warning),
    ("CRITICAL", Severity::Critical),
    ("EXHAUSTED", Severity::Exhausted),
];

/// Reads `[alerts]`. `policies` are the names that exist; `None` if any may.
pub(super) fn read(
    section: Option<Section<'_>>,
    analysis: &AnalysisSettings,
    policies: Option<&[String]>,
    diagnostics: &mut Diagnostics,
) -> Alerts {
    let mut alerts = Alerts {
        rules: AlertRules::default(),
        staleness: StalenessRule::default(),
        analysis: SettingsByPolicy::default().with_settings(analysis),
        wording: Wording::default(),
    };
    let Some(mut section) = section else {
        return alerts;
    };
    let defaults = read_numbers(&mut section, Numbers::default(), diagnostics);
    alerts.rules = AlertRules::new(defaults.rule(&section, diagnostics));
    if let Some(us) = micros(&mut section, "stale_after", 1, diagnostics) {
        alerts.staleness.stale_after_us = us;
    }
    if let Some(severity) = section.choice("stale_severity", &SEVERITIES, diagnostics) {
        alerts.staleness.stale_severity = severity.value;
    }
    if let Some(severity) = section.choice("changed_severity", &SEVERITIES, diagnostics) {
        alerts.staleness.changed_severity = severity.value;
    }
    alerts.wording = read_wording(&mut section, diagnostics);
    if section.get("credited_policies").is_some() {
        let names = section.strings("credited_policies", diagnostics);
        for name in &names {
            let is_part = |policy: &String| policy.contains(name.value);
            if policies.is_some_and(|policies| !policies.iter().any(is_part)) {
                let message = format!("no policy of DICT has {:?} in its name", name.value);
                diagnostics.at(name.span, message);
            }
        }
        let names = names.into_iter().map(|name| name.value.to_owned());
        alerts.analysis = SettingsByPolicy::new(analysis, names.collect());
    }
    if let Some(by_policy) = section.table("policy", diagnostics) {
        for entry in by_policy.entries() {
            if let Some(policies) = policies {
                check_policy(&entry, policies, diagnostics);
            }
            let Some(mut policy) = entry.table(diagnostics) else {
                continue;
            };
            let numbers = read_numbers(&mut policy, defaults, diagnostics);
            let rule = numbers.rule(&policy, diagnostics);
            policy.renamed(&RENAMED);
            policy.finish(diagnostics);
            alerts.rules = alerts.rules.with_policy(entry.key(), rule);
        }
    }
    section.renamed(&RENAMED);
    section.finish(diagnostics);
    alerts
}

fn read_wording(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Wording {
    let language = section.choice("language", &LANGUAGES, diagnostics);
    let wording = Wording::new(language.map(|language| language.value).unwrap_or_default());
    let Some(url) = section.string("runbook_url", diagnostics) else {
        return wording;
    };
    let is_address = url.value.starts_with("https://") || url.value.starts_with("http://");
    if !is_address || url.value.contains(|c: char| c == '#' || c.is_whitespace()) {
        let message = "expected an http:// or https:// address without `#`: the alert's is added";
        diagnostics.at(url.span, message);
        return wording;
    }
    wording.runbook_url(url.value)
}

/// Reports the name of a policy that does not exist: its rule would never apply.
fn check_policy(entry: &Value<'_>, policies: &[String], diagnostics: &mut Diagnostics) {
    let name = entry.key();
    if policies.iter().any(|policy| policy == name) {
        return;
    }
    let known: Vec<&str> = policies.iter().map(String::as_str).collect();
    let advice = match balde_config::nearest(name, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the policies are {}", known.join(", ")),
    };
    let name = name.escape_debug();
    diagnostics.at(
        entry.key_span(),
        format!("DICT has no policy `{name}`; {advice}"),
    );
}

/// The numbers of an alert rule, before they are validated together.
#[derive(Clone, Copy)]
struct Numbers {
    warning_pct: u32,
    critical_pct: u32,
    exhausted_pct: u32,
    band_pct: u32,
    rule: AlertRule,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            warning_pct: 25,
            critical_pct: 10,
            exhausted_pct: 0,
            band_pct: 5,
            rule: AlertRule::default(),
        }
    }
}

impl Numbers {
    fn rule(self, section: &Section<'_>, diagnostics: &mut Diagnostics) -> AlertRule {
        let bp = |percent: u32| percent * 100;
        let (warning, critical) = (bp(self.warning_pct), bp(self.critical_pct));
        let thresholds = Thresholds::new(warning, critical, bp(self.band_pct));
        let exhausted = bp(self.exhausted_pct);
        match thresholds.and_then(|thresholds| thresholds.with_exhausted(exhausted)) {
            Ok(thresholds) => self.rule.with_thresholds(thresholds),
            Err(error) => {
                diagnostics.at(section.span(), error.to_string());
                self.rule
            }
        }
    }
}

/// Reads the numbers of a section; keys that are not there keep the value of `defaults`.
fn read_numbers(
    section: &mut Section<'_>,
    defaults: Numbers,
    diagnostics: &mut Diagnostics,
) -> Numbers {
    let mut numbers = defaults;
    for (key, field) in [
        ("warning", &mut numbers.warning_pct),
        ("critical", &mut numbers.critical_pct),
        ("exhausted", &mut numbers.exhausted_pct),
        ("hysteresis", &mut numbers.band_pct),
    ] {
        if let Some(percent) = section.percent(key, 0..=99, diagnostics) {
            *field = u32::try_from(percent.value).unwrap_or(99);
        }
    }
    if let Some(us) = micros(section, "resolve_after", 0, diagnostics) {
        numbers.rule = numbers.rule.with_resolve_after_us(us);
    }
    let words = [
        ("low", Confidence::Low),
        ("medium", Confidence::Medium),
        ("high", Confidence::High),
    ];
    let within_us = micros(section, "predict_within", 0, diagnostics);
    let confidence = section.choice("predict_confidence", &words, diagnostics);
    let severity = section.choice("predicted_severity", &SEVERITIES, diagnostics);
    let rule = numbers.rule;
    numbers.rule = rule.with_predictions(
        within_us.unwrap_or(rule.predict_within_us()),
        confidence.map_or(rule.predict_confidence(), |word| word.value),
        severity.map_or(rule.predicted_severity(), |word| word.value),
    );
    let confirm_us = micros(section, "predict_confirm", 0, diagnostics);
    let below_pct = section.percent("predict_below", 0..=100, diagnostics);
    let below_bp = below_pct.and_then(|percent| u32::try_from(percent.value * 100).ok());
    numbers.rule = numbers.rule.with_confirmation(
        confirm_us.unwrap_or(rule.confirm_after_us()),
        below_bp.unwrap_or(rule.confirm_below_bp()),
    );
    if let Some(us) = micros(section, "page_within", 0, diagnostics) {
        numbers.rule = numbers.rule.with_page_within_us(us);
    }
    for (key, severity) in [
        ("remind_warning", Severity::Warning),
        ("remind_critical", Severity::Critical),
        ("remind_exhausted", Severity::Exhausted),
    ] {
        if let Some(us) = micros(section, key, 0, diagnostics) {
            let every_us = (us > 0).then_some(us);
            numbers.rule = numbers.rule.with_reminders(severity, every_us);
        }
    }
    numbers
}

/// A duration in microseconds, of `least_s` seconds or more.
fn micros(
    section: &mut Section<'_>,
    key: &'static str,
    least_s: u64,
    diagnostics: &mut Diagnostics,
) -> Option<u64> {
    let range = Duration::from_secs(least_s)..=DURATION_MAX;
    let duration = section.duration(key, range, diagnostics)?.value;
    u64::try_from(duration.as_micros()).ok()
}

pub(super) fn read_routes(section: Option<Section<'_>>, diagnostics: &mut Diagnostics) -> Routes {
    let mut routes = Routes::default();
    let Some(mut section) = section else {
        return routes;
    };
    for (name, severity) in SEVERITIES {
        if section.get(name).is_none() {
            continue;
        }
        let words = section.strings(name, diagnostics);
        routes = routes.with(severity, sink_classes(&words, diagnostics));
    }
    if section.get("PREDICTED").is_some() {
        let words = section.strings("PREDICTED", diagnostics);
        routes = routes.with_forecasts(sink_classes(&words, diagnostics));
    }
    section.finish(diagnostics);
    routes
}

/// The classes that words name; a word that names none is reported.
pub(super) fn sink_classes(
    words: &[Located<&str>],
    diagnostics: &mut Diagnostics,
) -> Vec<SinkClass> {
    let mut classes = Vec::new();
    for word in words {
        match sink_class(word.value) {
            Some(class) => classes.push(class),
            None => diagnostics.at(
                word.span,
                "expected log, event, gauge, page, page_urgent, chat or incident",
            ),
        }
    }
    classes
}

fn sink_class(name: &str) -> Option<SinkClass> {
    Some(match name {
        "log" => SinkClass::Log,
        "event" => SinkClass::Event,
        "gauge" => SinkClass::Gauge,
        "page" => SinkClass::Page,
        "page_urgent" => SinkClass::PageUrgent,
        "chat" => SinkClass::Chat,
        "incident" => SinkClass::Incident,
        _ => return None,
    })
}
