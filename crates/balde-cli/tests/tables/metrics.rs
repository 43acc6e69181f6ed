//! The tables of metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::pages::{files, literals, names, read, repository, sources};

/// The families of metrics: their crate, the prefix of their names, and the page with their table.
const METRICS: [(&str, &str, &str); 6] = [
    ("balde", "rate_limiter_", "docs/telemetry.md"),
    ("balde-throttle", "throttle_", "docs/throttle.md"),
    ("balde-gateway", "gateway_", "docs/gateway.md"),
    ("balde-service", "balde_service_", "docs/service.md"),
    ("balde-monitor", "balde_monitor_", "docs/monitor.md"),
    ("balde-monitor", "dict_rate_limit_", "docs/monitor.md"),
];

/// Events of the throttler's log have the same prefix as its metrics, which are no metrics.
pub(crate) fn events(crate_name: &str) -> BTreeSet<String> {
    let mut events = BTreeSet::new();
    for text in sources(crate_name) {
        for rest in text.split("event_type = \"").skip(1) {
            events.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    events
}

/// The names that the exposition gives to a metric which the code registers under `name`.
fn exposed(name: &str) -> [String; 5] {
    [
        name.to_owned(),
        format!("{name}_ratio"),
        format!("{name}_total"),
        format!("{name}_ms"),
        format!("{name}_seconds"),
    ]
}

fn registered(crate_name: &str, prefix: &str) -> BTreeSet<String> {
    let events = events(crate_name);
    let mut registered = BTreeSet::new();
    for text in sources(crate_name) {
        // What comes after the first test module is not registered.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code: String = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        let found = literals(&code).into_iter();
        registered.extend(
            found
                .filter(|name| name.starts_with(prefix))
                .map(str::to_owned),
        );
    }
    registered.retain(|name| !events.contains(name));
    registered
}

#[test]
fn every_metric_is_in_the_table_of_its_page() {
    for (crate_name, prefix, page) in METRICS {
        let registered = registered(crate_name, prefix);
        assert!(registered.len() > 3, "{prefix}: {registered:?}");
        let text = read(page);
        let rows: String = text.lines().filter(|line| line.starts_with('|')).collect();
        let shown = names(&rows, &[prefix]);
        let missing: Vec<&String> = registered
            .iter()
            .filter(|name| !exposed(name).iter().any(|own| shown.contains(own.as_str())))
            .collect();
        assert!(missing.is_empty(), "{page} has no row for {missing:?}");
    }
}

#[test]
fn every_metric_of_pages_rules_and_dashboards_exists() {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for (crate_name, prefix, _) in METRICS {
        for name in registered(crate_name, prefix) {
            for own in exposed(&name) {
                // The series of a histogram.
                known.extend(["_bucket", "_sum", "_count"].map(|end| format!("{own}{end}")));
                known.insert(own);
            }
        }
        known.extend(events(crate_name));
    }
    let root = repository();
    let mut pages = files(&root.join("docs"), ".md");
    pages.extend(files(&root.join("deploy"), ".yml"));
    pages.extend(files(&root.join("deploy/grafana"), ".json"));
    let prefixes = METRICS.map(|(_, prefix, _)| prefix);
    let mut unknown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for name in names(&text, &prefixes) {
            // `rate_limiter_…` and other beginnings.
            let is_beginning = name.ends_with('_');
            if !is_beginning && !known.contains(name) {
                let page = page.strip_prefix(&root).unwrap().display().to_string();
                unknown.entry(page).or_default().insert(name.to_owned());
            }
        }
    }
    assert!(unknown.is_empty(), "no code registers {unknown:#?}");
}
