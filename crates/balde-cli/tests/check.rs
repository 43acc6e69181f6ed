//! `balde check`, run as its users run it.

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
fn every_problem_of_every_file_is_shown_with_its_line() {
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
        "good.toml: profile good, 1 policy, valid\n"
    );
    let shown = text(&output.stderr);
    let expected = "\
error: unknown unit `fortnight`; use us, ms, s, min, h, day or week
 --> bad.toml:5:13
  |
5 | limit = '10/fortnight'
  |             ^^^^^^^^^

error: unknown key `cots` in [[policy]]; did you mean `costs`?
 --> bad.toml:6:1
  |
6 | cots = { default = 1 }
  | ^^^^

error: missing.toml: cannot read the file: ";
    assert!(shown.starts_with(expected), "{shown}");
    let not_utf8 = "error: the file is not UTF-8 from here on\n --> bytes.toml:1:3\n";
    assert!(shown.contains(not_utf8), "{shown}");
}

#[test]
fn valid_profiles_are_valid() {
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
    let shown = text(&output.stderr);
    for part in [
        "setting `in-flite`: DICT has none of that name",
        "in-flite = \"reserved\"\n",
        "setting `credit-statuses`: expected a list of statuses",
        "mine.toml: policy EVENT_LIST: no operation of DICT has /events",
        "error: the only `api` with an adapter is \"dict\"; leave it out for other APIs\n --> ftp.toml:1:7",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn the_kind_of_a_file_is_decided_by_its_content() {
    let options = b"[limits.per-user]\nlimit = '10/s'\n[headers]\nreset = 'unix'\n";
    let monitor = b"# [[policy]]\n[[participant]]\nispb = '12345678'\ndict = 'http://127.0.0.1/'\n";
    let gateway = b"# [[policy]]\n[[listener]]\naddress = '127.0.0.1:0'\n[[upstream]]\nname = 'a'\n\
        url = 'http://127.0.0.1:1'\n[[route]]\npath = '/'\nupstream = 'a'\n[redis]\naddr = '127.0.0.1:1'\n";
    let profile =
        b"# [[sink]]\nprofile = 'p'\nlimits = {}\n[[policy]]\nname = 'a'\nlimit = '1/s'\n";
    let folder = folder(&[
        ("options.toml", options),
        ("monitor.toml", monitor),
        ("gateway.toml", gateway),
        ("profile.toml", profile),
    ]);
    let output = check(
        folder.path(),
        &[
            "options.toml",
            "monitor.toml",
            "gateway.toml",
            "profile.toml",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "options.toml: options, 1 limit, 0 throttlers, valid\n\
         monitor.toml: monitor, 1 participant, 1 sink, valid\n\
         gateway.toml: gateway, 1 route, 1 upstream, valid\n\
         profile.toml: profile p, 1 policy, valid\n"
    );
}

#[test]
fn problems_of_every_kind_of_file_look_the_same() {
    let folder = folder(&[
        ("options.toml", b"[limits.a]\nlimit = '10/fortnight'\n"),
        (
            "monitor.toml",
            b"[[participant]]\nispb = '1'\n[schedule]\nlist_budget = '10/fortnight'\n",
        ),
        (
            "profile.toml",
            b"profile = 'x'\n[[policy]]\nname = 'a'\nlimit = '10/fortnight'\n",
        ),
        ("unknown.toml", b"colour = 'red'\n"),
        ("broken.toml", b"[limits\n"),
    ]);
    let names = [
        "options.toml",
        "monitor.toml",
        "profile.toml",
        "unknown.toml",
        "broken.toml",
    ];
    let output = check(folder.path(), &names);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    for position in [
        "options.toml:2:13",
        "monitor.toml:4:19",
        "profile.toml:4:13",
    ] {
        let problem = format!(
            "error: unknown unit `fortnight`; use us, ms, s, min, h, day or week\n --> {position}\n"
        );
        assert!(shown.contains(&problem), "{problem} is not in\n{shown}");
    }
    assert!(
        shown.contains("error: unknown.toml: cannot tell what kind of file this is"),
        "{shown}"
    );
    assert!(shown.contains(" --> broken.toml:1:"), "{shown}");
}

#[test]
fn without_a_file_it_prints_the_usage() {
    let output = check(Path::new("."), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("<FILE>"),
        "{}",
        text(&output.stderr)
    );
}

const MONITOR: &str = "[[participant]]\nispb = '12345678'\ndict = 'https://dict/api/v2/'\n\
     certificate = 'client.pem'\nkey = 'client.key'\n";

#[test]
fn a_monitor_file_is_checked_without_its_secrets() {
    let sinks = "[[sink]]\nname = 'chat'\nkind = 'slack'\nurl_env = 'NOT_SET_1'\n\
         [[sink]]\nname = 'pager'\nkind = 'pagerduty'\nrouting_key_file = 'missing'\n\
         [[sink]]\nname = 'hook'\nkind = 'webhook'\nurl = 'https://a/'\nsecret_env = 'NOT_SET_2'\n";
    let text = format!("{MONITOR}{sinks}");
    let folder = folder(&[("monitor.toml", text.as_bytes())]);
    let output = check(folder.path(), &["monitor.toml"]);
    assert_eq!(output.status.code(), Some(1));
    // The key is shown, and not its value, which may be a secret that was written there by mistake.
    let shown = self::text(&output.stderr);
    assert!(shown.contains("url_env = ****"), "{shown}");
    assert!(!shown.contains("NOT_SET_1"), "{shown}");
    let output = check(folder.path(), &["--without-env", "monitor.toml"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        self::text(&output.stderr)
    );
    // Everything else is still checked.
    let text = format!("{text}colour = 'red'\n");
    let folder = self::folder(&[("monitor.toml", text.as_bytes())]);
    let output = check(folder.path(), &["--without-env", "monitor.toml"]);
    assert!(self::text(&output.stderr).contains("unknown key `colour`"));
}

#[test]
fn one_misplaced_key_does_not_make_a_monitor_file_a_profile() {
    let text = format!("[policy.KEYS_CHECK]\nwarning_pct = 50\n[history]\n{MONITOR}");
    let folder = folder(&[("monitor.toml", text.as_bytes())]);
    let output = check(folder.path(), &["--without-env", "monitor.toml"]);
    let shown = self::text(&output.stderr);
    assert!(shown.contains("unknown key `policy`"), "{shown}");
    assert!(!shown.contains("missing key `profile`"), "{shown}");
}

#[test]
fn option_files_are_checked_with_telemetry_and_throttlers() {
    let good =
        b"[limits.a]\nlimit = '1/s'\n[metrics]\nunit = 'seconds'\n[logs]\ndenials = 'every'\n\
                 [tracing]\nendpoint = 'http://127.0.0.1:4317'\n\
                 [throttlers.import]\nrate = '12000/s'\npartition_rate = '2000/s'\n";
    let throttler = b"[throttlers.import]\nrate = 12000\npartition_rate = 2000\n";
    let bad = b"[limits.a]\nlimit = '10/500ms window'\n[logs]\nlevel = 'loud'\n\
                [throttlers.import]\nrate = 'fast'\nburts = '10%'\n";
    let folder = folder(&[
        ("good.toml", good),
        ("throttler.toml", throttler),
        ("bad.toml", bad),
    ]);
    let output = check(folder.path(), &["good.toml", "throttler.toml", "bad.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        "good.toml: options, 1 limit, 1 throttler, valid\n\
         throttler.toml: options, 0 limits, 1 throttler, valid\n"
    );
    let shown = text(&output.stderr);
    for part in [
        "error: a fixed window must be at least 1 s long",
        " --> bad.toml:2:9",
        "`level` must be \"off\", \"error\"",
        " --> bad.toml:4:9",
        "`rate`: write a rate as 2000/s, 600/min or 40/h",
        " --> bad.toml:6:8",
        "unknown key `burts` in [throttlers.import]; did you mean `burst`?",
        "missing key `partition_rate` in [throttlers.import]",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn the_reference_file_of_options_is_valid() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let output = check(&docs, &["options.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_rule_that_another_spelling_escapes_is_a_warning() {
    let profile = b"profile = 'p'\n[[policy]]\nname = 'a'\nlimit = '1/s'\n\
        match = ['GET /x//y', 'GET /x/../y', 'GET /a%2Fb', 'GET /a;b', 'GET /fine/%41']\n\
        [[policy]]\nname = 'heads'\nlimit = '1/s'\nmatch = ['HEAD /fine/%41']\n";
    let gateway = b"[[listener]]\naddress = '127.0.0.1:0'\n[[upstream]]\nname = 'a'\n\
        url = 'http://127.0.0.1:1'\n[[route]]\npath = '/'\nupstream = 'a'\nupgrade = ['h2c']\n\
        [[route]]\npath = '/static/'\nupstream = 'a'\nlimits = false\n\
        [identity]\nuser_id_header = 'x-user'\n[paths]\nmethod_override = 'keep'\n\
        [[policies.policy]]\nname = 'b'\nlimit = '1/s'\nmatch = ['GET /static/x']\n";
    let folder = folder(&[("profile.toml", profile), ("gateway.toml", gateway)]);
    let output = check(folder.path(), &["profile.toml", "gateway.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stderr);
    for part in [
        "warning: profile.toml: policy a: `/x//y` counts nothing, because repeated slashes",
        "warning: profile.toml: policy a: `/x/../y` counts nothing, because the segments",
        "warning: profile.toml: policy a: `/a%2Fb` counts nothing, because requests with an encoded",
        "warning: profile.toml: policy a: `/a;b` counts nothing, because requests with `;`",
        "warning: profile.toml: policy heads: because of `HEAD /fine/%41`, policy a does not count HEAD",
        "warning: gateway.toml: route /: requests within a tunnel of h2c",
        "warning: gateway.toml: route /static/: with `limits = false`, policy b does not count",
        "warning: gateway.toml: [identity] names headers of proxies, but no `trusted_proxies`",
        "warning: gateway.toml: [paths] method_override: a caller can name another method",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert_eq!(shown.lines().count(), 9, "{shown}");
    let output = check(folder.path(), &["--json", "profile.toml"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 5);
}
