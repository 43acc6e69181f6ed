//! A broker of its own for a test, and the official client to read with.

use std::collections::BTreeMap;
use std::env;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(30);
/// Another process may take the port between our finding it free and the broker's binding it.
const PORTS_TRIED_MAX: usize = 5;

const FIND_BROKER: &str =
    "from pulsar_lite.binary_finder import find_pulsar_lite_binary as find; print(find())";

const READ_BACK: &str = include_str!("read_back.py");

/// A message as the official client sees it.
pub(crate) struct Message {
    pub(crate) payload: Value,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) partition_key: String,
    pub(crate) event_ms: u64,
}

pub(crate) struct Broker {
    url: String,
    python: PathBuf,
    /// Nothing for a broker that somebody else runs.
    own: Option<Own>,
}

struct Own {
    child: Child,
    binary: PathBuf,
    port: u16,
    folder: TempDir,
}

impl Broker {
    /// The broker that `BALDE_PULSAR_URL` names, or one of its own. Nothing, and loudly so, where
    /// the tools are missing; a panic where `BALDE_REQUIRE_SERVICES=1` says that they must be there.
    pub(crate) fn start() -> Option<Self> {
        let python = tools().join("bin/python");
        if !runs(&python, "import pulsar") {
            missing("the Python client pulsar-client");
            return None;
        }
        if let Ok(url) = env::var("BALDE_PULSAR_URL") {
            let own = None;
            return Some(Self { url, python, own });
        }
        let Some(binary) = find_broker(&python) else {
            missing("the broker pulsar-lite");
            return None;
        };
        for _ in 0..PORTS_TRIED_MAX {
            let folder = TempDir::new().expect("a temporary folder");
            let port = free_port();
            let mut own = Own {
                child: spawn(&binary, port, folder.path()),
                binary: binary.clone(),
                port,
                folder,
            };
            if own.is_ready() {
                let url = format!("pulsar://127.0.0.1:{port}");
                let own = Some(own);
                return Some(Self { url, python, own });
            }
        }
        panic!("pulsar-lite did not listen on any of {PORTS_TRIED_MAX} ports");
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.own.is_none()
    }

    /// A new topic.
    pub(crate) fn new_topic() -> String {
        let number = fastrand::u64(..);
        format!("persistent://public/default/balde-test-{number:016x}")
    }

    /// SIGKILL: no goodbye to anybody.
    pub(crate) fn kill(&mut self) {
        self.own.as_mut().expect("a broker of its own").kill();
    }

    /// The same broker again, with the same port and folder.
    pub(crate) fn restart(&mut self) {
        let own = self.own.as_mut().expect("a broker of its own");
        own.kill();
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            own.child = spawn(&own.binary, own.port, own.folder.path());
            if own.is_ready() {
                return;
            }
        }
        panic!("pulsar-lite did not come back on port {}", own.port);
    }

    /// Everything on a topic, from its beginning until so many different keys were seen, and a
    /// little longer.
    pub(crate) fn read_back(&self, topic: &str, keys: usize) -> Vec<Message> {
        let output = Command::new(&self.python)
            .args(["-c", READ_BACK, &self.url, topic, &keys.to_string()])
            .output()
            .expect("python");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        let lines = String::from_utf8(output.stdout).expect("lines of text");
        // The client writes its own log to the standard output, too.
        let lines = lines.lines().filter(|line| line.starts_with('{'));
        lines.map(message).collect()
    }
}

impl Own {
    fn kill(&mut self) {
        // An error means that it is dead already, which is what was asked for.
        let _ = self.child.kill();
        self.child.wait().expect("a child to wait for");
    }

    /// Whether it listens in time; false as soon as the process has ended.
    fn is_ready(&mut self) -> bool {
        let address = (Ipv4Addr::LOCALHOST, self.port).into();
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
    }
}

fn message(line: &str) -> Message {
    let line: Value = serde_json::from_str(line).expect("a line of JSON");
    let payload = line["payload"].as_str().expect("a payload of text");
    let properties = line["properties"].as_object().expect("properties");
    let text = |value: &Value| value.as_str().expect("a property of text").to_owned();
    Message {
        payload: serde_json::from_str(payload).expect("a payload of JSON"),
        properties: properties
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        partition_key: text(&line["partition_key"]),
        event_ms: line["event_ms"].as_u64().expect("a moment"),
    }
}

/// Where `scripts/test.sh` puts what tests need from Python's index.
fn tools() -> PathBuf {
    if let Some(folder) = env::var_os("BALDE_TEST_TOOLS") {
        return folder.into();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("the folder that it is in").join("test-tools")
}

fn runs(python: &Path, script: &str) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", script]).stderr(Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

fn find_broker(python: &Path) -> Option<PathBuf> {
    let output = Command::new(python)
        .args(["-c", FIND_BROKER])
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    let path = Path::new(path.trim());
    path.is_file().then(|| path.to_owned())
}

fn spawn(binary: &Path, port: u16, folder: &Path) -> Child {
    Command::new(binary)
        .args([
            "--addr",
            &format!("127.0.0.1:{port}"),
            "--log-level",
            "error",
        ])
        .arg("--db-path")
        .arg(folder.join("db"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("pulsar-lite")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn missing(what: &str) {
    let what = format!("{what} is not in {}", tools().display());
    assert!(
        env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
        "{what}, and BALDE_REQUIRE_SERVICES=1; scripts/test.sh installs it"
    );
    eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
}
