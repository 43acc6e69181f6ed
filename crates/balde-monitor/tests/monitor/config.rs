//! The monitor's configuration file: the reference has every key, and every problem is reported at
//! once with its position.

use std::path::Path;

use balde_monitor::analyse::Credits;
use balde_monitor::config::{ScheduleConfig, SourceConfig};
use balde_monitor::sample::BucketId;
use balde_monitor::severity::{Severity, Thresholds};
use balde_monitor::{Config, TimeSource};

const REFERENCE: &str = include_str!("../../../../docs/monitor.toml");

fn variables(name: &str) -> Option<String> {
    let value = match name {
        "BALDE_SLACK_URL" | "BALDE_TEAMS_URL" => "https://hooks.slack.com/services/T0/B0/secret",
        "" => return None,
        _ => "0123456789abcdef0123456789abcdef",
    };
    Some(value.to_owned())
}

fn parsed(text: &str) -> Result<Config, String> {
    let config = Config::parse(text, "monitor.toml", Path::new(""), variables);
    config.map_err(|error| {
        let problems = error.diagnostics().iter().map(ToString::to_string);
        problems.collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn the_reference_is_valid_and_shows_the_defaults() {
    let reference = parsed(REFERENCE).unwrap();
    let bare = parsed(
        "[[participant]]\nispb = \"12345678\"\n\
         dict = \"https://dict-h.pi.rsfn.net.br:16522/api/v2/\"\n",
    )
    .unwrap();
    assert_eq!(reference.http.listen, bare.http.listen);
    assert_eq!(reference.history, bare.history);
    assert_eq!(reference.plan.schedule, bare.plan.schedule);
    assert_eq!(reference.plan.budget, bare.plan.budget);
    assert_eq!(reference.plan.retention, bare.plan.retention);
    assert_eq!(reference.schedule, ScheduleConfig::Embedded);
    assert_eq!(reference.staleness, bare.staleness);
    assert_eq!(reference.analysis, bare.analysis);
    assert_eq!(reference.routes, bare.routes);
    let any = BucketId::new("12345678", "ENTRIES_WRITE").unwrap();
    assert_eq!(reference.rules.rule(&any), bare.rules.rule(&any));
    let small = BucketId::new("12345678", "CLAIMS_LIST_WITHOUT_ROLE").unwrap();
    let own = Thresholds::new(5_000, 2_000, 500).unwrap();
    assert_eq!(reference.rules.rule(&small).thresholds(), own);
    assert_eq!(reference.participants.len(), 2);
    assert!(matches!(
        reference.participants[1].source,
        SourceConfig::Gateway { .. }
    ));
    let names: Vec<&str> = reference.sinks.iter().map(|sink| &*sink.name).collect();
    assert_eq!(
        names,
        [
            "log",
            "events",
            "chat",
            "on-call",
            "on-call-opsgenie",
            "teams",
            "mail",
            "tickets",
            "kafka",
            "incidents"
        ]
    );
}

/// The message about an unknown key lists the keys that its section has; the reference has them all.
#[test]
fn the_reference_has_every_key() {
    for (text, section) in [
        ("oops = 1", "`oops`;"),
        ("[http]\noops = 1", "in [http]"),
        ("[history]\noops = 1", "in [history]"),
        ("[schedule]\nkind = \"embedded\"\noops = 1", "in [schedule]"),
        ("[alerts]\noops = 1", "in [alerts]"),
        ("[alerts.policy.A]\noops = 1", "in [alerts.policy.A]"),
        ("[severities]\noops = 1", "in [severities]"),
        (
            "[[participant]]\nispb = \"1\"\ndict = \"http://a/\"\noops = 1",
            "in [[participant]]",
        ),
        (
            "[[sink]]\nname = \"a\"\nkind = \"webhook\"\noops = 1",
            "in [[sink]]",
        ),
    ] {
        let problems = parsed(text).unwrap_err();
        let line = problems
            .lines()
            .find(|line| line.contains("`oops`"))
            .unwrap_or_else(|| panic!("{text}: {problems}"));
        assert!(line.contains(section), "{line}");
        let keys = line.split("expected one of ").nth(1);
        for key in keys.expect("it lists the known keys").split(", ") {
            assert!(
                REFERENCE.contains(key),
                "{key} of {section} is not in the reference"
            );
        }
    }
}

#[test]
fn every_problem_is_reported_at_once_with_its_position() {
    let problems = parsed(
        r#"
[http]
address = "everywhere"
[history]
retention = '0 months'
[schedule]
cron = "every five minutes"
detect_spikes = "heard"
list_budget = "6 a minute"
[alerts]
warning = '5%'
critical = '10%'
stale_severity = "NORMAL"
[severities]
WARNING = ["log", "carrier pigeon"]
[[participant]]
ispb = "123"
dict = "ftp://dict/"
certificate = "missing.pem"
[[participant]]
ispb = "87654321"
[[sink]]
name = "log"
kind = "log"
[[sink]]
name = "a b"
kind = "slack"
[[participant]]
ispb = "a/b"
gateway = "http://127.0.0.1/states"
[[sink]]
name = "hook"
kind = "webhook"
classes = []
url = "gopher://hook/"
secret_env = "S"
"#,
    )
    .unwrap_err();
    for expected in [
        "monitor.toml:3:11: `address` must be an address",
        "monitor.toml:5:13: `retention` must be",
        "monitor.toml:7:8:",
        "monitor.toml:8:17: `detect_spikes` must be true or false",
        "monitor.toml:9:18:",
        "CRITICAL at 10 % comes before WARNING at 5 %",
        "monitor.toml:13:18: `stale_severity` must be",
        "monitor.toml:15:19: expected log, event, gauge",
        "monitor.toml:19:15: cannot read the file",
        "`certificate` and `key` are used together",
        "needs `dict`, the base URL of DICT, or `gateway`",
        "there is a sink of this name already",
        "`ispb` must have 8 characters",
        "`classes` is empty",
        "this kind of sink needs `url_env`",
    ] {
        assert!(
            problems.contains(expected),
            "{expected:?} is not in\n{problems}"
        );
    }
}

#[test]
fn the_horizons_of_the_analysis_are_read_and_checked() {
    let bare = "[[participant]]\nispb = \"12345678\"\ndict = \"http://127.0.0.1/\"\n";
    let section = |keys: &str| parsed(&format!("{bare}[analysis]\n{keys}\n"));
    let config =
        section("windows = ['30 min', '2 min']\ngap_max = '20 min'\ntimestamp_error = '250 ms'");
    let analysis = config.unwrap().analysis;
    for policy in ["ENTRIES_WRITE", "ENTRIES_READ_PARTICIPANT_ANTISCAN"] {
        let settings = analysis.settings(policy);
        assert_eq!(settings.windows_us(), [120_000_000, 1_800_000_000]);
        assert_eq!(settings.gap_max_us(), 1_200_000_000);
        assert_eq!(settings.timestamp_error_us(), 250_000);
    }
    // Also together with another list of credited policies.
    let config =
        section("windows = ['2 min']\n[alerts]\ncredited_policies = [\"REFUND\"]").unwrap();
    let settings = config.analysis.settings("REFUNDS_WRITE");
    assert_eq!(settings.windows_us(), [120_000_000]);
    assert_eq!(settings.credits(), Credits::Possible);
    for (keys, expected) in [
        ("windows = []", "monitor.toml:5:11: name 1 to 16 windows"),
        ("windows = ['0 h']", "monitor.toml:5:12:"),
        ("windows = ['1 min', '5 mm']", "monitor.toml:5:21:"),
        ("windows = ['25 h']", "between 1s and 86400s"),
        ("windows = 60", "monitor.toml:5:11:"),
        (
            "gap_max = '0 s'",
            "`gap_max`: it must be between 1s and 86400s",
        ),
        ("timestamp_error = -1", "monitor.toml:5:19:"),
        ("horizon = 5", "horizon"),
    ] {
        let problems = section(keys).unwrap_err();
        assert!(problems.contains(expected), "{keys}: {problems}");
    }
}

#[test]
fn a_secret_that_is_not_set_is_pointed_at_and_none_is_shown() {
    let text = "[[participant]]\nispb = \"12345678\"\ndict = \"http://127.0.0.1/\"\n\
                [[sink]]\nname = \"chat\"\nkind = \"slack\"\nurl_env = \"NOT_SET\"\n";
    let error = Config::parse(text, "monitor.toml", Path::new(""), |_| None).unwrap_err();
    let shown = error.to_string();
    assert!(shown.contains("monitor.toml:7:11"), "{shown}");
    assert!(
        shown.contains("the name of a variable, not its value"),
        "{shown}"
    );
    // Somebody may have written the secret itself there.
    assert!(!shown.contains("NOT_SET"), "{shown}");
    let sinks = "[[sink]]\nname = \"a\"\nkind = \"pagerduty\"\nrouting_key_env = \"hunter2\"\n\
                 [[sink]]\nname = \"b\"\nkind = \"webhook\"\nurl_env = \"hunter2\"\n\
                 secret_env = \"hunter2\"\nproxy_env = \"hunter2\"\n\
                 [http]\ntoken_env = \"hunter2\"\n[history]\naddress_env = \"hunter2\"\n";
    let all = format!("{DICT}{sinks}");
    let error = Config::parse(&all, "monitor.toml", Path::new(""), |_| None).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let hints = shown.matches("is not set, or empty").count();
    assert!(hints >= 6, "{hints}: {shown}");
    let config = parsed(&text.replace("NOT_SET", "BALDE_SLACK_URL")).unwrap();
    assert!(!format!("{config:?}").contains("secret"));
}

#[tokio::test]
async fn a_monitor_without_its_folder_says_so() {
    let text = "[history]\naddress = \"/nowhere/at/all/monitor.db\"\n\
                [[participant]]\nispb = \"12345678\"\ndict = \"http://127.0.0.1/\"\n";
    let config = parsed(text).unwrap();
    let error = balde_monitor::Monitor::build(&config, TimeSource::system()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all"), "{error}");
    assert_eq!(Severity::named("CRITICAL"), Some(Severity::Critical));
}

const DICT: &str = "[[participant]]\nispb = \"12345678\"\ndict = \"http://127.0.0.1:1/api/v2/\"\n";

#[test]
fn a_misspelt_policy_is_found_unless_a_gateway_may_have_it() {
    let rule = "[alerts.policy.CLAIMS_LIST_WITHOT_ROLE]\nwarning = '50%'\n";
    let error = parsed(&format!("{DICT}{rule}")).unwrap_err();
    assert!(
        error.contains("did you mean `CLAIMS_LIST_WITHOUT_ROLE`?"),
        "{error}"
    );
    assert!(error.contains(":4:"), "{error}");
    let gateway = "[[participant]]\nispb = \"87654321\"\ngateway = \"http://127.0.0.1:1/\"\n";
    parsed(&format!("{DICT}{gateway}{rule}")).unwrap();
    let error = parsed(&format!(
        "{DICT}[alerts]\ncredited_policies = [\"ANTISKAN\"]\n"
    ))
    .unwrap_err();
    assert!(error.contains("ANTISKAN"), "{error}");
}

#[test]
fn thresholds_are_named_in_percent() {
    let error = parsed(&format!(
        "{DICT}[alerts]\nwarning = '5%'\ncritical = '10%'\n"
    ));
    let error = error.unwrap_err();
    assert!(
        error.contains("CRITICAL at 10 % comes before WARNING at 5 %"),
        "{error}"
    );
    let text =
        format!("{DICT}[alerts]\nexhausted = '2%'\n[alerts.policy.KEYS_CHECK]\nexhausted = '5%'\n");
    let config = parsed(&text).unwrap();
    let limit = balde_monitor::sample::ReportedLimit::new(100, 1, 1).unwrap();
    for (policy, level) in [("ENTRIES_WRITE", 2), ("KEYS_CHECK", 5)] {
        let bucket = BucketId::new("12345678", policy).unwrap();
        let thresholds = config.rules.rule(&bucket).thresholds();
        assert_eq!(thresholds.severity(level, limit), Severity::Exhausted);
        assert_eq!(thresholds.severity(level + 1, limit), Severity::Critical);
    }
}

#[test]
fn localhost_is_an_address_to_listen_on() {
    let config = parsed(&format!("{DICT}[http]\naddress = \"localhost:9180\"\n")).unwrap();
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:9180");
    let error = parsed(&format!("{DICT}[http]\naddress = \"example.com:9180\"\n")).unwrap_err();
    assert!(error.contains("localhost:9180"), "{error}");
}

#[test]
fn secrets_may_be_in_files_and_among_the_credentials_of_systemd() {
    let folder = tempfile::tempdir().unwrap();
    let credentials = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "from a file\n").unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    let passed = credentials.path().to_str().unwrap().to_owned();
    let variable = |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| passed.clone());
    let parse = |keys: &str| {
        let text = format!("{DICT}[http]\n{keys}\n");
        Config::parse(&text, "monitor.toml", folder.path(), variable)
    };
    let token = |keys: &str| parse(keys).unwrap().http.token;
    assert_eq!(
        token("token_file = \"token\"").as_deref(),
        Some("from a file")
    );
    std::fs::write(credentials.path().join("token"), "from systemd").unwrap();
    assert_eq!(
        token("token_file = \"token\"").as_deref(),
        Some("from systemd")
    );
    for (keys, expected) in [
        ("token_file = \"missing\"", "cannot read"),
        ("token_file = \"empty\"", "is empty"),
        (
            "token_file = \"token\"\ntoken_env = \"T\"",
            "either `token_env` or `token_file`",
        ),
    ] {
        let error = parse(keys).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("from"), "{error}");
    }
}

#[test]
fn keys_that_cannot_be_used_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let names = vec!["client".to_owned()];
    let one = rcgen::generate_simple_self_signed(names.clone()).unwrap();
    let other = rcgen::generate_simple_self_signed(names).unwrap();
    write("client.pem", &one.cert.pem());
    write("own.key", &one.signing_key.serialize_pem());
    write("other.key", &other.signing_key.serialize_pem());
    let encrypted = one
        .signing_key
        .serialize_pem()
        .replace("PRIVATE", "ENCRYPTED PRIVATE");
    write("encrypted.key", &encrypted);
    write("no.key", "nothing");
    let parse = |key: &str| {
        let text = format!("{DICT}certificate = \"client.pem\"\nkey = \"{key}\"\n");
        Config::parse(&text, "monitor.toml", folder.path(), variables)
    };
    parse("own.key").unwrap();
    for (key, expected) in [
        ("other.key", "does not belong to `certificate`"),
        ("encrypted.key", "openssl pkey"),
        ("no.key", "no private key in PEM"),
    ] {
        let error = parse(key).unwrap_err().to_string();
        assert!(error.contains(expected), "{key}: {error}");
    }
}

