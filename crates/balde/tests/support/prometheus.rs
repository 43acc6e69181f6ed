//! A real Prometheus for a test: its own port, its own folder, gone when dropped. And its `promtool`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(60);
/// Another process may take the port between our finding it free and the server's binding it.
const PORTS_TRIED_MAX: usize = 5;

pub(crate) struct Prometheus {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Prometheus {
    /// A server that scrapes one target many times a second. Nothing, and loudly so, where there is
    /// no Prometheus; a panic where `BALDE_REQUIRE_SERVICES=1` says there must be one.
    pub(crate) fn scraping(target: SocketAddr) -> Option<Self> {
        Self::with_rules(target, &[])
    }

    /// The same with alert rules.
    pub(crate) fn with_rules(target: SocketAddr, rules: &[&Path]) -> Option<Self> {
        Self::with_targets(&[target], rules)
    }

    /// The same with several targets.
    pub(crate) fn with_targets(targets: &[SocketAddr], rules: &[&Path]) -> Option<Self> {
        Self::with_token(targets, "", rules)
    }

    /// The same with a bearer token for the targets, unless it is empty.
    pub(crate) fn with_token(targets: &[SocketAddr], token: &str, rules: &[&Path]) -> Option<Self> {
        for _ in 0..PORTS_TRIED_MAX {
            let dir = TempDir::new().expect("a temporary folder");
            let port = free_port();
            let child = match spawn(port, &dir, (targets, token), rules) {
                Ok(child) => child,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing("prometheus");
                    return None;
                }
                Err(error) => panic!("prometheus does not start: {error}"),
            };
            let mut server = Self {
                child,
                port,
                _dir: dir,
            };
            if server.is_ready() {
                return Some(server);
            }
        }
        panic!("prometheus did not answer on any of {PORTS_TRIED_MAX} ports");
    }

    /// The value of each series that a query finds, with its labels.
    pub(crate) fn query(&self, query: &str) -> Vec<(Value, String)> {
        let path = format!("/api/v1/query?query={}", percent_encoded(query));
        let answer = self.get(&path).unwrap_or_default();
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let series = answer["data"]["result"].as_array().cloned();
        let read = |one: Value| {
            let value = one["value"][1].as_str().unwrap_or_default().to_owned();
            (one["metric"].clone(), value)
        };
        series.unwrap_or_default().into_iter().map(read).collect()
    }

    /// The names and labels of alerts that fire.
    pub(crate) fn firing(&self) -> Vec<Value> {
        let answer = self.get("/api/v1/alerts").unwrap_or_default();
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let alerts = answer["data"]["alerts"].as_array().cloned();
        let fires = |alert: &Value| alert["state"] == "firing";
        let alerts = alerts.unwrap_or_default().into_iter().filter(fires);
        alerts.map(|alert| alert["labels"].clone()).collect()
    }

    /// What its last scrape of the target came to: `up`, or why not.
    pub(crate) fn targets(&self) -> String {
        self.get("/api/v1/targets").unwrap_or_default()
    }

    fn is_ready(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            if self
                .get("/-/ready")
                .is_ok_and(|answer| answer.contains("Ready"))
            {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// The body of an answer with status 200.
    fn get(&self, path: &str) -> io::Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        // HTTP/1.0, so that the answer ends with the connection and comes in one piece.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
            _ => Err(io::Error::other("no answer")),
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // An error means that it is dead already, which is what was asked for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `promtool check metrics` has to say about an exposition, line by line. Nothing where there is
/// no promtool.
pub(crate) fn promtool_complaints(exposition: &str) -> Option<Vec<String>> {
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            missing("promtool");
            return None;
        }
        Err(error) => panic!("promtool does not start: {error}"),
    };
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(exposition.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    let complaints: Vec<_> = said.lines().map(str::to_owned).collect();
    // 0: nothing to say; 3: something to say about style. Anything else is an exposition it cannot
    // read.
    let code = if complaints.is_empty() { 0 } else { 3 };
    assert_eq!(output.status.code(), Some(code), "{said}");
    Some(complaints)
}

/// Runs `promtool check rules` and `promtool test rules`; panics with what it says if one fails.
/// Nothing where there is no promtool.
pub(crate) fn promtool_tests(folder: &Path, rules: &str, tests: &str) {
    for arguments in [["check", "rules", rules], ["test", "rules", tests]] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(folder)
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return missing("promtool"),
            Err(error) => panic!("promtool does not start: {error}"),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{wrong}");
    }
}

fn spawn(
    port: u16,
    dir: &TempDir,
    (targets, token): (&[SocketAddr], &str),
    rules: &[&Path],
) -> io::Result<Child> {
    let authorization = match token {
        "" => String::new(),
        token => format!("    authorization: {{credentials: '{token}'}}\n"),
    };
    let targets: Vec<String> = targets.iter().map(|one| format!("'{one}'")).collect();
    let rules: Vec<String> = rules
        .iter()
        .map(|file| format!("'{}'", file.display()))
        .collect();
    let config = format!(
        "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  \
         evaluation_interval: 200ms\nrule_files: [{}]\n\
         scrape_configs:\n  - job_name: balde\n{authorization}    static_configs:\n      - targets: [{}]\n",
        rules.join(", "),
        targets.join(", ")
    );
    let file = dir.path().join("prometheus.yml");
    fs::write(&file, config)?;
    Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        let _ = write!(encoded, "%{byte:02X}");
        encoded
    })
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn missing(program: &str) {
    let what = format!("{program} is not installed");
    assert!(
        env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
        "{what}, and BALDE_REQUIRE_SERVICES=1"
    );
    eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
}
