//! Files in the pages: TOML through `balde check`, JSON and YAML through their parsers.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::blocks::{self, Block, repository};
use crate::has_tool;

/// What completes a part of a file, by the table that the part begins with.
const REST: [(&str, &str); 4] = [
    ("[schedule]", PARTICIPANT),
    ("[alerts]", PARTICIPANT),
    ("[[sink]]", PARTICIPANT),
    (
        "[metrics]",
        "\n[limits.per-user]\nlimit = \"10/s burst 20\"\n",
    ),
];
const PARTICIPANT: &str =
    "\n[[participant]]\nispb = \"12345678\"\ngateway = \"http://127.0.0.1:8090/balde/states\"\n";

fn check(folder: &Path, file: &str) -> Output {
    let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
    balde
        .args(["check", "--without-env", file])
        .current_dir(folder)
        .env("BALDE_GATEWAY_TOKEN", "a-token-for-tests")
        .output()
        .unwrap()
}

#[test]
fn balde_check_accepts_every_toml_snippet_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut checked = 0;
    for block in blocks::all() {
        if block.language != "toml" {
            continue;
        }
        // The manifest of a package, which cargo reads.
        if block.code.starts_with("[dependencies]") {
            continue;
        }
        let rest = REST.iter().find(|(table, _)| block.code.starts_with(table));
        let text = format!("{}{}", block.code, rest.map_or("", |(_, rest)| rest));
        // `balde simulate` has a file of its own.
        if block.page == "docs/simulator.md" {
            simulator_accepts(folder.path(), &text);
        } else {
            fs::write(folder.path().join("snippet.toml"), text).unwrap();
            let output = check(folder.path(), "snippet.toml");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{block}\n{error}");
        }
        checked += 1;
    }
    assert!(checked > 10, "only {checked} snippets were found");
    for entry in fs::read_dir(repository().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml") {
            let output = check(&repository(), path.to_str().unwrap());
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}\n{error}", path.display());
        }
    }
}

/// The simulator reads the file before it listens: on an address that this machine does not have, it
/// ends after that.
fn simulator_accepts(folder: &Path, text: &str) {
    fs::write(folder.join("participants.toml"), text).unwrap();
    let simulate = |file: &str| {
        let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
        let balde = balde.args([
            "simulate",
            "--listen",
            "192.0.2.1:1",
            "--participants",
            file,
        ]);
        let output = balde.current_dir(folder).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let error = simulate("participants.toml");
    assert!(error.contains("cannot listen on 192.0.2.1:1"), "{error}");
    let error = simulate("missing.toml");
    assert!(error.contains("missing.toml"), "{error}");
}

/// The problems that docs/options.md shows.
pub(crate) fn is_problems(block: &Block) -> bool {
    block.page == "docs/options.md" && block.code.starts_with("error: ")
}

#[test]
fn problems_look_as_the_page_about_options_shows_them() {
    let blocks = blocks::all();
    let shown = blocks.iter().find(|block| is_problems(block)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = "[limits.per-user]\nlimit = \"10/fortnight\"\nstrage = \"redis\"\n";
    fs::write(folder.path().join("limits.toml"), text).unwrap();
    let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
    let balde = balde
        .args(["check", "limits.toml"])
        .current_dir(folder.path());
    let output = balde.env("RL_STORAGE_MODE", "disk").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(printed.trim(), shown.code.trim());
}

#[test]
fn json_and_yaml_are_well_formed() {
    for block in blocks::all() {
        if block.language == "json" {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(&block.code);
            parsed.unwrap_or_else(|error| panic!("{block}: {error}"));
        } else if block.language == "yaml" && has_tool("promtool") {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("prometheus.yml");
            fs::write(&file, &block.code).unwrap();
            let mut promtool = Command::new("promtool");
            let output = promtool
                .args(["check", "config"])
                .arg(&file)
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{block}\n{error}");
        }
    }
}
