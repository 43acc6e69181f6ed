//! Tables whose rows are names: features, events, kinds, paths, options, alerts, variables.

use std::collections::BTreeSet;
use std::process::Command;

use super::metrics::events;
use super::pages::{
    Table, files, literals, read, repository, snake_case, sources, spans, table, tables, variants,
};

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
    for page in readmes() {
        let Some(table) = tables(&page).into_iter().find(is_table_of_features) else {
            continue;
        };
        let name = page.split('/').nth(1).unwrap();
        assert_eq!(table.spans(0), features(name), "{page}");
        compared += 1;
    }
    assert!(compared >= 4, "only {compared} tables of features");
}

fn is_table_of_features(table: &Table) -> bool {
    table.head == ["Feature", "Adds"]
}

#[test]
fn events_of_the_log_are_those_of_the_table() {
    let shown = table("docs/telemetry.md", "`event_type` |");
    assert!(shown.rows.len() > 5);
    let logged = events("balde");
    let missing: Vec<_> = logged.difference(&shown.spans(0)).cloned().collect();
    assert!(
        missing.is_empty(),
        "docs/telemetry.md has no row for {missing:?}"
    );
    compare_levels("balde", &shown);
}

#[test]
fn events_of_throttlers_have_the_levels_of_the_table() {
    let shown = table("docs/throttle.md", "`event_type` |");
    let all = sources("balde-throttle").concat();
    let is_event = |word: &&str| word.starts_with("throttle_");
    let logged = read("crates/balde-throttle/src/event.rs");
    let logged: BTreeSet<String> = literals(&logged)
        .into_iter()
        .filter(is_event)
        .map(str::to_owned)
        .collect();
    assert!(logged.len() > 3 && !all.is_empty());
    assert_eq!(shown.spans(0), logged);
    compare_levels("balde-throttle", &shown);
}

