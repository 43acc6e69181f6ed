//! What the crates may not know: which crates each may depend on, and that the pure parts have no
//! clock, I/O, async or float.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which crates of the workspace each may depend on. Every crate must be listed.
const ARROWS: [(&str, &[&str]); 15] = [
    ("balde-core", &[]),
    ("balde-config", &["balde-core"]),
    ("balde", &["balde-core", "balde-config"]),
    ("balde-net", &["balde"]),
    ("balde-policy", &["balde-core", "balde-config", "balde"]),
    ("balde-throttle", &["balde-core", "balde-config", "balde"]),
    (
        "balde-dict",
        &[
            "balde-core",
            "balde-config",
            "balde",
            "balde-net",
            "balde-policy",
        ],
    ),
    (
        "balde-simulator",
        &[
            "balde-core",
            "balde-config",
            "balde",
            "balde-net",
            "balde-policy",
            "balde-dict",
        ],
    ),
    (
        "balde-gateway",
        &[
            "balde-core",
            "balde-config",
            "balde",
            "balde-net",
            "balde-policy",
            "balde-dict",
        ],
    ),
    ("balde-console", &[]),
    (
        "balde-service",
        &[
            "balde-core",
            "balde-config",
            "balde",
            "balde-net",
            "balde-policy",
            "balde-console",
        ],
    ),
    (
        "balde-monitor",
        &[
            "balde-core",
            "balde-config",
            "balde",
            "balde-net",
            "balde-dict",
            "balde-console",
        ],
    ),
    (
        "balde-cli",
        &[
            "balde-core",
            "balde-config",
            "balde",
            "balde-net",
            "balde-policy",
            "balde-throttle",
            "balde-dict",
            "balde-simulator",
            "balde-gateway",
            "balde-service",
            "balde-monitor",
        ],
    ),
    // What benchmarks share; its benchmarks see the whole as development dependencies.
    ("balde-bench", &[]),
    // Only tests: lock-free code over loom's atomics.
    ("balde-loom", &["balde-core"]),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn packages() -> BTreeMap<String, Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo answers in JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    packages
        .into_iter()
        .map(|package| (package["name"].as_str().unwrap().to_owned(), package))
        .collect()
}

fn dependencies(package: &Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().expect("dependencies");
    // Development dependencies may point anywhere: tests see the whole.
    let built_in = all.iter().filter(|dependency| dependency["kind"] != "dev");
    built_in
        .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_arrows_between_crates_are_as_drawn() {
    let packages = packages();
    let names: BTreeSet<&str> = packages.keys().map(String::as_str).collect();
    let drawn: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names, drawn,
        "every crate of the workspace is drawn, and no other"
    );
    for (name, allowed) in ARROWS {
        for dependency in dependencies(&packages[name]) {
            assert!(
                !packages.contains_key(&dependency) || allowed.contains(&dependency.as_str()),
                "{name} must not know {dependency}"
            );
        }
    }
}

#[test]
fn the_core_depends_on_nothing() {
    let core = &packages()["balde-core"];
    assert_eq!(dependencies(core), BTreeSet::new());
    assert_eq!(
        core["features"],
        serde_json::json!({}),
        "it has no features"
    );
}

#[test]
fn only_the_reader_of_files_knows_toml() {
    for (name, package) in packages() {
        let knows = dependencies(&package).contains("toml");
        assert_eq!(
            knows,
            name == "balde-config",
            "{name} depends on toml: {knows}"
        );
    }
}

#[test]
fn the_core_has_no_clock_no_io_no_async_and_no_float() {
    let source = workspace().join("crates/balde-core/src");
    let lib = std::fs::read_to_string(source.join("lib.rs")).unwrap();
    assert!(
        lib.contains("#![no_std]"),
        "without std there is no clock and no I/O"
    );
    let banned = [
        "std::",
        "async ",
        ".await",
        "Future",
        "f32",
        "f64",
        "Instant",
        "SystemTime",
        "println!",
        "unsafe ",
        "static mut",
        "log::",
        "tracing",
    ];
    for file in rust_files(&source) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in banned {
                let place = format!("{}:{}", file.display(), number + 1);
                assert!(
                    !code.contains(word),
                    "{place}: `{word}` does not belong into the core"
                );
            }
            assert!(
                !has_float_literal(code),
                "{}:{}: a float does not belong into the core",
                file.display(),
                number + 1
            );
        }
    }
}

