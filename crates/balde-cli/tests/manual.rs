//! Completions, the manual page, exit codes and `check --json`, as a shell sees them.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const VERBS: [&str; 8] = [
    "up", "policies", "check", "inspect", "simulate", "gateway", "monitor", "health",
];

fn balde(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command.args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = balde(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    assert!(output.stderr.is_empty(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_name_every_command_and_bash_completes_with_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&["completions", shell]);
        for verb in VERBS {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
    }
    let script = text(&["completions", "bash"]);
    let program = format!(
        "{script}\nCOMP_WORDS=(balde mon); COMP_CWORD=1; _balde balde mon balde; echo \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash")
        .args(["-c", &program])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "monitor");
}

#[test]
fn the_manual_page_has_commands_options_and_exit_codes() {
    let page = text(&["man"]);
    assert!(page.contains(".TH balde 1"), "{page}");
    for verb in VERBS {
        assert!(page.contains(verb), "{verb}");
    }
    assert!(
        page.contains("Exit codes") && page.contains("130"),
        "{page}"
    );
    assert!(text(&["man", "monitor"]).contains("config"));
    assert_eq!(balde(&["man", "nothing"]).status.code(), Some(1));
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let help = text(&["--help"]);
    assert!(help.contains("Exit codes:"), "{help}");
    assert_eq!(balde(&["check", "/missing.toml"]).status.code(), Some(1));
    assert_eq!(balde(&["check"]).status.code(), Some(2));
    assert_eq!(balde(&["nothing"]).status.code(), Some(2));
    // docs/cli.md has the same table.
    let page = include_str!("../../../docs/cli.md");
    for code in ["| 0 |", "| 1 |", "| 2 |", "| 130 |"] {
        assert!(page.contains(code), "{code}");
    }
    for verb in VERBS {
        assert!(page.contains(&format!("`balde {verb}")), "{verb}");
    }
}

#[test]
fn check_writes_one_json_object_per_file_and_nothing_else() {
    let mut good = tempfile::NamedTempFile::new().unwrap();
    good.write_all(b"[limits.api]\nlimit = '1/s'\n").unwrap();
    let good = good.path().to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args(["check", "--json", "/missing.toml", good])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty());
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["valid"], &lines[1]["valid"]),
        (&false.into(), &true.into())
    );
    assert_eq!(lines[0]["errors"][0]["file"], "/missing.toml");
    assert_eq!(lines[1]["summary"], "options, 1 limit, 0 throttlers");
}