#[test]
fn log_lines_of_deliveries_are_those_of_the_table() {
    let shown = table("docs/alerts.md", "Log line |");
    let mut logged = BTreeSet::new();
    for file in files(
        &repository().join("crates/balde-monitor/src/delivery"),
        ".rs",
    ) {
        let text = std::fs::read_to_string(file).unwrap();
        for rest in text.split("event_type = \"").skip(1) {
            logged.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    assert!(logged.len() > 5, "{logged:?}");
    assert_eq!(shown.spans(0), logged, "docs/alerts.md");
    compare_levels("balde-monitor", &shown);
}

/// Compares the second column, levels, with the macro around each event's name.
fn compare_levels(crate_name: &str, shown: &Table) {
    let all = sources(crate_name).concat();
    for row in &shown.rows {
        let events = spans(&row[0]);
        let mut levels: Vec<&str> = row[1].split(", ").collect();
        levels.resize(events.len(), levels[0]);
        for (event, level) in events.iter().zip(levels) {
            let literal = format!("\"{event}\"");
            let used = all.match_indices(&literal).map(|(at, _)| &all[..at]);
            let used: Vec<&str> = used.filter_map(level_before).collect();
            assert!(!used.is_empty(), "nothing logs {event}");
            let is_level = |used: &&str| used.eq_ignore_ascii_case(level);
            assert!(
                used.iter().any(is_level),
                "{}: {event} is logged as {used:?}",
                shown.page
            );
        }
    }
}

/// The level that the last macro before a place names, as `warn!(` or as the argument `warn,`.
fn level_before(text: &str) -> Option<&str> {
    let nearby = text.len().saturating_sub(300);
    let nearby = (nearby..text.len()).find(|at| text.is_char_boundary(*at))?;
    let words = text[nearby..].split(|c: char| !(c.is_ascii_lowercase() || c == '!' || c == ','));
    let words = words.filter_map(|word| word.strip_suffix('!').or(word.strip_suffix(',')));
    let mut levels = words.filter(|word| ["error", "warn", "info", "debug"].contains(word));
    levels.next_back()
}

/// The READMEs of all crates.
pub(crate) fn readmes() -> Vec<String> {
    let root = repository();
    let pages = files(&root.join("crates"), "/README.md").into_iter();
    let pages = pages.map(|file| file.strip_prefix(&root).unwrap().display().to_string());
    pages.filter(|page| page.split('/').count() == 3).collect()
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
fn kinds_of_events_are_those_of_the_code() {
    let shown = table("docs/alerts.md", "`kind.type` |");
    let kinds = variants("crates/balde-monitor/src/alert/event.rs", "EventKind");
    let kinds: BTreeSet<String> = kinds.iter().map(|name| snake_case(name)).collect();
    assert_eq!(shown.spans(0), kinds);
    let source = read("crates/balde-monitor/src/alert/event.rs");
    for field in shown.spans(1) {
        assert!(
            source.contains(&field) || source.to_lowercase().contains(&field.replace('_', "")),
            "{field}"
        );
    }
}

#[test]
fn tables_of_values_have_the_variants_of_their_enums() {
    for (page, head, file, name) in [
        (
            "docs/engine.md",
            "Value |",
            "crates/balde-policy/src/engine/builder.rs",
            "InFlight",
        ),
        (
            "docs/redis.md",
            "`OnFailure` |",
            "crates/balde/src/failure.rs",
            "OnFailure",
        ),
        (
            "docs/redis.md",
            "`StoreFailure` |",
            "crates/balde/src/failure.rs",
            "StoreFailure",
        ),
        (
            "docs/http.md",
            "Outcome |",
            "crates/balde/src/http/outcome.rs",
            "Outcome<'a>",
        ),
    ] {
        let shown = table(page, head).spans(0).into_iter();
        let shown: BTreeSet<String> = shown
            .map(|value| value.split([' ', '(']).next().unwrap().to_owned())
            .collect();
        assert_eq!(shown, variants(file, name), "{page}: {head}");
    }
    let roles = table("docs/monitor.md", "Role |").spans(0);
    let known = variants("crates/balde-monitor/src/http/access.rs", "Role");
    assert_eq!(roles, known.iter().map(|role| snake_case(role)).collect());
}

/// A path without its query, and without the name of a part.
fn path(text: &str) -> String {
    let path = text.rsplit(' ').next().unwrap();
    let path = path.split(['?', '[']).next().unwrap();
    path.to_owned()
}

#[test]
fn paths_of_the_monitor_are_those_of_its_router() {
    let router = read("crates/balde-monitor/src/http/mod.rs");
    let pager_duty = read("crates/balde-monitor/src/http/pager_duty.rs");
    let routes = router.split(".route(").skip(1).map(str::trim_start);
    let mut known = BTreeSet::new();
    for from in routes {
        let literal = from
            .strip_prefix('"')
            .and_then(|rest| rest.split('"').next());
        let literal = literal.or_else(|| {
            assert!(from.starts_with("pager_duty::PATH"), "{}", &from[..40]);
            pager_duty
                .split("PATH: &str = \"")
                .nth(1)?
                .split('"')
                .next()
        });
        known.insert(literal.unwrap().to_owned());
    }
    // The files of the page, and one silence, which stands in the row of all.
    assert!(known.remove("/dashboard/{*path}") && known.remove("/api/v1/silences/{id}"));
    let shown = table("docs/monitor.md", "Path |").spans(0);
    let shown: BTreeSet<String> = shown.iter().map(|span| path(span)).collect();
    assert_eq!(shown, known);
}

#[test]
fn requests_of_the_state_endpoint_and_the_simulator_are_those_of_the_code() {
    for (page, head, file, prefixes) in [
        (
            "docs/gateway.md",
            "Request |",
            "crates/balde-gateway/src/state/mod.rs",
            ["\"/balde/", "\"/"],
        ),
        (
            "docs/simulator.md",
            "Endpoint |",
            "crates/balde-simulator/src/simulator/inspect.rs",
            ["\"/sim/", "\"/sim/"],
        ),
    ] {
        let source = read(file);
        let source = source.split("#[cfg(test)]").next().unwrap();
        let shown: BTreeSet<String> = table(page, head)
            .spans(0)
            .iter()
            .map(|span| path(span))
            .collect();
        // Methods stand alone between backticks.
        let shown: BTreeSet<String> = shown
            .into_iter()
            .filter(|path| path.starts_with('/'))
            .collect();
        assert!(shown.len() > 3, "{page}: {shown:?}");
        for path in &shown {
            assert!(
                source.contains(&format!("\"{path}\"")),
                "{page}: {path} is not in {file}"
            );
        }
        let known = source.split(prefixes[0]).skip(1);
        for rest in known {
            let rest = rest.split('"').next().unwrap().trim_end_matches('/');
            let path = format!("{}{rest}", &prefixes[0][1..]);
            let page_text = read(page);
            assert!(page_text.contains(&path), "{page} does not mention {path}");
        }
    }
}

/// The long options of a command, by its help.
fn options(command: &str) -> BTreeSet<String> {
    let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
    let output = balde.args([command, "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text
        .lines()
        .filter(|line| line.trim_start().starts_with('-'));
    let words = words.flat_map(|line| line.split([' ', ',', '=', '[']));
    let words = words.filter(|word| word.starts_with("--") && word.len() > 2);
    let words = words.map(|word| word.trim_end_matches(['.', ':']).to_owned());
    words.filter(|word| word != "--help").collect()
}

#[test]
fn options_of_commands_are_those_of_their_tables() {
    // Options that a table leaves out, because another table or a paragraph of the page has them.
    for (command, page, head, first, elsewhere) in [
        ("check", "docs/cli.md", "Option |", "--without-env", &[][..]),
        ("certify", "docs/cli.md", "Option |", "--url", &[]),
        (
            "simulate",
            "docs/simulator.md",
            "Option |",
            "--listen",
            &["--transcript"],
        ),
    ] {
        let table = tables(page).into_iter().find(|table| {
            table.head.join(" | ").starts_with(head) && table.rows[0][0].contains(first)
        });
        let table = table.unwrap_or_else(|| panic!("{page}: no table of {command}"));
        let shown: BTreeSet<String> = table
            .spans(0)
            .iter()
            .map(|span| span.split([' ', '[', '=']).next().unwrap().to_owned())
            .collect();
        let mut known = options(command);
        let text = read(page);
        for option in elsewhere {
            assert!(text.contains(option), "{page} does not mention {option}");
            known.remove(*option);
        }
        assert_eq!(shown, known, "{page}: balde {command}");
    }
    let page = read("docs/redis.md");
    for option in options("inspect") {
        assert!(
            page.contains(&option),
            "docs/redis.md does not mention {option} of balde inspect"
        );
    }
}

#[test]
fn alert_tables_are_those_of_the_rules() {
    for (page, rules) in [
        (
            "docs/telemetry.md",
            "deploy/prometheus/balde-limits-rules.yml",
        ),
        (
            "docs/gateway.md",
            "deploy/prometheus/balde-gateway-rules.yml",
        ),
    ] {
        let rules = read(rules);
        let known = rules.split("- alert: ").skip(1);
        let known = known.map(|rest| rest.lines().next().unwrap().trim().to_owned());
        assert_eq!(table(page, "Alert |").spans(0), known.collect(), "{page}");
    }
}

#[test]
fn environment_variables_are_those_of_the_code() {
    let is_variable = |word: &&str| {
        let is_ours = ["RL_", "REDIS_", "OTEL_"]
            .iter()
            .any(|start| word.starts_with(start));
        is_ours
            && word
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    let mut known = BTreeSet::new();
    for text in ["balde", "balde-throttle"].into_iter().flat_map(sources) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        known.extend(code.split('"').filter(is_variable).map(str::to_owned));
    }
    assert!(known.len() > 10, "{known:?}");
    let page = read("docs/options.md");
    let spans: BTreeSet<String> = spans(&page).into_iter().collect();
    for variable in &known {
        assert!(
            spans.contains(variable),
            "docs/options.md does not mention {variable}"
        );
    }
    for variable in table("docs/options.md", "Variable |").spans(0) {
        assert!(known.contains(&variable), "nothing reads {variable}");
    }
}

#[test]
fn keys_of_profiles_are_those_of_the_parser() {
    let folder = repository().join("crates/balde-policy/src/profile/parse");
    let mut known = BTreeSet::new();
    for file in files(&folder, ".rs") {
        let text = std::fs::read_to_string(file).unwrap();
        for reads in [
            ".get(\"",
            ".require(\"",
            ".string(\"",
            ".strings(\"",
            ".table(\"",
            ".tables(\"",
        ] {
            known.extend(
                text.split(reads)
                    .skip(1)
                    .map(|rest| rest.split('"').next().unwrap().to_owned()),
            );
        }
    }
    assert!(known.len() > 20, "{known:?}");
    let page = read("docs/profiles.md");
    let all: BTreeSet<String> = spans(&page).into_iter().collect();
    for key in &known {
        let is_there = [
            format!("[{key}]"),
            format!("[[{key}]]"),
            format!("[{key}.NAME]"),
            key.clone(),
        ];
        assert!(
            is_there.iter().any(|key| all.contains(key)),
            "docs/profiles.md does not mention {key}"
        );
    }
    for table in tables("docs/profiles.md") {
        if table.head == ["Key", "Meaning"] {
            for key in table.spans(0) {
                let key = key.trim_matches(['[', ']']).trim_end_matches(".NAME");
                assert!(known.contains(key), "the parser reads no `{key}`");
            }
        }
    }
}

#[test]
fn tables_of_the_history_are_those_of_its_migrations() {
    let shown = table("docs/monitor.md", "Table |").spans(0);
    for backend in ["sqlite", "postgres"] {
        let folder = repository()
            .join("crates/balde-monitor/migrations")
            .join(backend);
        let mut known = BTreeSet::new();
        for file in files(&folder, ".sql") {
            let text = std::fs::read_to_string(file).unwrap().to_lowercase();
            for rest in text.split("create table ").skip(1) {
                let rest = rest.trim_start_matches("if not exists ");
                let line = rest.lines().next().unwrap();
                if !line.contains("partition of") {
                    known.insert(rest.split([' ', '(']).next().unwrap().to_owned());
                }
            }
        }
        assert_eq!(shown, known, "{backend}");
    }
}

#[test]
fn transcripts_miss_what_the_table_says() {
    let shown = table("docs/simulator.md", "`missed` |").spans(0);
    let source = read("crates/balde-simulator/src/simulator/transcript.rs");
    for code in &shown {
        assert!(source.contains(&format!("\"{code}\"")), "{code}");
    }
}

#[test]
fn header_fields_are_those_that_are_written() {
    let all = sources("balde").concat().to_lowercase();
    for field in table("docs/http.md", "Field |").spans(0) {
        assert!(
            all.contains(&format!("\"{}\"", field.to_lowercase()))
                || all.contains(&field.to_lowercase().replace('-', "_")),
            "{field}"
        );
    }
    let all = sources("balde-monitor").concat().to_lowercase();
    for field in table("docs/alerts.md", "Header |").spans(0) {
        assert!(
            all.contains(&format!("\"{}\"", field.to_lowercase())),
            "{field}"
        );
    }
}

#[test]
fn commands_of_inspect_exist_with_their_options() {
    let options = options("inspect");
    for command in table("docs/redis.md", "Command |").spans(0) {
        let words = command
            .split_whitespace()
            .filter(|word| word.starts_with("--"));
        for option in words {
            assert!(options.contains(option), "{command}");
        }
    }
}

/// A name that a page gives a test: `module::function`, or a file.
#[test]
fn tests_that_the_page_on_security_names_exist() {
    let root = repository();
    let mut code = String::new();
    for file in files(&root.join("crates"), ".rs") {
        if file.components().any(|part| part.as_os_str() == "tests") || file.ends_with("tests.rs") {
            code.push_str(&std::fs::read_to_string(file).unwrap());
        }
    }
    let mut checked = 0;
    for table in tables("docs/security.md") {
        if table.head.last().is_none_or(|head| head != "Test") {
            continue;
        }
        for name in table.spans(table.head.len() - 1) {
            if name.contains('/') {
                let file = name.split(' ').next().unwrap();
                assert!(root.join(file).exists(), "docs/security.md: {name}");
                checked += 1;
            } else if let Some((_, function)) =
                name.rsplit_once("::").filter(|(_, last)| !last.is_empty())
            {
                assert!(
                    code.contains(&format!("fn {function}(")),
                    "docs/security.md: {name}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 25, "only {checked} tests are named");
}

#[test]
fn methods_of_the_pages_exist() {
    for (page, head, crate_name) in [
        ("docs/keys.md", "Method |", "balde"),
        ("docs/throttle.md", "Method |", "balde-throttle"),
    ] {
        let code = sources(crate_name).concat();
        for method in table(page, head).spans(0) {
            // A section of an options file, and not a method.
            if method.starts_with('[') {
                continue;
            }
            let name = method.split('(').next().unwrap();
            let name = name.rsplit("::").next().unwrap();
            assert!(
                code.contains(&format!("fn {name}(")) || code.contains(&format!("fn {name}<")),
                "{page}: {method}"
            );
        }
    }
}

#[test]
fn problem_documents_have_the_types_and_members_of_the_table() {
    let code = read("crates/balde/src/http/problem.rs");
    let shown = table("docs/http.md", "Cause |");
    for word in shown.spans(2).union(&shown.spans(3)) {
        let word = word.trim_start_matches('…');
        assert!(code.contains(word), "docs/http.md: {word}");
    }
}
