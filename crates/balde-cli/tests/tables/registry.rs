//! Which test holds which table.

use std::collections::BTreeMap;

use super::names::readmes;
use super::pages::{files, numbers, read, repository, tables};

const NAMES: &str = "crates/balde-cli/tests/tables/names.rs";
const DEFAULTS: &str = "crates/balde-cli/tests/tables/defaults.rs";
const METRICS: &str = "crates/balde-cli/tests/tables/metrics.rs";

/// Tables of defaults, keys, metrics, features, codes and other names: page, first cells, and the file
/// and name of the test that compares them with the code.
const HELD: &[(&str, &str, &str, &str)] = &[
    (
        "docs/alerts.md",
        "Severity | Goes to",
        DEFAULTS,
        "routes_are_those_of_the_reference_file",
    ),
    (
        "docs/alerts.md",
        "Forecast | Goes to",
        DEFAULTS,
        "defaults_of_the_monitor_are_those_of_its_reference_file",
    ),
    (
        "docs/alerts.md",
        "Log line |",
        NAMES,
        "log_lines_of_deliveries_are_those_of_the_table",
    ),
    (
        "docs/alerts.md",
        "`kind.type` |",
        NAMES,
        "kinds_of_events_are_those_of_the_code",
    ),
    (
        "docs/alerts.md",
        "Header |",
        NAMES,
        "header_fields_are_those_that_are_written",
    ),
    (
        "docs/alerts.md",
        "Event | `event_action`",
        DEFAULTS,
        "priorities_and_actions_of_pagers_are_those_of_the_sinks",
    ),
    (
        "docs/alerts.md",
        "Event | Priority",
        DEFAULTS,
        "priorities_and_actions_of_pagers_are_those_of_the_sinks",
    ),
    (
        "docs/cli.md",
        "Command |",
        "crates/balde-cli/tests/manual.rs",
        "exit_codes_are_those_of_the_help",
    ),
    (
        "docs/cli.md",
        "Option |",
        NAMES,
        "options_of_commands_are_those_of_their_tables",
    ),
    (
        "docs/cli.md",
        "Code |",
        DEFAULTS,
        "exit_codes_are_those_of_the_table",
    ),
    (
        "docs/dependencies.md",
        "Crate | Why",
        DEFAULTS,
        "dependencies_are_those_of_the_manifests",
    ),
    (
        "docs/dict.md",
        "Profile |",
        DEFAULTS,
        "profiles_are_those_that_ship",
    ),
    (
        "docs/dict.md",
        "Setting |",
        DEFAULTS,
        "dicts_settings_and_their_defaults_are_those_of_the_profile",
    ),
    (
        "docs/engine.md",
        "Value |",
        NAMES,
        "tables_of_values_have_the_variants_of_their_enums",
    ),
    (
        "docs/for-bulk-jobs.md",
        "Class |",
        DEFAULTS,
        "classes_of_volume_begin_where_the_table_says",
    ),
    (
        "docs/gateway.md",
        "Request |",
        NAMES,
        "requests_of_the_state_endpoint_and_the_simulator_are_those_of_the_code",
    ),
    (
        "docs/gateway.md",
        "Name | Labels",
        METRICS,
        "every_metric_is_in_the_table_of_its_page",
    ),
    (
        "docs/gateway.md",
        "Alert |",
        NAMES,
        "alert_tables_are_those_of_the_rules",
    ),
    (
        "docs/gateway.md",
        "What | Default",
        DEFAULTS,
        "limits_of_the_gateway_are_its_defaults",
    ),
    (
        "docs/http.md",
        "Outcome |",
        NAMES,
        "tables_of_values_have_the_variants_of_their_enums",
    ),
    (
        "docs/http.md",
        "Field |",
        NAMES,
        "header_fields_are_those_that_are_written",
    ),
    (
        "docs/monitor.md",
        "Step | Activity",
        DEFAULTS,
        "timeouts_and_attempts_of_activities_are_those_of_the_retry_rules",
    ),
    (
        "docs/monitor.md",
        "Path |",
        NAMES,
        "paths_of_the_monitor_are_those_of_its_router",
    ),
    (
        "docs/monitor.md",
        "Role |",
        NAMES,
        "tables_of_values_have_the_variants_of_their_enums",
    ),
    (
        "docs/monitor.md",
        "Metric |",
        METRICS,
        "every_metric_is_in_the_table_of_its_page",
    ),
    (
        "docs/monitor.md",
        "Setting |",
        DEFAULTS,
        "defaults_of_the_monitor_are_those_of_its_reference_file",
    ),
    (
        "docs/monitor.md",
        "Severity | Raised",
        DEFAULTS,
        "defaults_of_the_monitor_are_those_of_its_reference_file",
    ),
    (
        "docs/monitor.md",
        "Table |",
        NAMES,
        "tables_of_the_history_are_those_of_its_migrations",
    ),
    (
        "docs/options.md",
        "Variable |",
        NAMES,
        "environment_variables_are_those_of_the_code",
    ),
    (
        "docs/profiles.md",
        "Key |",
        NAMES,
        "keys_of_profiles_are_those_of_the_parser",
    ),
    (
        "docs/redis.md",
        "`OnFailure` |",
        NAMES,
        "tables_of_values_have_the_variants_of_their_enums",
    ),
    (
        "docs/redis.md",
        "`StoreFailure` |",
        NAMES,
        "tables_of_values_have_the_variants_of_their_enums",
    ),
    (
        "docs/redis.md",
        "Command |",
        NAMES,
        "commands_of_inspect_exist_with_their_options",
    ),
    (
        "docs/simulator.md",
        "Option |",
        NAMES,
        "options_of_commands_are_those_of_their_tables",
    ),
    (
        "docs/simulator.md",
        "Endpoint |",
        NAMES,
        "requests_of_the_state_endpoint_and_the_simulator_are_those_of_the_code",
    ),
    (
        "docs/simulator.md",
        "`missed` |",
        NAMES,
        "transcripts_miss_what_the_table_says",
    ),
    (
        "docs/telemetry.md",
        "Metric |",
        METRICS,
        "every_metric_is_in_the_table_of_its_page",
    ),
    (
        "docs/telemetry.md",
        "Reason |",
        NAMES,
        "reasons_of_failed_calls_are_in_the_rules_and_in_the_runbook",
    ),
    (
        "docs/telemetry.md",
        "`event_type` |",
        NAMES,
        "events_of_the_log_are_those_of_the_table",
    ),
    (
        "docs/telemetry.md",
        "Alert |",
        NAMES,
        "alert_tables_are_those_of_the_rules",
    ),
    (
        "docs/throttle.md",
        "When | Then | Default",
        DEFAULTS,
        "degradation_has_the_defaults_of_its_table",
    ),
    (
        "docs/throttle.md",
        "`event_type` |",
        NAMES,
        "events_of_throttlers_have_the_levels_of_the_table",
    ),
    (
        "docs/throttle.md",
        "Metric |",
        METRICS,
        "every_metric_is_in_the_table_of_its_page",
    ),
    (
        "crates/balde/README.md",
        "Text |",
        DEFAULTS,
        "limits_as_text_can_be_parsed_and_have_the_capacity_that_the_table_says",
    ),
    (
        "crates/balde/README.md",
        "Feature |",
        NAMES,
        "feature_tables_are_those_of_the_manifests",
    ),
    (
        "crates/balde-monitor/README.md",
        "Feature |",
        NAMES,
        "feature_tables_are_those_of_the_manifests",
    ),
    (
        "crates/balde-policy/README.md",
        "Feature |",
        NAMES,
        "feature_tables_are_those_of_the_manifests",
    ),
    (
        "crates/balde-throttle/README.md",
        "Feature |",
        NAMES,
        "feature_tables_are_those_of_the_manifests",
    ),
    (
        "docs/keys.md",
        "Method |",
        NAMES,
        "methods_of_the_pages_exist",
    ),
    (
        "docs/throttle.md",
        "Method |",
        NAMES,
        "methods_of_the_pages_exist",
    ),
    (
        "docs/http.md",
        "Cause |",
        NAMES,
        "problem_documents_have_the_types_and_members_of_the_table",
    ),
    (
        "docs/security.md",
        "Threat | Defence | Test",
        NAMES,
        "tests_that_the_page_on_security_names_exist",
    ),
    (
        "docs/conformance.md",
        "Id | Requirement | Shown by",
        "crates/balde-cli/tests/tables/promises.rs",
        "every_requirement_has_a_test_or_a_decision",
    ),
    (
        "docs/guarantees.md",
        "Promise | What is lost when it cannot hold | Shown by",
        "crates/balde-cli/tests/tables/promises.rs",
        "every_guarantee_names_a_test_that_exists",
    ),
    (
        "docs/service.md",
        "Request |",
        "crates/balde-service/tests/service/pages.rs",
        "the_tables_of_requests_and_commands_are_those_of_the_code",
    ),
    (
        "docs/service.md",
        "Command |",
        "crates/balde-service/tests/service/pages.rs",
        "the_tables_of_requests_and_commands_are_those_of_the_code",
    ),
    (
        "docs/service.md",
        "Key |",
        "crates/balde-service/tests/service/pages.rs",
        "the_page_and_the_example_have_every_key_and_the_defaults",
    ),
    (
        "docs/service.md",
        "Metric |",
        METRICS,
        "every_metric_is_in_the_table_of_its_page",
    ),
];

