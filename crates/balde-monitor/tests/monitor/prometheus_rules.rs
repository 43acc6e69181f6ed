//! The alert rules and the dashboard use metrics that exist, promtool accepts them, and the rules
//! fire in a real Prometheus that scrapes a running monitor.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fake_dict::{Answer, FakeDict};
use crate::postgres::Postgres;
use crate::prometheus::{Prometheus, promtool_complaints, promtool_tests};
use balde::ManualClock;
use balde_monitor::{Config, Monitor, TimeSource};
use tokio::net::TcpListener;

const DONE_WITHIN: Duration = Duration::from_secs(120);
const SPEED: u32 = 60;

fn deploy(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../deploy").join(file).canonicalize().unwrap()
}

fn buckets(level: i64) -> Answer {
    Answer::Buckets(vec![
        ("CLAIMS_LIST_WITHOUT_ROLE", level, 50, 10),
        ("ENTRIES_WRITE", 36_000, 36_000, 1_200),
    ])
}

/// A clock whose minutes are seconds, until the end of the test.
fn fast_clock() -> ManualClock {
    let clock = ManualClock::at_us(balde::Clock::wall().now_us());
    let moved = clock.clone();
    tokio::spawn(async move {
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let now = Instant::now();
            moved.advance((now - last) * SPEED);
            last = now;
        }
    });
    clock
}

/// A monitor on a fast clock, until the end of the test.
async fn monitor(dict: &FakeDict, folder: &Path) -> SocketAddr {
    let clock = fast_clock();
    let text = format!(
        "[history]\naddress = \"monitor.db\"\n\
         [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n",
        dict.url()
    );
    let config = Config::parse(&text, "story", folder, |_| None).unwrap();
    let time = TimeSource::manual(&clock, SPEED);
    let monitor = Monitor::build(&config, time).await.unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { monitor.run(listener, "", std::future::pending()).await });
    address
}

async fn exposition(address: SocketAddr) -> String {
    let answer = reqwest::get(format!("http://{address}/metrics")).await;
    answer.unwrap().text().await.unwrap()
}

