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
        .replace("in_flight = \"held\"", "in-flite = \"held\"")
        .replace("credit_statuses = [200]", "credit_statuses = [2000]")
        .replace("GET /event-notifications", "GET /events");
    let other = b"api = 'ftp'\nprofile = 'x'\n[[policy]]\nname = 'a'\nlimit = '1/s'\n";
    let folder = folder(&[("mine.toml", changed.as_bytes()), ("ftp.toml", other)]);
    let output = check(folder.path(), &["mine.toml", "ftp.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    for part in [
        "setting `in-flite`: DICT has none of that name",
        "in-flite = \"held\"\n",
        "setting `credit_statuses`: expected a list of statuses",
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
        url = 'http://127.0.0.1:1'\n[[route]]\npath = '/'\nupstream = 'a'\n[redis]\naddress = '127.0.0.1:1'\n";
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
    let text = format!("[policy.KEYS_CHECK]\nwarning = '50%'\n[history]\n{MONITOR}");
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
        match = ['GET /a%2Fb', 'GET /fine/%41']\n\
        [[policy]]\nname = 'heads'\nlimit = '1/s'\nmatch = ['HEAD /fine/%41']\n";
    let gateway = b"[[listener]]\naddress = '127.0.0.1:0'\n[[upstream]]\nname = 'a'\n\
        url = 'http://127.0.0.1:1'\n[[route]]\npath = '/'\nupstream = 'a'\nupgrade = ['h2c']\n\
        [[route]]\npath = '/static/'\nupstream = 'a'\npolicies = false\n\
        [paths]\nmethod_override = 'keep'\n\
        [[policies.policy]]\nname = 'b'\nlimit = '1/s'\nmatch = ['GET /static/x']\n";
    let folder = folder(&[("profile.toml", profile), ("gateway.toml", gateway)]);
    let output = check(folder.path(), &["profile.toml", "gateway.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stderr);
    for part in [
        "warning: profile.toml: policy a: `/a%2Fb` counts nothing, because requests with an encoded",
        "warning: profile.toml: policy heads: because of `HEAD /fine/%41`, policy a does not count HEAD",
        "warning: gateway.toml: route /: requests within a tunnel of h2c",
        "warning: gateway.toml: route /static/: with `policies = false`, policy b does not count",
        "warning: gateway.toml: [paths] method_override: a caller can name another method",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert_eq!(shown.lines().count(), 5, "{shown}");
    let output = check(folder.path(), &["--json", "profile.toml"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2);
}

#[test]
fn a_rule_that_can_never_match_is_an_error_with_what_to_write_instead() {
    let gateway = "[[listener]]\naddress = '127.0.0.1:0'\n[[upstream]]\nname = 'a'\n\
        url = 'http://127.0.0.1:1'\n[[route]]\npath = '/'\nupstream = 'a'\n";
    for (rule, expected) in [
        ("GET /search*", "as in `/search/{*}`"),
        ("GET /*", "write `{*}` as the last segment"),
        ("/a/*/b", "`{name}` for any one segment"),
        (
            "ANY /{*}",
            "leave the methods out to match all of them, as in \"/{*}\"",
        ),
        ("GET,ALL /orders", "`ALL` is no method of HTTP"),
        ("GET /x//y", "write one slash"),
        ("GET /x/../y", "write the path without them"),
        ("GET /x/%2e%2e/y", "write the path without them"),
        ("GET /a;b", "write the path without it"),
    ] {
        let policy = format!("name = 'p'\nlimit = '1/s'\nmatch = ['{rule}']\n");
        let profile = format!("profile = 'x'\n[[policy]]\n{policy}");
        let inline = format!("{gateway}[[policies.policy]]\n{policy}");
        for (name, text, line) in [("profile.toml", profile, 5), ("gateway.toml", inline, 12)] {
            let folder = folder(&[(name, text.as_bytes())]);
            let output = check(folder.path(), &[name]);
            let shown = self::text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{rule}: {shown}");
            assert!(
                shown.contains(expected),
                "{rule}: {expected} is not in\n{shown}"
            );
            assert!(
                shown.contains(&format!(" --> {name}:{line}:")),
                "{rule}: {shown}"
            );
            assert_eq!(shown.matches("error: ").count(), 1, "{rule}: {shown}");
        }
    }
    for (line, expected) in [
        ("path = '/search*'", "`path` is a prefix without wildcards"),
        ("path = '/'\nmethods = ['ANY']", "leave `methods` out"),
    ] {
        let text = gateway.replace("path = '/'", line);
        let folder = folder(&[("gateway.toml", text.as_bytes())]);
        let output = check(folder.path(), &["gateway.toml"]);
        let shown = self::text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {shown}");
        assert!(shown.contains(expected), "{line}: {shown}");
    }
}

#[test]
fn a_header_that_nobody_is_trusted_to_send_is_an_error() {
    let gateway = "[[listener]]\naddress = '127.0.0.1:0'\n[[upstream]]\nname = 'a'\n\
        url = 'http://127.0.0.1:1'\n[[route]]\npath = '/'\nupstream = 'a'\n";
    let options = "[limits.a]\nlimit = '1/s'\n";
    for key in ["api_key_header", "user_id_header"] {
        for (name, before) in [("gateway.toml", gateway), ("options.toml", options)] {
            let section = format!("{before}[identity]\n{key} = 'x-name'\n");
            let trusting = format!("{section}trusted_proxies = ['10.0.0.0/8']\n");
            let folder = folder(&[
                (name, section.as_bytes()),
                ("good.toml", trusting.as_bytes()),
            ]);
            let output = check(folder.path(), &[name]);
            let shown = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{name}: {shown}");
            let expected = format!("`{key}` needs `trusted_proxies`");
            assert!(shown.contains(&expected), "{name}: {shown}");
            let output = check(folder.path(), &["good.toml"]);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
    }
}

#[test]
fn json_has_file_line_column_and_message_of_every_problem() {
    let bad = b"profile = 'bad'\n[[policy]]\nname = 'a'\nlimit = '10/fortnight'\ncots = 1\n";
    let folder = folder(&[("bad.toml", bad), ("unknown.toml", b"colour = 'red'\n")]);
    let files = ["--json", "bad.toml", "unknown.toml", "missing.toml"];
    let output = check(folder.path(), &files);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty());
    let lines: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        (&lines[0]["file"], &lines[0]["valid"]),
        (&"bad.toml".into(), &false.into())
    );
    assert_eq!(
        lines[0]["errors"],
        serde_json::json!([
            {
                "file": "bad.toml", "line": 4, "column": 13, "variable": null,
                "message": "unknown unit `fortnight`; use us, ms, s, min, h, day or week",
            },
            {
                "file": "bad.toml", "line": 5, "column": 1, "variable": null,
                "message": "unknown key `cots` in [[policy]]; did you mean `costs`?",
            },
        ])
    );
    for (index, file) in [(1, "unknown.toml"), (2, "missing.toml")] {
        let error = &lines[index]["errors"][0];
        assert_eq!(error["file"], file);
        assert!(
            error["line"].is_null() && error["message"].is_string(),
            "{error}"
        );
    }
    // A variable has neither file nor line.
    let options = b"[limits.a]\nlimit = '1/s'\n";
    let folder = self::folder(&[("options.toml", options)]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    let command = command
        .current_dir(folder.path())
        .env("RL_STORAGE_MODE", "tape");
    let output = command
        .args(["check", "--json", "options.toml"])
        .output()
        .unwrap();
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["errors"][0]["variable"], "RL_STORAGE_MODE", "{line}");
}

/// A gateway that lacks nothing.
const GATEWAY: &str = "[[listener]]\naddress = '127.0.0.1:0'\n\
    [[upstream]]\nname = 'a'\nurl = 'http://127.0.0.1:1'\n\
    [[route]]\npath = '/'\nupstream = 'a'\n";

/// Whoever replaces `from` by `to` in the valid file gets one message, however many other places depend
/// on it.
fn assert_one_message(valid: &str, from: &str, to: &str, expected: &str) {
    let changed = valid.replace(from, to);
    assert_ne!(valid, changed, "{from} is not in {valid}");
    let folder = folder(&[
        ("gateway.toml", valid.as_bytes()),
        ("changed.toml", changed.as_bytes()),
    ]);
    let output = check(folder.path(), &["gateway.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = check(folder.path(), &["changed.toml"]);
    let shown = text(&output.stderr);
    assert!(
        shown.contains(expected),
        "{to}: {expected} is not in\n{shown}"
    );
    assert_eq!(shown.matches("error: ").count(), 1, "{to}: {shown}");
}

#[test]
fn an_error_that_follows_from_another_one_is_not_shown() {
    let dict = "[dict]\nupstream = 'a'\nparticipants = ['12345678']\ncheck_keys_as = '12345678'\n\
                [dict.certificates]\n12345678 = []\n";
    let dict = format!("{GATEWAY}{dict}");
    let policy = "[[policies.policy]]\nname = 'p'\nlimit = '1/s'\n";
    let uses = "[limiting]\nshadow = ['p']\n[[limiting.reserve]]\npolicy = 'p'\nclass = 'c'\n\
                share = '10%'\n[[class]]\nname = 'c'\nnetworks = ['10.0.0.0/8']\n";
    let uses = format!("{GATEWAY}{uses}{policy}");
    let redis = "[redis]\naddress = '127.0.0.1:1'\n[limiting]\nstorage = 'redis'\n";
    let redis = format!("{GATEWAY}{redis}{policy}");
    let profile = "profile = 'x'\n[scopes]\ns = ['user']\n[settings]\nr = 'stepwise'\n\
                   [[policy]]\nname = 'p'\nscope = 's'\nrefill = '$r'\nlimit = '1/s'\n";
    let options = "[redis]\naddress = '127.0.0.1:1'\n[limits.a]\nlimit = '1/s'\nstorage = 'redis'\n\
                   on_failure = 'deny'\n[throttlers.t]\nrate = '2/s'\npartition_rate = '1/s'\n";
    let gopher = ("url = 'http", "url = 'gopher", "`url` must be http://");
    assert_one_message(GATEWAY, gopher.0, gopher.1, gopher.2);
    assert_one_message(&dict, gopher.0, gopher.1, gopher.2);
    assert_one_message(GATEWAY, "name = 'a'", "nme = 'a'", "unknown key `nme`");
    assert_one_message(GATEWAY, "name = 'a'", "name = 3", "`name` must be a string");
    assert_one_message(GATEWAY, "address", "adress", "unknown key `adress`");
    let tls = "0'\ncertificate = 'x'\nkey = 'gateway.toml'\nclient_ca = 'gateway.toml'\n";
    assert_one_message(GATEWAY, "0'\n", tls, "cannot read the file");
    assert_one_message(&dict, "['12345678']", "['1234567']", "must be an ISPB");
    assert_one_message(&uses, "'1/s'", "'1/fortnight'", "unknown unit");
    assert_one_message(&uses, "name = 'c'", "nam = 'c'", "unknown key `nam`");
    let (from, to) = ("[redis]\naddress", "[redis]\nadress");
    assert_one_message(&redis, from, to, "unknown key `adress`");
    assert_one_message(profile, "['user']", "['usr']", "a key part must be");
    assert_one_message(profile, "r = 'stepwise'", "r = []", "setting");
    assert_one_message(profile, "profile = ", "profle = ", "unknown key `profle`");
    assert_one_message(options, from, to, "unknown key `adress`");
    assert_one_message(options, "\nrate = ", "\nrte = ", "unknown key `rte`");
    // What does not follow from it is shown.
    let text = GATEWAY.replace(gopher.0, gopher.1) + "[[route]]\npath = '/b'\nupstream = 'b'\n";
    let folder = folder(&[("gateway.toml", text.as_bytes())]);
    let output = check(folder.path(), &["gateway.toml"]);
    let shown = self::text(&output.stderr);
    assert!(shown.contains("there is no upstream `b`"), "{shown}");
    assert_eq!(shown.matches("error: ").count(), 2, "{shown}");
}

#[test]
fn every_kind_of_file_is_checked_without_its_environment() {
    let gateway = "[[listener]]\naddress = '127.0.0.1:0'\ncertificate = 'missing.pem'\nkey = 'missing.key'\n\
        client_ca = 'missing-ca.pem'\n[[upstream]]\nname = 'a'\nurl = 'https://127.0.0.1:1'\nca = 'no.pem'\n\
        [[route]]\npath = '/'\nupstream = 'a'\n[state]\naddress = '127.0.0.1:0'\ntoken_env = 'NOT_SET_3'\n\
        [limiting]\nstorage = 'redis'\n[redis]\npassword_env = 'NOT_SET_4'\nca = 'missing.pem'\n\
        [[policies.policy]]\nname = 'p'\nlimit = '1/s'\non_failure = 'deny'\n";
    let options = "[limits.a]\nlimit = '1/s'\nstorage = 'redis'\non_failure = 'deny'\n\
        [redis]\naddress = 'rediss://127.0.0.1:1'\npassword_env = 'NOT_SET_5'\nca = 'missing.pem'\n\
        certificate = 'missing.pem'\nkey = 'missing.key'\n";
    let profile = "profile = 'x'\n[[policy]]\nname = 'p'\nlimit = '1/s'\n";
    let monitor = format!("{MONITOR}[[sink]]\nname = 's'\nkind = 'slack'\nurl_env = 'NOT_SET_6'\n");
    for (name, text, is_valid) in [
        ("gateway.toml", gateway, false),
        ("options.toml", options, false),
        ("profile.toml", profile, true),
        ("monitor.toml", &monitor, false),
    ] {
        let folder = folder(&[(name, text.as_bytes())]);
        let with_env = check(folder.path(), &[name]);
        assert_eq!(with_env.status.success(), is_valid, "{name}");
        // A variable of this machine that is wrong is not read either.
        let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
        let command = command
            .current_dir(folder.path())
            .env("RL_STORAGE_MODE", "tape");
        let output = command
            .args(["check", "--without-env", name])
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{name}: {}",
            self::text(&output.stderr)
        );
        // Everything else is still checked.
        let text = format!("{text}colour = 'red'\n");
        let folder = self::folder(&[(name, text.as_bytes())]);
        let output = check(folder.path(), &["--without-env", name]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(
            self::text(&output.stderr).contains("unknown key `colour`"),
            "{name}"
        );
    }
}