#[test]
fn temporal_takes_a_client_certificate_and_an_api_key_over_tls_only() {
    let schedule = |keys: &str| format!("{DICT}[schedule]\nkind = \"temporal\"\n{keys}\n");
    let tls = "temporal_address = \"https://temporal.example:7233\"\n";
    let config = parsed(&schedule(&format!("{tls}temporal_api_key_env = \"K\""))).unwrap();
    let ScheduleConfig::Temporal(settings) = config.schedule else {
        panic!("Temporal");
    };
    assert_eq!(settings.api_key.as_deref(), variables("K").as_deref());
    assert!(!format!("{settings:?}").contains("0123"), "{settings:?}");
    let error = parsed(&schedule("temporal_api_key_env = \"K\"")).unwrap_err();
    assert!(error.contains("https://"), "{error}");
}

/// Problems of sinks, each with its line.
#[test]
fn mistakes_in_sinks_are_reported_with_what_to_write() {
    let sink = |keys: &str| format!("[[sink]]\nname = \"x\"\n{keys}\n");
    let mail = "kind = \"email\"\nurl = \"smtp://mail\"\nfrom = \"a@b.example\"\n";
    let kafka = "kind = \"kafka\"\ntopic = \"t\"\n";
    for (keys, expected) in [
        (mail.to_owned(), "missing key `to`"),
        (format!("{mail}to = []"), "1 to 50 addresses"),
        (
            format!("{mail}to = [\"c@d.example\"]\nuser = \"x\""),
            "`password_env`",
        ),
        (
            format!(
                "{mail}to = [\"c@d.example\"]\nuser = \"x\"\npassword_env = \"P\"\nstarttls = false"
            ),
            "a password is not sent without TLS",
        ),
        (
            format!("{mail}to = [\"c@d.example\"]\nproxy = \"http://proxy\""),
            "`proxy` is for sinks that are reached by HTTP",
        ),
        (
            format!("{kafka}url = \"http://kafka:9092\""),
            "kafka+ssl://host:9093",
        ),
        (
            format!("{kafka}url = \"kafka://kafka:9092\"\nsasl = \"plain\""),
            "`sasl` and `user`",
        ),
        (
            format!(
                "{kafka}url = \"kafka://kafka:9092\"\nsasl = \"kerberos\"\nuser = \"x\"\npassword_env = \"P\""
            ),
            "scram-sha-512",
        ),
        ("kind = \"teams\"".to_owned(), "`url_env` or `url_file`"),
        (
            "kind = \"opsgenie\"".to_owned(),
            "`api_key_env` or `api_key_file`",
        ),
        (
            "kind = \"http\"\nurl = \"https://a.example\"".to_owned(),
            "`body` or `body_file`",
        ),
        (
            "kind = \"http\"\nurl = \"https://a.example\"\nbody = '{\"a\": {{ nonsense }}}'"
                .to_owned(),
            "undefined",
        ),
        (
            "kind = \"http\"\nurl = \"https://a.example\"\nbody = '{}'\nmethod = \"GET\""
                .to_owned(),
            "POST, PUT or PATCH",
        ),
    ] {
        let problem = parsed(&sink(&keys)).unwrap_err();
        assert!(problem.contains(expected), "{keys}\n{problem}");
        assert!(problem.contains("monitor.toml:"), "{problem}");
    }
}
