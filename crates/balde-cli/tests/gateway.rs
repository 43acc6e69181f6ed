//! `balde gateway` as a process: reloads, shutdown, and being killed under load.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(120);
const PARTICIPANT: &str = "12345678";

struct Running {
    child: Child,
    /// The addresses of its lines, in their order.
    addresses: Vec<SocketAddr>,
    lines: Box<dyn Iterator<Item = String> + Send>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(arguments: &[&str], addresses: usize) -> Running {
    let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args(arguments)
        .env("TOKEN", "secret")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines: Box<dyn Iterator<Item = String> + Send> = Box::new(lines.map_while(Result::ok));
    let mut found = Vec::new();
    while found.len() < addresses {
        let Some(line) = lines.next() else {
            let mut errors = String::new();
            let stderr: &mut Option<ChildStderr> = &mut child.stderr;
            stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("{arguments:?} ended: {errors}");
        };
        let address: Option<SocketAddr> = line.split_once("http://").and_then(|(_, rest)| {
            let rest = rest.split(['/', ' ']).next()?;
            rest.parse().ok()
        });
        found.extend(address);
    }
    Running {
        child,
        addresses: found,
        lines,
    }
}

impl Running {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Reads lines until one has the text.
    fn line_with(&mut self, text: &str) -> String {
        let found = self.lines.by_ref().find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("no line with {text}"))
    }

    fn stop(mut self) {
        self.signal("-INT");
        // Further output must not fill the pipe.
        self.lines.by_ref().for_each(drop);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

/// One request over a new connection: its status, or zero without an answer.
fn ask(address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return (0, String::new());
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    if stream.write_all(request.as_bytes()).is_err() {
        return (0, String::new());
    }
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or(0), body.to_owned())
}

fn until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_reached() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn write_config(file: &Path, listen: SocketAddr, upstream: SocketAddr, more: &str) {
    let text = format!(
        "[[listener]]\naddress = \"{listen}\"\n\
         [[upstream]]\nname = \"dict\"\nurl = \"http://{upstream}\"\n\
         [[route]]\npath = \"/\"\nupstream = \"dict\"\n{more}"
    );
    std::fs::write(file, text).unwrap();
}

#[test]
fn a_reload_applies_a_good_file_and_refuses_a_broken_one_with_every_problem() {
    let dict = start(&["simulate", "--listen", "127.0.0.1:0"], 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let name = file.display().to_string();
    let listen = free_address();
    let policies =
        |limit: &str| format!("[[policies.policy]]\nname = \"all\"\nlimit = \"{limit}\"\n");
    write_config(&file, listen, dict.addresses[0], &policies("1/h burst 2"));
    let mut gateway = start(&["gateway", "-c", &name], 1);
    assert_eq!(gateway.addresses[0], listen);
    let status = |path: &str| ask(listen, path, "").0;
    assert_eq!(
        [status("/sim/"), status("/sim/"), status("/sim/")],
        [200, 200, 429]
    );

    // Two tokens more, and the deficit stays.
    write_config(&file, listen, dict.addresses[0], &policies("1/h burst 4"));
    gateway.signal("-HUP");
    gateway.line_with("reloaded");
    assert_eq!(
        [status("/sim/"), status("/sim/"), status("/sim/")],
        [200, 200, 429]
    );

    let broken =
        policies("1/fortnight").replace("[[policies.policy]]", "colour = 1\n[[policies.policy]]");
    write_config(&file, listen, dict.addresses[0], &broken);
    gateway.signal("-HUP");
    let line = gateway.line_with("the old configuration stays");
    assert!(line.contains("unknown key `colour`"), "{line}");
    assert!(line.contains("unknown unit `fortnight`"), "{line}");
    assert!(line.contains("gateway.toml:"), "{line}");
    assert_eq!(status("/sim/"), 429);
    gateway.stop();

    let output = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args(["gateway", "-c", &name])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(
        shown.contains("fortnight") && shown.contains("colour"),
        "{shown}"
    );
}

#[test]
fn a_killed_gateway_keeps_its_promise_again_after_one_reconciliation() {
    let dict = start(
        &["simulate", "--listen", "127.0.0.1:0", "--category", "F"],
        1,
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let name = file.display().to_string();
    let (listen, state) = (free_address(), free_address());
    let more = format!(
        "[state]\nlisten = \"{state}\"\ntoken_env = \"TOKEN\"\n\
         [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\nrefill = \"profile\"\n\
         reconcile_seconds = 1\n"
    );
    write_config(&file, listen, dict.addresses[0], &more);
    let mut gateway = start(&["gateway", "-c", &name], 3);
    let reconciled = || {
        let (status, metrics) = ask(state, "/metrics", "Authorization: Bearer secret\r\n");
        status == 200
            && metrics.contains("reconciliations_total{result=\"ok\"} ")
            && !metrics.contains("reconciliations_total{result=\"ok\"} 0")
    };
    until("the first reconciliation", reconciled);

    // Lookups of keys that do not exist, by many payers: only the participant's bucket runs dry.
    let is_over = Arc::new(AtomicBool::new(false));
    let number = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (is_over, number) = (is_over.clone(), number.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let number = number.fetch_add(1, Ordering::SeqCst);
                    let headers = format!(
                        "PI-RequestingParticipant: {PARTICIPANT}\r\nPI-PayerId: {:011}\r\n\
                         PI-EndToEndId: E{PARTICIPANT}202601010000{number:011}\r\n",
                        number + 10_000_000_000
                    );
                    ask(listen, "/api/v2/entries/nobody@example.com", &headers);
                }
            })
        })
        .collect();
    until("requests", || number.load(Ordering::SeqCst) > 40);
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    let mut gateway = start(&["gateway", "-c", &name], 3);
    until("a reconciliation after the restart", reconciled);
    let refusals = || {
        let (_, shown) = ask(dict.addresses[0], "/sim/refusals?limit=1000", "");
        shown.matches("\"policy\"").count()
    };
    let before = refusals();
    let target = number.load(Ordering::SeqCst) + 200;
    until("more requests", || number.load(Ordering::SeqCst) > target);
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(
        refusals(),
        before,
        "DICT refused nothing after the reconciliation"
    );
    // Nothing is lost or counted twice: with no call in flight, a reconciliation finds no difference.
    let drift = || {
        let (_, shown) = ask(
            state,
            &format!("/balde/states?participant={PARTICIPANT}"),
            "Authorization: Bearer secret\r\n",
        );
        let states: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        let policies = states["policies"].as_array().cloned().unwrap_or_default();
        let lookups = policies
            .into_iter()
            .find(|one| one["policy"] == "ENTRIES_READ_PARTICIPANT_ANTISCAN");
        lookups.and_then(|one| one["drift"].as_i64())
    };
    until("agreement with DICT", || {
        drift().is_some_and(|drift| drift.abs() <= 5)
    });
    gateway.lines = Box::new(std::iter::empty());
    gateway.signal("-INT");
    gateway.child.wait().unwrap();
}

