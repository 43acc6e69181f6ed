//! `balde monitor --test-sink`: a marked test alert through every kind of sink, by the real program.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

/// A receiver that answers every request with one status, and keeps paths and bodies. It lives until
/// the process ends.
struct Receiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Receiver {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut bytes = Vec::new();
                let mut piece = [0; 4096];
                let (head, body) = loop {
                    let read = stream.read(&mut piece).unwrap();
                    bytes.extend_from_slice(&piece[..read]);
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else {
                        continue;
                    };
                    let length = head
                        .lines()
                        .find_map(|line| {
                            line.to_ascii_lowercase()
                                .strip_prefix("content-length: ")
                                .map(str::to_owned)
                        })
                        .and_then(|length| length.parse::<usize>().ok());
                    if body.len() >= length.unwrap_or(0) {
                        break (head.to_owned(), body.to_owned());
                    }
                };
                let path = head.split(' ').nth(1).unwrap().to_owned();
                let body = serde_json::from_str(&body).unwrap_or_default();
                kept.lock().unwrap().push((path, body));
                let answer = "content-length: 4\r\nconnection: close\r\n\r\nnope";
                let _ = write!(stream, "HTTP/1.1 {status} Said\r\n{answer}");
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().unwrap().clone()
    }
}

/// A file with a sink of each kind that is reached by HTTP. `dead` is an address where nobody listens.
fn file(good: &Receiver, bad: &Receiver) -> String {
    let (good, bad) = (good.address, bad.address);
    format!(
        r#"
        [[participant]]
        ispb = "12345678"
        dict = "http://127.0.0.1:1/"
        [[sink]]
        name = "hook"
        kind = "webhook"
        url = "http://{good}/hook"
        secret_env = "SECRET"
        [[sink]]
        name = "chat"
        kind = "slack"
        url_env = "GOOD_URL"
        [[sink]]
        name = "teams"
        kind = "teams"
        url_env = "GOOD_URL"
        [[sink]]
        name = "pager"
        kind = "pagerduty"
        url = "http://{good}/pager"
        routing_key_env = "SECRET"
        [[sink]]
        name = "opsgenie"
        kind = "opsgenie"
        url = "http://{good}/v2/alerts"
        api_key_env = "SECRET"
        [[sink]]
        name = "incidents"
        kind = "incident"
        url = "http://{good}/incident"
        secret_env = "SECRET"
        [[sink]]
        name = "tickets"
        kind = "http"
        url = "http://{good}/tickets"
        body = '{{"note": {{{{ title }}}}}}'
        [[sink]]
        name = "broken"
        kind = "webhook"
        url = "http://{bad}/hook"
        secret_env = "SECRET"
        [[sink]]
        name = "mail"
        kind = "email"
        url = "smtps://127.0.0.1:1"
        from = "a@b.example"
        to = ["c@d.example"]
        [[sink]]
        name = "kafka"
        kind = "kafka"
        url = "kafka://127.0.0.1:1"
        topic = "alerts"
        "#
    )
}

fn test_sinks(folder: &TempDir, good: &Receiver, names: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command
        .args(["monitor", "-c", "monitor.toml"])
        .current_dir(folder.path())
        .env("SECRET", "0123456789abcdef0123456789abcdef")
        .env("GOOD_URL", format!("http://{}/url", good.address));
    for name in names {
        command.args(["--test-sink", name]);
    }
    command.output().unwrap()
}

#[test]
fn every_kind_of_sink_gets_a_marked_test_alert_and_failures_are_the_exit_code() {
    let (good, bad) = (Receiver::start(202), Receiver::start(403));
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("monitor.toml"), file(&good, &bad)).unwrap();
    let names = [
        "log",
        "hook",
        "chat",
        "teams",
        "pager",
        "opsgenie",
        "incidents",
        "tickets",
    ];
    let output = test_sinks(&folder, &good, &names);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}{said}");
    for (name, kind, end) in [
        ("log", "log", " ms: "),
        ("hook", "webhook", " ms: "),
        ("chat", "slack", " ms: "),
        ("teams", "teams", " ms: "),
        ("pager", "pagerduty", " ms, and closed: "),
        ("opsgenie", "opsgenie", " ms, and closed: "),
        ("incidents", "incident", " ms, and closed: "),
        ("tickets", "http", " ms: "),
    ] {
        let line = printed
            .lines()
            .find(|line| line.starts_with(&format!("{name}  {kind} delivered in ")));
        let line = line.unwrap_or_else(|| panic!("no line of {name}: {printed}"));
        assert!(
            line.contains(&format!("{end}monitor/test/{name}/")),
            "{line}"
        );
    }
    let requests = good.requests();
    assert_eq!(requests.len(), 10, "three of them are closed again");
    for (path, body) in &requests {
        let text = body.to_string();
        let is_marked = text.contains("TEST") || text.contains("The test of the sink");
        assert!(is_marked, "{path}: {body}");
    }
    let pager: Vec<&Value> = requests
        .iter()
        .filter(|(path, _)| path == "/pager")
        .map(|(_, body)| &body["event_action"])
        .collect();
    assert_eq!(pager, ["trigger", "resolve"]);
    assert!(
        requests
            .iter()
            .any(|(path, _)| path.contains("/close?identifierType=alias"))
    );
    assert!(
        !folder.path().join("balde-monitor.db").exists(),
        "no database is opened"
    );

    let output = test_sinks(&folder, &good, &["hook", "broken", "mail", "kafka"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}{said}");
    assert!(printed.contains("hook  webhook delivered in"), "{printed}");
    assert!(
        printed.contains("broken  not delivered: the receiver responded with status 403: nope"),
        "{printed}"
    );
    assert!(
        printed.contains("mail  not delivered: the receiver cannot be reached"),
        "{printed}"
    );
    assert!(
        printed.contains("kafka  not delivered: the receiver cannot be reached"),
        "{printed}"
    );
    assert!(
        said.contains("3 of 4 test alerts were not delivered"),
        "{said}"
    );

    let output = test_sinks(&folder, &good, &["nobody"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        printed.contains("there is no sink nobody; the file has: log, hook, chat"),
        "{printed}"
    );
}
