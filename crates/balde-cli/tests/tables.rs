//! The tables of the pages say what the code does: metrics, features, events of the log, reasons of
//! failures, DICT's settings with their defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use balde_policy::SettingValue;

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    let file = repository().join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// All files below a folder whose names end like this.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The texts of a crate's sources.
fn sources(name: &str) -> Vec<String> {
    let folder = repository().join("crates").join(name).join("src");
    let texts = files(&folder, ".rs").into_iter();
    texts
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Words of small letters and underscores that begin with one of these.
fn names<'t>(text: &'t str, prefixes: &[&str]) -> BTreeSet<&'t str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()));
    let is_name = |word: &&str| prefixes.iter().any(|prefix| word.starts_with(prefix));
    words.filter(is_name).collect()
}

/// String literals that are one word.
fn literals(text: &str) -> BTreeSet<&str> {
    let parts = text.split('"');
    let is_word = |part: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        !part.is_empty() && part.bytes().all(is_letter)
    };
    parts.filter(is_word).collect()
}

/// The first cells of a page's tables, with what stands between backticks in them.
fn first_cells(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    spans.map(str::to_owned).collect()
}

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
fn events(crate_name: &str) -> BTreeSet<String> {
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

/// The names below `[features]` in a manifest.
fn features(crate_name: &str) -> BTreeSet<String> {
    let manifest = read(&format!("crates/{crate_name}/Cargo.toml"));
    let (_, from) = manifest.split_once("[features]\n").unwrap();
    let section = from.split("\n[").next().unwrap_or_default();
    let keys = section.lines().filter_map(|line| line.split_once(" = "));
    let keys = keys.map(|(key, _)| key.to_owned());
    keys.filter(|key| !key.starts_with('#') && key != "default" && !key.starts_with('_'))
        .collect()
}

#[test]
fn feature_tables_are_those_of_the_manifests() {
    let mut compared = 0;
    for folder in fs::read_dir(repository().join("crates")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let Ok(readme) =
            fs::read_to_string(repository().join("crates").join(&name).join("README.md"))
        else {
            continue;
        };
        let Some((_, from)) = readme.split_once("## Features\n") else {
            continue;
        };
        let section = from.split("\n## ").next().unwrap();
        assert_eq!(
            first_cells(section),
            features(&name),
            "crates/{name}/README.md"
        );
        compared += 1;
    }
    assert!(compared > 0, "no table of features was found");
}

#[test]
fn events_of_the_log_are_those_of_the_table() {
    let page = read("docs/telemetry.md");
    let (_, from) = page
        .split_once("| `event_type` |")
        .expect("the table of events");
    let table: Vec<&str> = from
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let shown = first_cells(&table.join("\n"));
    assert!(shown.len() > 5, "{shown:?}");
    let logged = events("balde");
    let missing: Vec<_> = logged.difference(&shown).collect();
    assert!(
        missing.is_empty(),
        "docs/telemetry.md has no row for {missing:?}"
    );
    // Lines about decisions get their names from a macro's arguments.
    let all: String = sources("balde").concat();
    let literals = literals(&all);
    for event in &shown {
        assert!(literals.contains(event.as_str()), "nothing logs {event}");
    }
}

#[test]
fn reasons_of_failed_calls_are_in_the_rules_and_in_the_runbook() {
    let failures = read("crates/balde/src/failure.rs");
    let (_, from) = failures.split_once("pub const fn as_str").unwrap();
    let reasons = literals(from.split("\n    }\n").next().unwrap());
    assert!(reasons.len() > 5, "{reasons:?}");
    let telemetry = read("docs/telemetry.md");
    for reason in &reasons {
        assert!(
            telemetry.contains(&format!("`{reason}`")),
            "docs/telemetry.md: {reason}"
        );
    }
    let rules = read("deploy/prometheus/balde-limits-rules.yml");
    let (_, from) = rules.split_once("reason=~\"").unwrap();
    let alerted: BTreeSet<&str> = from.split('"').next().unwrap().split('|').collect();
    assert!(alerted.is_subset(&reasons), "{alerted:?}");
    for page in ["docs/runbook.md", "docs/pt-BR/runbook.md"] {
        let text = read(page);
        let (_, from) = text.split_once("## RateLimiterBackendRejects\n").unwrap();
        let section = from.split("\n## ").next().unwrap();
        for reason in &alerted {
            assert!(section.contains(&format!("`{reason}`")), "{page}: {reason}");
        }
    }
}

#[test]
fn dicts_settings_and_their_defaults_are_those_of_the_profile() {
    let page = read("docs/dict.md");
    let (_, from) = page.split_once("| Setting | Default |").unwrap();
    let rows = from
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut shown = BTreeMap::new();
    for row in rows {
        let mut cells = row.split('|').map(|cell| cell.trim().replace('`', ""));
        let (name, default) = (cells.nth(1).unwrap(), cells.next().unwrap());
        shown.insert(name, default);
    }
    let profile = balde_dict::profiles::default();
    let mut known = BTreeMap::new();
    for setting in profile.settings() {
        let value = match setting.value() {
            SettingValue::Text(text) => text.to_string(),
            SettingValue::Number(number) => number.to_string(),
            SettingValue::Bool(is_set) => is_set.to_string(),
            SettingValue::Numbers(numbers) => format!("{numbers:?}"),
        };
        known.insert(setting.name().to_owned(), value);
    }
    for (name, value) in &known {
        assert_eq!(shown.get(name), Some(value), "docs/dict.md: {name}");
    }
    let unknown: Vec<_> = shown
        .keys()
        .filter(|name| !known.contains_key(*name))
        .collect();
    assert!(
        unknown.is_empty(),
        "no setting of the profile is called {unknown:?}"
    );
}
