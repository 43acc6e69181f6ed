//! Pages that name a test for what they say: requirements and guarantees.

use std::collections::BTreeSet;
use std::fs;

use super::pages::{files, repository, spans, tables};

/// The names of all tests of the workspace: functions below an attribute that ends in `test]` or `test(…)]`.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files(&repository().join("crates"), ".rs") {
        let text = fs::read_to_string(file).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[") {
                is_test |= line.ends_with("test]") || line.contains("test(");
                continue;
            }
            let function = line.strip_prefix("async ").unwrap_or(line);
            if let Some(function) = function.strip_prefix("fn ").filter(|_| is_test) {
                names.insert(function.split('(').next().unwrap().to_owned());
            }
            is_test &= line.starts_with("//");
        }
    }
    names
}

/// A test has a whole sentence as its name, so that it is told from keys and fields.
fn is_sentence(name: &str) -> bool {
    name.matches('_').count() >= 2
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The tests that a cell names, all of which exist.
fn named(cell: &str, tests: &BTreeSet<String>, place: &str) -> usize {
    let names = spans(cell);
    let names: Vec<_> = names.iter().filter(|name| is_sentence(name)).collect();
    for name in &names {
        assert!(tests.contains(*name), "{place}: there is no test {name}");
    }
    names.len()
}

#[test]
fn every_requirement_has_a_test_or_a_decision() {
    let tests = tests();
    let mut ids = BTreeSet::new();
    for table in tables("docs/conformance.md") {
        assert_eq!(table.head, ["Id", "Requirement", "Shown by"]);
        for row in table.rows {
            let [id, requirement, shown] = row.as_slice() else {
                panic!("{row:?}");
            };
            assert!(!requirement.is_empty(), "{id}");
            assert!(ids.insert(id.clone()), "{id} is there twice");
            let count = named(shown, &tests, id);
            let reason = shown.strip_prefix("Decision: ");
            assert!(
                count > 0 || reason.is_some_and(|reason| reason.len() >= 8),
                "{id} has neither a test nor a decision"
            );
        }
    }
    assert!(ids.len() >= 200, "only {} requirements", ids.len());
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let tests = tests();
    let mut checked = 0;
    for table in tables("docs/guarantees.md") {
        if table.head.last().is_none_or(|head| head != "Shown by") {
            continue;
        }
        for row in table.rows {
            let count = named(row.last().unwrap(), &tests, &row[0]);
            assert!(count > 0, "no test is named for: {}", row[0]);
            checked += 1;
        }
    }
    assert!(checked >= 25, "only {checked} guarantees");
}
