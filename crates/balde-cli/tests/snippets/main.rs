//! Every fenced block of the pages and READMEs is checked by what reads it: shell commands are run,
//! TOML goes through `balde check`, Rust is compiled, JSON and YAML are parsed. A block that cannot be
//! checked here has to be in a list below, with the reason.

mod blocks;
mod files;
#[expect(dead_code, reason = "an address is enough here")]
#[path = "../../../balde/tests/support/redis_server.rs"]
mod redis_server;
mod rust;
mod session;
mod shell;

use std::path::Path;

use blocks::{Block, repository};

/// Blocks that are no snippets, by their first line, and why, or which test has them.
const OTHERS: [(&str, &str); 9] = [
    (
        "AMOUNT / PERIOD   [burst N] [continuous | stepwise | window] [full | empty] [debt N]",
        "a grammar; crates/balde-core/tests/text_round_trip.rs",
    ),
    (
        "$ balde policies",
        "crates/balde-cli/tests/policies.rs has the table",
    ),
    (
        "12345678  DICT     answers: category F, 29 buckets",
        "crates/balde-cli/tests/monitor_sources.rs",
    ),
    (
        "on-call  pagerduty delivered in 231 ms, and closed: monitor/test/on-call/1794736800000000/test",
        "crates/balde-cli/tests/monitor_test_sink.rs",
    ),
    (
        "09:31:07  ENTRIES_WRITE of 12345678 is down to 8 % (2,900 of 36,000): empty in about 40 s",
        "crates/balde-cli/src/alert_lines.rs",
    ),
    (
        "2026-11-15T08:00:00.123456Z  INFO denied: the bucket has too few tokens event_type=denied decision=deny … policy=per-user retry_after_ms=30000 remaining=0 key_hash=b1b68da44784 …",
        "crates/balde/tests/telemetry compares log lines",
    ),
    (
        "error: unknown key `workes`; did you mean `workers`?",
        "the example of crates/balde-config/src/lib.rs",
    ),
    (
        "balde-core ← balde-config ← balde ← balde-policy ← balde-dict ← balde-gateway ← balde-cli",
        "a drawing; crates/balde/tests/architecture.rs",
    ),
    (
        "let limiter = RateLimiter::builder()",
        "a difference between two programs",
    ),
];

#[test]
fn every_block_is_checked_by_something() {
    let mut unknown = Vec::new();
    for block in blocks::all() {
        let first = block.code.lines().next().unwrap_or_default().trim();
        let is_known = match block.language.as_str() {
            "sh" | "toml" | "json" | "yaml" => true,
            "python" => block.page.ends_with("alerts.md"), // balde-monitor's tests of signatures
            language if language.starts_with("rust") => rust::is_compiled(&block),
            // Sessions with the programs of a README.
            "text" if first.starts_with("$ cargo run") || first.starts_with("$ curl ") => {
                rust::README_PROGRAMS.contains(&block.page.as_str())
            }
            "text" if shell::is_output(&block) || files::is_problems(&block) => true,
            _ => OTHERS.iter().any(|(line, _)| *line == first),
        };
        if !is_known {
            unknown.push(format!("{block}: ```{} {first}", block.language));
        }
    }
    assert!(unknown.is_empty(), "no test has\n{}", unknown.join("\n"));
}

/// What stands between backticks in a page's sentences and tables.
fn spans(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

#[test]
fn commands_in_sentences_exist_with_their_options() {
    let mut checked = 0;
    for (page, text) in blocks::pages() {
        for span in spans(&text) {
            if let Some(command) = span.strip_prefix("balde ") {
                let words = command.split_whitespace();
                // A placeholder, or what a shell has to expand.
                let words = words.take_while(|word| !word.contains(['…', '$', '\'', '"', '[']));
                shell::has_help(words).unwrap_or_else(|error| panic!("{page}: {span}\n{error}"));
                checked += 1;
            } else if let Some((_, example)) = span.split_once("--example ") {
                let name = example.split_whitespace().next().unwrap();
                let crates = [
                    "balde",
                    "balde-dict",
                    "balde-gateway",
                    "balde-simulator",
                    "balde-throttle",
                ];
                let is_there = crates.iter().any(|package| {
                    let examples = repository().join(format!("crates/{package}/examples"));
                    examples.join(name).is_dir() || examples.join(format!("{name}.rs")).exists()
                });
                assert!(is_there, "{page}: {span}");
                checked += 1;
            } else if let Some(script) = span.split(' ').find(|word| word.contains("scripts/")) {
                let file = script.trim_start_matches("./");
                assert!(repository().join(file).exists(), "{page}: {span}");
            }
        }
    }
    assert!(checked > 20, "only {checked} commands were found");
}

/// A program that is missing is an error where scripts/test.sh runs.
fn has_tool(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_there {
        let is_required = std::env::var("BALDE_REQUIRE_SERVICES").as_deref() == Ok("1");
        assert!(
            !is_required,
            "{name} is missing, and BALDE_REQUIRE_SERVICES=1"
        );
        eprintln!("\n*** SKIPPED: {name} is not installed ***\n");
    }
    is_there
}

/// The first block of a page in a language.
fn first_block(page: &str, language: &str) -> Block {
    assert!(Path::new(page).extension().is_some());
    let mut found = blocks::all().into_iter();
    let block = found.find(|block| block.page == page && block.language == language);
    block.unwrap_or_else(|| panic!("{page} has no {language}"))
}