/// Tables that explain: what to read, what happens when, what was measured or tested. Those on pages
/// of measurements are written by the benchmarks.
const PROSE: &[(&str, &str)] = &[
    ("docs/README.md", "You | Start with"),
    ("docs/alerts.md", "In PagerDuty, a person | Here"),
    ("docs/alerts.md", "Address | Encryption"),
    ("docs/cli.md", "Format | Standard output"),
    ("docs/dependencies.md", "Crate | For"),
    ("docs/for-bulk-jobs.md", "Your question | Page"),
    ("docs/for-on-call.md", "Your question | Page"),
    ("docs/for-psp-teams.md", "Your question | Page"),
    ("docs/for-service-engineers.md", "Your question | Page"),
    ("docs/gateway.md", "In the request | In the normal form"),
    (
        "docs/gateway.md",
        "Fields | From a trusted proxy | From anybody else",
    ),
    ("docs/gateway.md", "A client that | What happens"),
    ("docs/gateway.md", "Doubt | Resolution"),
    ("docs/gateway.md", "Case | Result"),
    ("docs/service.md", "You have | Section"),
    ("docs/service.md", "Proxy | Asks at"),
    ("docs/service.md", "envoyproxy/ratelimit | Here"),
    ("docs/service.md", "Limitador | Here"),
    ("docs/service.md", "Language | File"),
    ("docs/glossary.md", "Word | Meaning"),
    (
        "docs/guarantees.md",
        "Fault | Noticed by | Meanwhile | Afterwards",
    ),
    (
        "docs/guarantees.md",
        "Case | Log | Webhook, incident, Slack, PagerDuty, Pulsar",
    ),
    ("docs/guarantees.md", "Attack | Bound"),
    ("docs/guarantees.md", "What | How it is judged"),
    ("docs/guarantees.md", "Planted bug | Caught by"),
    ("docs/http.md", "Kind | Key"),
    (
        "docs/http.md",
        "Counted by | Somebody with a /48 has | Who suffers",
    ),
    ("docs/monitor.md", "Step | What | On failure"),
    ("docs/monitor.md", "Where | What"),
    ("docs/monitor.md", "Page | What it shows"),
    ("docs/monitor.md", "Confidence | Meaning | Bounds held"),
    ("docs/monitor.md", "Address | What"),
    ("docs/operations.md", "Where | How"),
    (
        "docs/security.md",
        "Threat | SDK's layers | Simulator | Monitor | Throttler",
    ),
    ("docs/scaling.md", "Part | Cost of a decision"),
    ("docs/scaling.md", "Nodes | Leases"),
    ("docs/scaling.md", "Participants | Rows a day"),
    ("docs/simulator.md", "Operation | What it does"),
    ("docs/telemetry.md", "Enabled | Cost"),
    ("crates/balde-policy/README.md", "Name | What it is"),
    (
        "crates/balde/README.md",
        " | balde | governor | tower_governor | Limitador | bucket4j (Java)",
    ),
];

