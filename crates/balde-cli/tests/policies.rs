//! `balde policies`, run as its users run it.

use std::process::{Command, Output};

use serde_json::Value;

fn balde(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command.args(arguments).output().expect("the binary runs")
}

fn stdout(arguments: &[&str]) -> String {
    let output = balde(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

fn stderr_of_failure(arguments: &[&str]) -> String {
    let output = balde(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// The row of a policy as words, of the last that begins with its name.
fn cells(table: &str, policy: &str) -> Vec<String> {
    let is_row = |line: &&str| line.split_whitespace().next() == Some(policy);
    let row = table.lines().rfind(is_row);
    let row = row.unwrap_or_else(|| panic!("no {policy} in\n{table}"));
    row.split("  ")
        .map(|cell| cell.trim().to_owned())
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn the_default_profile_shows_what_a_category_may_send_in_a_day() {
    for (category, refill, capacity, from_empty, a_day) in [
        ("A", "25,000", "50,000", "2 min", "36,050,000"),
        ("B", "20,000", "40,000", "2 min", "28,840,000"),
        ("G", "25", "250", "10 min", "36,250"),
        ("H", "2", "50", "25 min", "2,930"),
    ] {
        let table = stdout(&["policies", "--category", category]);
        let row = cells(&table, "ENTRIES_READ_PARTICIPANT_ANTISCAN");
        let expected = [
            "PSP", category, refill, "1 min", capacity, from_empty, a_day,
        ];
        assert_eq!(row[1..8], expected);
        let others = table.matches("ENTRIES_READ_PARTICIPANT_ANTISCAN").count();
        assert_eq!(others, 1, "one category, one row");
    }
    let table = stdout(&["policies"]);
    assert!(table.starts_with("dict-2.12.1: Pix DICT, API 2.12.1 (31 policies)\n"));
    assert_eq!(table.matches("ENTRIES_STATISTICS_READ").count(), 8);
    assert_eq!(cells(&table, "refill"), ["refill", "continuous"]);
    assert_eq!(
        cells(&table, "CIDS_FILES_WRITE")[1..8],
        ["PSP", "all", "40", "1 d", "200", "5 d", "240"]
    );
    assert_eq!(
        cells(&table, "ENTRIES_READ_USER_ANTISCAN")[1..11],
        [
            "USER",
            "PJ",
            "20",
            "1 min",
            "1,000",
            "50 min",
            "29,800",
            "antiscan",
            "200:1 404:20 429:0 else:0",
            "payment-order:2"
        ]
    );
}

#[test]
fn policies_are_in_the_class_of_their_volume() {
    let table = stdout(&["policies", "--category", "A"]);
    // The four classes by the tokens that a bucket regains in a minute.
    for (class, names) in [
        (
            "high",
            "ENTRIES_WRITE CLAIMS_WRITE REFUNDS_WRITE CIDS_ENTRIES_READ",
        ),
        (
            "medium",
            "ENTRIES_UPDATE CLAIMS_READ INFRACTION_REPORTS_READ FRAUD_MARKERS_READ",
        ),
        (
            "low",
            "CLAIMS_LIST_WITH_ROLE CLAIMS_LIST_WITHOUT_ROLE SYNC_VERIFICATIONS_WRITE \
             CIDS_FILES_READ CIDS_FILES_WRITE",
        ),
        (
            "antiscan",
            "ENTRIES_READ_PARTICIPANT_ANTISCAN ENTRIES_READ_USER_ANTISCAN",
        ),
    ] {
        let shown = stdout(&["policies", "--category", "A", "--volume", class]);
        for name in names.split_whitespace() {
            assert_eq!(cells(&table, name)[8], class, "{name}");
            assert_eq!(cells(&shown, name), cells(&table, name));
        }
        let json = stdout(&["policies", "--volume", class, "--json"]);
        let profile: Value = serde_json::from_str(&json).expect("JSON");
        let policies = profile["policies"].as_array().expect("policies");
        let limits = policies.iter().flat_map(|policy| {
            let limits = policy["limits"].as_array().expect("limits");
            assert!(!limits.is_empty(), "{policy}");
            limits
        });
        assert!(limits.clone().count() > 2);
        assert!(limits.clone().all(|limit| limit["volume"] == class));
    }
    let refused = balde(&["policies", "--volume", "huge"]);
    let refused = String::from_utf8(refused.stderr).expect("text");
    assert!(
        refused.contains("high, medium, low or antiscan"),
        "{refused}"
    );
}

#[test]
fn a_throttler_is_made_of_the_policies_of_a_class() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = |arguments: &[&str]| {
        let text = stdout(arguments);
        let file = folder.path().join("job.toml");
        std::fs::write(&file, &text).expect("written");
        // The command that validates files accepts it, and so does the program that reads it.
        stdout(&["check", file.to_str().expect("text")]);
        let (options, throttlers) = balde_throttle::ThrottlerOptions::read(&file).expect("valid");
        let limiters = options.build().expect("built");
        (text, throttlers.build(&limiters).expect("built"))
    };

    let (text, throttlers) = written(&["policies", "--category", "C", "--throttlers"]);
    assert!(text.contains("ENTRIES_READ_USER_ANTISCAN"), "{text}");
    let dict = throttlers.get("dict").expect("a throttler");
    for (policy, pace) in [
        ("ENTRIES_READ_PARTICIPANT_ANTISCAN", "15000/min burst 25"),
        ("REFUNDS_WRITE", "2400/min burst 4"),
        ("CLAIMS_READ", "600/min burst 1"),
        ("CIDS_FILES_WRITE", "1/h burst 1"),
    ] {
        let partition = dict.partition(policy).expect("a partition");
        assert_eq!(partition.pace().to_string(), pace, "{policy}");
    }

    let half = ["--throttlers", "--share", "50%", "--volume", "low"];
    let (text, throttlers) = written(&[&["policies", "--category", "H"][..], &half].concat());
    assert!(!text.contains("ENTRIES_WRITE"), "{text}");
    let dict = throttlers.get("dict").expect("a throttler");
    for (policy, pace) in [
        ("CLAIMS_LIST_WITH_ROLE", "20/min burst 1"),
        ("POLICIES_LIST", "3/min burst 1"),
        ("ENTRIES_STATISTICS_READ", "1/min burst 1"),
    ] {
        let partition = dict.partition(policy).expect("a partition");
        assert_eq!(partition.pace().to_string(), pace, "{policy}");
    }
    // Half of 40 a day is less than one an hour.
    let left_out = "less than a token an hour: CIDS_FILES_WRITE.";
    assert!(text.contains(left_out), "{text}");

    let refused = stderr_of_failure(&["policies", "--throttlers"]);
    assert!(refused.contains("choose one with --category"), "{refused}");
}

#[test]
fn columns_are_aligned() {
    let table = stdout(&["policies", "dict-1.8.0"]);
    let lines = table.lines().skip(2).take_while(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    assert!(lines.len() > 26);
    let scope = lines[0].find("Scope").expect("a column for the scope");
    for line in &lines[2..] {
        assert!(
            ["PSP", "USER"]
                .iter()
                .any(|word| line[scope..].starts_with(word)),
            "{line}"
        );
        assert_eq!(line.as_bytes()[scope - 1], b' ');
    }
}

#[test]
fn json_is_for_machines() {
    let text = stdout(&["policies", "dict-2.12.1", "--json", "--category", "A"]);
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(profile["profile"], "dict-2.12.1");
    assert_eq!(profile["settings"]["credit_deadline"], "12 h");
    let policies = profile["policies"].as_array().expect("policies");
    assert_eq!(policies.len(), 31);
    let named = |name: &str| {
        policies
            .iter()
            .find(|one| one["name"] == name)
            .expect("there")
    };
    let lookup = named("ENTRIES_READ_PARTICIPANT_ANTISCAN");
    assert_eq!(lookup["limits"][0]["tokens_a_day"], 36_050_000);
    assert_eq!(lookup["limits"][0]["from_empty_us"], 120_000_000);
    assert_eq!(lookup["limits"].as_array().map(Vec::len), Some(1));
    assert_eq!(lookup["costs"]["404"], 3);
    let user = named("ENTRIES_READ_USER_ANTISCAN");
    assert_eq!(user["credits"]["payment-order"]["PJ"], 2);
    assert_eq!(
        user["match"][0],
        "GET /entries/{Key} where path:Key is EMAIL or PHONE"
    );
    assert_eq!(user["key"][1], "header:PI-PayerId");
}

#[test]
fn settings_can_be_changed_from_outside() {
    let arguments = [
        "policies",
        "--json",
        "--set",
        "refill=stepwise",
        "--set",
        "cost_of_429=1",
    ];
    let profile: Value = serde_json::from_str(&stdout(&arguments)).expect("JSON");
    assert_eq!(profile["settings"]["refill"], "stepwise");
    for policy in profile["policies"].as_array().expect("policies") {
        assert_eq!(policy["limits"][0]["refill"], "stepwise");
        assert_eq!(policy["costs"]["429"], 1);
    }
    let refused = stderr_of_failure(&["policies", "--set", "refil=stepwise"]);
    assert!(refused.contains("no setting `refil`"), "{refused}");
}

#[test]
fn a_file_is_a_profile_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("shop.toml");
    let text = "profile = 'shop'\n[[policy]]\nname = 'orders'\nlimit = '10/s burst 20'\n";
    std::fs::write(&file, text).expect("written");
    let table = stdout(&["policies", file.to_str().expect("text")]);
    assert_eq!(
        cells(&table, "orders")[1..8],
        ["everyone", "all", "10", "1 s", "20", "2 s", "864,020"]
    );
    let none = stderr_of_failure(&["policies", file.to_str().unwrap(), "--category", "A"]);
    assert!(none.contains("no categories"), "{none}");
}

#[test]
fn what_is_no_profile_is_said_with_the_names_that_are() {
    let refused = stderr_of_failure(&["policies", "dict-9"]);
    assert!(
        refused.contains("dict-2.12.1, dict-manual-8.0, dict-1.8.0"),
        "{refused}"
    );
    let refused = stderr_of_failure(&["policies", "dict-1.8.0", "--category", "H"]);
    assert!(refused.contains("A, B, C, D, E, F"), "{refused}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = Command::new(env!("CARGO_BIN_EXE_balde"))
        .arg("policies")
        .stdout(full.expect("/dev/full"))
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("cannot write the output"), "{shown}");
}
