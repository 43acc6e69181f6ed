//! The monitor's configuration file: the reference has every key, and every problem is reported at
//! once with its position.

use std::path::Path;

use balde_monitor::config::{ScheduleConfig, SourceConfig};
use balde_monitor::sample::BucketId;
use balde_monitor::severity::{Severity, Thresholds};
use balde_monitor::{Config, TimeSource};

const REFERENCE: &str = include_str!("../../../../docs/monitor.toml");

fn variables(name: &str) -> Option<String> {
    let value = match name {
        "BALDE_SLACK_URL" => "https://hooks.slack.com/services/T0/B0/secret",
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
    assert_eq!(names, ["log", "events", "chat", "on-call", "incidents"]);
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
        ("[routes]\noops = 1", "in [routes]"),
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
listen = "everywhere"
[history]
retention_months = 0
[schedule]
cron = "every five minutes"
peaks = "heard"
list_budget = "6 a minute"
[alerts]
warning_pct = 5
critical_pct = 10
stale_as = "NORMAL"
[routes]
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
serves_as = []
url = "gopher://hook/"
secret_env = "S"
"#,
    )
    .unwrap_err();
    for expected in [
        "monitor.toml:3:10: `listen` must be an address",
        "monitor.toml:5:20: `retention_months` must be between 1 and 1200",
        "monitor.toml:7:8:",
        "monitor.toml:8:9: `peaks` must be \"seen\" or \"missed\"",
        "monitor.toml:9:18:",
        "CRITICAL at 1000 basis points comes before WARNING at 500",
        "monitor.toml:13:12: `stale_as` must be",
        "monitor.toml:15:19: expected log, event, gauge",
        "monitor.toml:19:15: cannot read the file",
        "`certificate` and `key` are used together",
        "needs `dict`, the base URL of DICT, or `gateway`",
        "there is a sink of this name already",
        "`ispb` must have 8 characters",
        "`serves_as` is empty",
        "this kind of sink needs `url_env`",
    ] {
        assert!(
            problems.contains(expected),
            "{expected:?} is not in\n{problems}"
        );
    }
}

#[test]
fn a_secret_that_is_not_set_is_named_and_none_is_shown() {
    let text = "[[participant]]\nispb = \"12345678\"\ndict = \"http://127.0.0.1/\"\n\
                [[sink]]\nname = \"chat\"\nkind = \"slack\"\nurl_env = \"NOT_SET\"\n";
    let error = Config::parse(text, "monitor.toml", Path::new(""), |_| None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("environment variable NOT_SET: it is not set, or empty")
    );
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