fn pages() -> Vec<String> {
    let root = repository();
    let pages = files(&root.join("docs"), ".md").into_iter();
    let pages = pages.map(|file| file.strip_prefix(&root).unwrap().display().to_string());
    // Translations are compared with their originals, and benchmarks write their page.
    let mut pages: Vec<String> = pages
        .filter(|page| !page.contains("pt-BR") && page != "docs/benchmarks.md")
        .collect();
    pages.extend(readmes());
    pages
}

#[test]
fn every_table_is_held_by_a_test_or_known_to_be_prose() {
    let all: Vec<(String, String)> = pages()
        .iter()
        .flat_map(|page| tables(page))
        .map(|table| table.name())
        .collect();
    assert!(all.len() > 80, "only {} tables", all.len());
    let begins = |(page, head): &(String, String), known: (&str, &str)| {
        page == known.0 && head.starts_with(known.1)
    };
    let held = HELD.iter().map(|(page, head, ..)| (*page, *head));
    let known: Vec<(&str, &str)> = held.chain(PROSE.iter().copied()).collect();
    let unknown: Vec<_> = all
        .iter()
        .filter(|table| !known.iter().any(|known| begins(table, *known)))
        .collect();
    assert!(
        unknown.is_empty(),
        "compare these tables with the code, and list them in this file: {unknown:#?}"
    );
    for entry in known {
        assert!(
            all.iter().any(|table| begins(table, entry)),
            "there is no table {entry:?}"
        );
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let mut texts = BTreeMap::new();
    for (_, _, file, test) in HELD {
        let text = texts.entry(*file).or_insert_with(|| read(file));
        assert!(text.contains(&format!("fn {test}")), "{file} has no {test}");
    }
}

#[test]
fn tables_of_translations_have_the_rows_and_numbers_of_their_originals() {
    let root = repository();
    let mut compared = 0;
    for file in files(&root.join("docs/pt-BR"), ".md") {
        let name = file.file_name().unwrap().to_str().unwrap();
        if !root.join("docs").join(name).exists() {
            continue;
        }
        let original = tables(&format!("docs/{name}"));
        let translated = tables(&format!("docs/pt-BR/{name}"));
        assert_eq!(
            original.len(),
            translated.len(),
            "docs/pt-BR/{name}: tables"
        );
        for (original, translated) in original.iter().zip(&translated) {
            let (head, rows) = (translated.head.join(" | "), translated.rows.len());
            assert_eq!(original.rows.len(), rows, "docs/pt-BR/{name}: {head}");
            for (row, translation) in original.rows.iter().zip(&translated.rows) {
                assert_eq!(
                    sorted_numbers(row),
                    sorted_numbers(translation),
                    "docs/pt-BR/{name}: {translation:?}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared > 20, "only {compared} tables");
}

fn sorted_numbers(row: &[String]) -> Vec<String> {
    let mut numbers = numbers(&row.join(" | "));
    numbers.sort();
    numbers
}