#[test]
fn time_is_read_in_one_module() {
    let source = workspace().join("crates/balde/src");
    let clock = source.join("clock");
    for file in rust_files(&source) {
        let text = std::fs::read_to_string(&file).unwrap();
        let code: String = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect();
        let reads = ["SystemTime::now", "quanta::Clock::new"];
        if reads.iter().any(|read| code.contains(read)) {
            assert!(file.starts_with(&clock), "{} reads a clock", file.display());
        }
    }
}

/// A digit, a point and a digit outside of quotes and ranges.
fn has_float_literal(code: &str) -> bool {
    let bytes = code.as_bytes();
    let mut is_quoted = false;
    for at in 1..bytes.len().saturating_sub(1) {
        is_quoted ^= bytes[at - 1] == b'"';
        let [before, point, after] = [bytes[at - 1], bytes[at], bytes[at + 1]];
        if !is_quoted && point == b'.' && before.is_ascii_digit() && after.is_ascii_digit() {
            // A tuple's field, as in `pair.0.1`, is no float.
            let field = code[..at].rfind('.');
            if field.is_none_or(|dot| !code[dot + 1..at].bytes().all(|b| b.is_ascii_digit())) {
                return true;
            }
        }
    }
    false
}

/// Analysis and alert state are pure: time is an argument, and there is no I/O.
#[test]
fn analysis_and_alert_state_have_no_clock_no_io_and_no_async() {
    let source = workspace().join("crates/balde-monitor/src");
    let mut files = vec![source.join("sample.rs"), source.join("severity.rs")];
    for folder in ["analyse", "alert"] {
        files.extend(rust_files(&source.join(folder)));
    }
    let schedule = ["cron.rs", "cron_field.rs", "planner.rs", "poll_schedule.rs"];
    files.extend(schedule.map(|file| source.join("schedule").join(file)));
    files.push(source.join("cycle/judge.rs"));
    let banned = [
        "tokio",
        "sqlx",
        "reqwest",
        "tracing",
        "Instant",
        "SystemTime",
        "async ",
        ".await",
        "f64",
        "std::fs",
        "std::net",
    ];
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in banned {
                let place = format!("{}:{}", file.display(), number + 1);
                assert!(
                    !code.contains(word),
                    "{place}: `{word}` does not belong into the analysis"
                );
            }
        }
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn the_float_detector_detects() {
    assert!(has_float_literal("let x = 1.5;"));
    assert!(!has_float_literal("let x = pair.0.1;"));
    assert!(!has_float_literal("for x in 0..10 {"));
    assert!(!has_float_literal("\"0.5/s\".parse()"));
}

/// Lines of code in a folder below `crates`, without comments, with their places.
fn code_lines(folder: &str) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for file in rust_files(&workspace().join("crates").join(folder)) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            lines.push((
                format!("{}:{}", file.display(), number + 1),
                code.to_owned(),
            ));
        }
    }
    assert!(!lines.is_empty(), "{folder} has no files");
    lines
}

#[test]
fn only_the_core_and_the_stores_count_in_units() {
    let units = ["token_units", "refill_units", "capacity_units", "owed_max"];
    let users = [
        "balde-cli/src",
        "balde-dict/src",
        "balde-gateway/src",
        "balde-monitor/src",
        "balde-policy/src",
        "balde-service/src",
        "balde-simulator/src",
        "balde-throttle/src",
        "balde/src/hold",
        "balde/src/http",
        "balde/src/limiter",
        "balde/src/multi",
    ];
    for (place, code) in users.iter().flat_map(|folder| code_lines(folder)) {
        for word in units {
            assert!(
                !code.contains(word),
                "{place}: `{word}` is arithmetic of buckets, which belongs into the core"
            );
        }
    }
}

#[test]
fn the_gateway_computes_no_refill() {
    let operators = [" * ", " / ", "_mul(", "div_ceil(", "_div("];
    for (place, code) in code_lines("balde-gateway/src") {
        let is_refill = code.contains("refill_tokens()") || code.contains("period_us()");
        let is_computed = operators.iter().any(|operator| code.contains(operator));
        assert!(
            !(is_refill && is_computed),
            "{place}: the core knows what is refilled when"
        );
    }
}

#[test]
fn a_sink_knows_no_database() {
    for (place, code) in code_lines("balde-monitor/src/sink") {
        assert!(
            !code.contains("history::") && !code.contains("sqlx"),
            "{place}: a sink does not know the database"
        );
    }
}
