//! `balde check`, as a process.

use std::path::Path;
use std::process::{Command, Output};

fn check(folder: &Path, files: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command.current_dir(folder).arg("check").args(files);
    command.output().expect("the binary runs")
}

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("text")
}

#[test]
fn every_problem_of_every_file_is_reported_with_its_line() {
    let bad = b"profile = 'bad'\n\n[[policy]]\nname = 'a'\nlimit = '10/fortnight'\ncots = { default = 1 }\n";
    let good = b"profile = 'good'\n[[policy]]\nname = 'a'\nlimit = '1/s'\n";
    let folder = folder(&[
        ("bad.toml", bad),
        ("good.toml", good),
        ("bytes.toml", b"# \xff\n"),
    ]);
    let output = check(
        folder.path(),
        &["bad.toml", "missing.toml", "bytes.toml", "good.toml"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        "good.toml: profile good, 1 policy, sound\n"
    );
    let stderr = text(&output.stderr);
    let expected = "\
bad.toml:5:13: unknown unit `fortnight`; use us, ms, s, min, h, day or week
    5 | limit = '10/fortnight'
      |             ^^^^^^^^^^
bad.toml:6:1: a policy has no `cots`; did you mean `costs`?
    6 | cots = { default = 1 }
      | ^^^^
missing.toml: cannot be read: ";
    assert!(stderr.starts_with(expected), "{stderr}");
    assert!(stderr.ends_with("bytes.toml:1:3: not UTF-8\n"), "{stderr}");
}

#[test]
fn sound_profiles_are_sound() {
    let profiles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../balde-dict/profiles");
    let files = [
        "dict-2.12.1.toml",
        "dict-manual-8.0.toml",
        "dict-1.8.0.toml",
    ];
    let output = check(&profiles, &files);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 3);
    assert!(output.stderr.is_empty());
}

#[test]
fn a_profile_for_dict_has_to_fit_dict() {
    let shipped = include_str!("../../balde-dict/profiles/dict-2.12.1.toml");
    let changed = shipped
        .replace("in-flight = \"reserved\"", "in-flite = \"reserved\"")
        .replace("credit-statuses = [200]", "credit-statuses = [2000]")
        .replace("GET /event-notifications", "GET /events");
    let other = b"api = 'ftp'\nprofile = 'x'\n[[policy]]\nname = 'a'\nlimit = '1/s'\n";
    let folder = folder(&[("mine.toml", changed.as_bytes()), ("ftp.toml", other)]);
    let output = check(folder.path(), &["mine.toml", "ftp.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    for part in [
        "setting `in-flite`: DICT has none of that name",
        "in-flite = \"reserved\"\n",
        "setting `credit-statuses`: expected a list of statuses",
        "mine.toml: policy EVENT_LIST: no operation of DICT has /events",
        "ftp.toml:1:1: the only `api`",
    ] {
        assert!(stderr.contains(part), "{part} is not in\n{stderr}");
    }
}

#[test]
fn without_a_file_it_says_how_it_is_used() {
    let output = check(Path::new("."), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("<FILE>"),
        "{}",
        text(&output.stderr)
    );
}