/// The monitor's gateway source, against a real gateway in front of a simulated DICT.
#[test]
fn the_monitor_reads_the_gateway() {
    use balde_monitor::source::{GatewayClient, Source};

    let dict = start(
        &["simulate", "--listen", "127.0.0.1:0", "--category", "F"],
        1,
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let (listen, state) = (free_address(), free_address());
    let more = format!(
        "[state]\nlisten = \"{state}\"\ntoken_env = \"TOKEN\"\n\
         [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\n"
    );
    write_config(&file, listen, dict.addresses[0], &more);
    let gateway = start(&["gateway", "-c", &file.display().to_string()], 3);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let fetch = |token: &str| {
        let url = format!("http://{state}/balde/states");
        let client = GatewayClient::new(&url, Some(token.to_owned()), None, DEADLINE).unwrap();
        let source = Source::Gateway(client);
        runtime.block_on(async { source.fetch(PARTICIPANT, || 42).await })
    };
    let is_reconciled = || {
        let poll = fetch("secret").unwrap();
        let sample = &poll.samples()[0];
        assert_eq!(poll.samples().len(), 29);
        sample.category() == Some("F")
    };
    until("DICT states the category", is_reconciled);
    let poll = fetch("secret").unwrap();
    let of = |policy: &str| {
        let mut samples = poll.samples().iter();
        let found = samples.find(|sample| sample.bucket().policy() == policy);
        found.unwrap().clone()
    };
    let lookups = of("ENTRIES_READ_PARTICIPANT_ANTISCAN");
    assert_eq!((lookups.level(), lookups.limit().capacity()), (500, 500));
    assert_eq!(lookups.limit().period_us(), 60_000_000);
    assert!(lookups.answered_us().is_some());
    // The reconciliation came out of the budget that a monitor would use.
    assert!(of("POLICIES_LIST").level() < 20);
    assert_eq!(fetch("wrong").unwrap_err().label(), "status");
    gateway.stop();
}