/// Every name in a text that begins like one of ours.
fn names(text: &str) -> BTreeSet<String> {
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let words = text.split(|one| !is_of_name(one));
    let is_ours =
        |word: &&str| word.starts_with("dict_rate_limit_") || word.starts_with("balde_monitor_");
    words.filter(is_ours).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_fire_for_a_running_monitor_and_resolve() {
    let dict = FakeDict::start(buckets(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let address = monitor(&dict, folder.path()).await;
    let rules = deploy("prometheus/balde-rules.yml");
    let Some(prometheus) = Prometheus::with_rules(address, &[&rules]) else {
        return;
    };
    let firing = || -> BTreeSet<(String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let alerts = prometheus.firing();
        let name = |alert: &serde_json::Value| (text(&alert["alertname"]), text(&alert["policy"]));
        alerts.iter().map(name).collect()
    };
    let exhausted = (
        "DictBucketExhausted".to_owned(),
        "CLAIMS_LIST_WITHOUT_ROLE".to_owned(),
    );
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            assert!(
                start.elapsed() < DONE_WITHIN,
                "{what}: {:?} {}",
                firing(),
                prometheus.targets()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    until("it fires", &|| firing().contains(&exhausted)).await;
    assert_eq!(firing().len(), 1, "nothing else fires: {:?}", firing());
    dict.answer(buckets(4));
    let critical = (
        "DictBucketCritical".to_owned(),
        "CLAIMS_LIST_WITHOUT_ROLE".to_owned(),
    );
    until("it becomes critical", &|| {
        firing() == [critical.clone()].into()
    })
    .await;
    dict.answer(buckets(50));
    until("it resolves", &|| firing().is_empty()).await;
    dict.answer(Answer::Close);
    let stale = ("BaldeMonitorStale".to_owned(), String::new());
    until("stale", &|| firing() == [stale.clone()].into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_accepts_the_metrics_and_the_deploy_files_use_existing_ones() {
    let dict = FakeDict::start(buckets(7)).await;
    let folder = tempfile::tempdir().unwrap();
    let address = monitor(&dict, folder.path()).await;
    let start = Instant::now();
    // The level falls, so that there is a forecast, too.
    let mut level = 50;
    let text = loop {
        let text = exposition(address).await;
        if text.contains("dict_rate_limit_time_to_empty_seconds{")
            && text.contains("_alerts_total{")
        {
            break text;
        }
        assert!(start.elapsed() < DONE_WITHIN, "{text}");
        level = if level <= 2 { 50 } else { level - 1 };
        dict.answer(buckets(level));
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    if let Some(complaints) = promtool_complaints(&text) {
        assert_eq!(complaints, Vec::<String>::new());
    }
    // The base unit beside the name that the source document fixes.
    // By labels, since each metric lists its buckets in an order of its own.
    let values = |name: &str| -> BTreeMap<&str, f64> {
        let values = text.lines().filter_map(|line| {
            let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            labels
                .starts_with('{')
                .then(|| (labels, value.parse().unwrap()))
        });
        values.collect()
    };
    let percents = values("dict_rate_limit_utilization_pct");
    let ratios = values("dict_rate_limit_utilization_ratio");
    assert_eq!((percents.len(), ratios.len()), (2, 2), "{text}");
    for (labels, percent) in percents {
        let ratio = ratios[labels];
        assert!((percent - ratio * 100.0).abs() < 1e-9, "{percent} {ratio}");
    }
    // Every metric that the rules and the dashboard use exists. One is exported only for participants
    // with a client certificate, which this one has not.
    let mut exported = names(&text);
    exported.insert("balde_monitor_certificate_expiry_timestamp_seconds".to_owned());
    for file in ["prometheus/balde-rules.yml", "grafana/balde-dict.json"] {
        let used = std::fs::read_to_string(deploy(file)).unwrap();
        let missing: Vec<String> = names(&used).difference(&exported).cloned().collect();
        assert_eq!(missing, Vec::<String>::new(), "{file}");
    }
    let dashboard = std::fs::read_to_string(deploy("grafana/balde-dict.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let shown = names(&dashboard.to_string());
    let design = [
        "dict_rate_limit_available_tokens",
        "dict_rate_limit_capacity",
        "dict_rate_limit_utilization_pct",
        "dict_rate_limit_alerts_total",
    ];
    for name in design {
        assert!(shown.contains(name), "{name} is on the dashboard");
    }
    let ids: BTreeSet<i64> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|panel| panel["id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids.len(), dashboard["panels"].as_array().unwrap().len());
}

/// A monitor with a runtime of its own, which dies with it: connections, database session and all.
struct Process {
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
}

impl Process {
    /// Starts a monitor on a PostgreSQL database that others may share. It listens on `address`.
    async fn start(
        dict: &FakeDict,
        database: &str,
        clock: &ManualClock,
        address: SocketAddr,
    ) -> Self {
        let text = format!(
            "[history]\naddress = \"{database}\"\n\
             [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n",
            dict.url()
        );
        let config = Config::parse(&text, "story", Path::new(""), |_| None).unwrap();
        let time = TimeSource::manual(clock, SPEED);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let started = tokio::task::spawn_blocking(move || {
            let address = runtime.block_on(async {
                let monitor = Monitor::build(&config, time).await.unwrap();
                let listener = TcpListener::bind(address).await.unwrap();
                let address = listener.local_addr().unwrap();
                let run = async move { monitor.run(listener, "", std::future::pending()).await };
                tokio::spawn(run);
                address
            });
            Self { runtime, address }
        });
        started.await.unwrap()
    }

    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// The queries of every panel, with everything selected.
fn dashboard_queries() -> Vec<(i64, String)> {
    let dashboard = std::fs::read_to_string(deploy("grafana/balde-dict.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().unwrap();
        targets.iter().map(|target| {
            let text = target["expr"].as_str().unwrap();
            let text = text.replace("$participant", ".*").replace("$policy", ".*");
            let text = text.replace("$__range", "1m");
            (panel["id"].as_i64().unwrap(), text)
        })
    });
    queries.collect()
}

/// Returns whether a poll has been stored: the time of the newest is 0 before.
fn has_answer(page: &str) -> bool {
    let name = "balde_monitor_last_success_timestamp_seconds{";
    let mut lines = page.lines().filter(|line| line.starts_with(name));
    lines.any(|line| !line.ends_with(" 0") && !line.ends_with(" 0.0"))
}

/// Two monitors on one PostgreSQL. Each of the two dies in turn while the other lives, and then both
/// are dead.
#[expect(clippy::too_many_lines, reason = "one story from beginning to end")]
#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_each_bucket_once_with_leader_and_standby_alive_and_dead() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let database = postgres.database();
    let dict = FakeDict::start(buckets(4)).await;
    let clock = fast_clock();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let until_page = async |address: SocketAddr, what: &str, parts: &[&str]| {
        let start = Instant::now();
        loop {
            let text = exposition(address).await;
            if parts.iter().all(|part| text.contains(part)) && has_answer(&text) {
                return text;
            }
            assert!(start.elapsed() < DONE_WITHIN, "{what}: {text}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let severity = "dict_rate_limit_severity{";
    let first = Process::start(&dict, &database, &clock, any).await;
    let parts = ["balde_monitor_leader 1", severity];
    let text = until_page(first.address, "it leads", &parts).await;
    // Counters exist before the first alert of their severity.
    let policy = "policy=\"ENTRIES_WRITE\"";
    let zero = |line: &str| {
        line.starts_with("dict_rate_limit_alerts_total")
            && line.contains(policy)
            && line.ends_with(" 0")
    };
    assert_eq!(text.lines().filter(|line| zero(line)).count(), 3, "{text}");
    let second = Process::start(&dict, &database, &clock, any).await;
    let parts = ["balde_monitor_leader 0", severity];
    until_page(second.address, "it is on standby", &parts).await;
    let targets = [first.address, second.address];
    let Some(prometheus) = Prometheus::with_targets(&targets, &[]) else {
        return;
    };
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            assert!(
                start.elapsed() < DONE_WITHIN,
                "{what}: {}",
                prometheus.targets()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let alive = |number: &str| {
        let sum = prometheus.query("sum(up)");
        sum.first().is_some_and(|(_, value)| value == number)
    };
    let values = |panel: i64| -> Vec<Vec<(serde_json::Value, String)>> {
        let queries = dashboard_queries();
        let own = queries.iter().filter(|(id, _)| *id == panel);
        own.map(|(_, query)| prometheus.query(query)).collect()
    };
    let is_led = || values(4)[0].first().is_some_and(|(_, value)| value == "1");
    let check = |case: &str| {
        // One value each.
        for panel in [1, 3, 4, 5, 6] {
            assert_eq!(values(panel)[0].len(), 1, "{case}: panel {panel}");
        }
        assert_eq!(values(1)[0][0].1, "2", "{case}: CRITICAL");
        // Each of the two policies once.
        for panel in [7, 8, 11, 12, 15] {
            let series = &values(panel)[0];
            let policies: BTreeSet<&str> = series
                .iter()
                .filter_map(|(labels, _)| labels["policy"].as_str())
                .collect();
            assert_eq!(
                (series.len(), policies.len()),
                (2, 2),
                "{case}: panel {panel}: {series:?}"
            );
        }
    };
    until("both are scraped", &|| alive("2")).await;
    // An increase needs two scrapes.
    until("both are scraped twice", &|| !values(6)[0].is_empty()).await;
    check("both alive");
    assert!(is_led(), "one leader");

    first.kill();
    until("the leader is gone", &|| alive("1")).await;
    check("the leader dead, the standby alive");
    until("the standby leads", &is_led).await;
    check("the leader dead, the standby leads");

    let third = Process::start(&dict, &database, &clock, targets[0]).await;
    until("the new standby is scraped", &|| alive("2")).await;
    until("the new standby knows the buckets", &|| {
        let query = format!("count({severity}instance=\"{}\"}})", targets[0]);
        prometheus
            .query(&query)
            .first()
            .is_some_and(|(_, n)| n == "2")
    })
    .await;
    check("both alive again");
    assert!(is_led(), "one leader");

    third.kill();
    until("the standby is gone", &|| alive("1")).await;
    check("the standby dead, the leader alive");
    assert!(is_led(), "one leader");

    second.kill();
    until("both are gone", &|| alive("0")).await;
    for panel in [1, 4, 7, 11, 15] {
        assert_eq!(
            values(panel)[0],
            [],
            "nothing is shown as if it were known: panel {panel}"
        );
    }
}

#[test]
fn promtool_tests_the_rules() {
    promtool_tests(
        &deploy("prometheus"),
        "balde-rules.yml",
        "balde-rules-test.yml",
    );
}
