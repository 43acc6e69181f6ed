//! By which rules alerts are raised, and which severity does what.

use balde::options::{Faults, Section};

use crate::alert::{AlertRule, AlertRules, Routes, SinkClass, StalenessRule};
use crate::analyse::SettingsByPolicy;
use crate::analyse::{AnalysisSettings, Confidence};
use crate::severity::{Severity, Thresholds};

const SECOND_US: u64 = 1_000_000;

/// The longest time that a setting may name: thirty days.
const SPAN_MAX_S: u64 = 30 * 86_400;

pub(super) struct Alerts {
    pub(super) rules: AlertRules,
    pub(super) staleness: StalenessRule,
    pub(super) analysis: SettingsByPolicy,
}

const SEVERITIES: [(&str, Severity); 3] = [
    ("WARNING", Severity::Warning),
    ("CRITICAL", Severity::Critical),
    ("EXHAUSTED", Severity::Exhausted),
];

pub(super) fn check(section: Option<Section<'_>>, faults: &mut Faults<'_>) -> Alerts {
    let mut alerts = Alerts {
        rules: AlertRules::default(),
        staleness: StalenessRule::default(),
        analysis: SettingsByPolicy::default(),
    };
    let Some(mut section) = section else {
        return alerts;
    };
    let common = rule(&mut section, Numbers::default(), faults);
    alerts.rules = AlertRules::new(common.rule(&section, faults));
    if let Some(us) = seconds(&mut section, "stale_after_s", 1, faults) {
        alerts.staleness.stale_after_us = us;
    }
    if let Some(severity) = section.word("stale_as", &SEVERITIES, faults) {
        alerts.staleness.stale_severity = severity.value;
    }
    if let Some(severity) = section.word("changed_as", &SEVERITIES, faults) {
        alerts.staleness.changed_severity = severity.value;
    }
    if section.any("credited").is_some() {
        let names = section.texts("credited", faults);
        let names = names.into_iter().map(|name| name.value.to_owned());
        alerts.analysis = SettingsByPolicy::new(&AnalysisSettings::default(), names.collect());
    }
    if let Some(policies) = section.table("policy", faults) {
        for (name, mut own) in policies.tables(faults) {
            let numbers = rule(&mut own, common, faults);
            let rule = numbers.rule(&own, faults);
            own.finish(faults);
            alerts.rules = alerts.rules.with_policy(name.value, rule);
        }
    }
    section.finish(faults);
    alerts
}

/// What a rule is made of, before it is one.
#[derive(Clone, Copy)]
struct Numbers {
    warning_pct: u32,
    critical_pct: u32,
    band_pct: u32,
    rule: AlertRule,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            warning_pct: 25,
            critical_pct: 10,
            band_pct: 5,
            rule: AlertRule::default(),
        }
    }
}

impl Numbers {
    fn rule(self, section: &Section<'_>, faults: &mut Faults<'_>) -> AlertRule {
        let bp = |percent: u32| percent * 100;
        let (warning, critical) = (bp(self.warning_pct), bp(self.critical_pct));
        match Thresholds::new(warning, critical, bp(self.band_pct)) {
            Ok(thresholds) => self.rule.with_thresholds(thresholds),
            Err(error) => {
                faults.at(section.span(), error.to_string());
                self.rule
            }
        }
    }
}

/// The numbers of a section; what it does not name is as in `common`.
fn rule(section: &mut Section<'_>, common: Numbers, faults: &mut Faults<'_>) -> Numbers {
    let mut numbers = common;
    for (key, field) in [
        ("warning_pct", &mut numbers.warning_pct),
        ("critical_pct", &mut numbers.critical_pct),
        ("band_pct", &mut numbers.band_pct),
    ] {
        if let Some(percent) = section.number(key, (0, 99), faults) {
            *field = u32::try_from(percent.value).unwrap_or(99);
        }
    }
    if let Some(us) = seconds(section, "calm_s", 0, faults) {
        numbers.rule = numbers.rule.with_resolve_after_us(us);
    }
    let words = [
        ("low", Confidence::Low),
        ("medium", Confidence::Medium),
        ("high", Confidence::High),
    ];
    let within_us = seconds(section, "predict_within_s", 0, faults);
    let confidence = section.word("predict_confidence", &words, faults);
    let severity = section.word("predicted_as", &SEVERITIES, faults);
    let rule = numbers.rule;
    numbers.rule = rule.with_predictions(
        within_us.unwrap_or(rule.predict_within_us()),
        confidence.map_or(rule.predict_confidence(), |word| word.value),
        severity.map_or(rule.predicted_severity(), |word| word.value),
    );
    for (key, severity) in [
        ("remind_warning_s", Severity::Warning),
        ("remind_critical_s", Severity::Critical),
        ("remind_exhausted_s", Severity::Exhausted),
    ] {
        if let Some(us) = seconds(section, key, 0, faults) {
            let every_us = (us > 0).then_some(us);
            numbers.rule = numbers.rule.with_reminders(severity, every_us);
        }
    }
    numbers
}

fn seconds(
    section: &mut Section<'_>,
    key: &'static str,
    least: u64,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let seconds = section.number(key, (least, SPAN_MAX_S), faults)?;
    Some(seconds.value * SECOND_US)
}

pub(super) fn routes(section: Option<Section<'_>>, faults: &mut Faults<'_>) -> Routes {
    let mut routes = Routes::default();
    let Some(mut section) = section else {
        return routes;
    };
    for (name, severity) in SEVERITIES {
        if section.any(name).is_none() {
            continue;
        }
        let mut classes = Vec::new();
        for word in section.texts(name, faults) {
            match class(word.value) {
                Some(class) => classes.push(class),
                None => faults.at(
                    Some(word.span),
                    "there are log, event, gauge, page, page_urgent, chat and incident",
                ),
            }
        }
        routes = routes.with(severity, classes);
    }
    section.finish(faults);
    routes
}

/// The class of a name.
pub(super) fn class(name: &str) -> Option<SinkClass> {
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
