//! `balde simulate` as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The simulator as a process, ended when dropped.
struct Simulator {
    child: Child,
    address: String,
    lines: Vec<String>,
    log: Receiver<String>,
}

impl Simulator {
    #[expect(clippy::zombie_processes, reason = "it is waited for when dropped")]
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
            .args(["simulate", "--listen", "127.0.0.1:0"])
            .args(args)
            .env_remove("RL_STORAGE_MODE")
            .stdout(Stdio::piped())
            .spawn()
            .expect("balde starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            output.read_line(&mut line).expect("a line");
            assert!(!line.is_empty(), "it ended: {lines:?}");
            let event: serde_json::Value =
                serde_json::from_str(&line).expect("JSON, as it is no terminal");
            lines.push(line);
            if event["endpoint"] == "inspection" {
                let url = event["url"].as_str().expect("its address");
                let address = url.trim_start_matches("http://").trim_end_matches("/sim/");
                let address = address.to_owned();
                // Its further output is read, so that it never blocks on a full pipe.
                let (sender, log) = mpsc::channel();
                std::thread::spawn(move || {
                    for line in output.lines().map_while(Result::ok) {
                        let _dropped = sender.send(line);
                    }
                });
                return Self {
                    child,
                    address,
                    lines,
                    log,
                };
            }
        }
    }

    fn get(&self, path: &str) -> String {
        self.request("GET", path, "")
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let length = body.len();
        let kind = if path.starts_with("/sim/") {
            "json"
        } else {
            "xml"
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: dict\r\nPI-RequestingParticipant: 12345678\r\n\
             PI-PayerId: 11122233300\r\nPI-EndToEndId: E1234567820260101000000000000001\r\n\
             Content-Type: application/{kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_prints_its_address_and_answers_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let seed = dir.path().join("entries.jsonl");
    std::fs::write(
        &seed,
        "{\"key\": \"ana@example.com\", \"participant\": \"87654321\"}\n",
    )
    .unwrap();
    let simulator = Simulator::start(&[
        "--seed",
        seed.to_str().unwrap(),
        "--entries",
        "3",
        "--participant",
        "12345678=H",
        "--virtual-clock",
    ]);
    assert!(
        simulator.lines[0].contains("\"message\":\"1 entries from"),
        "{:?}",
        simulator.lines
    );
    for key in ["ana@example.com", "pessoa0000003@exemplo.com.br"] {
        let found = simulator.get(&format!("/api/v2/entries/{key}"));
        assert!(found.starts_with("HTTP/1.1 200"), "{found}");
    }
    let policies = simulator.get("/api/v2/policies/ENTRIES_READ_PARTICIPANT_ANTISCAN");
    assert!(policies.contains("<Category>H</Category>"), "{policies}");
    assert!(
        policies.contains("<AvailableTokens>48</AvailableTokens>"),
        "{policies}"
    );
    let inspection = simulator.get("/sim/");
    assert!(
        inspection.contains("\"clock\": \"virtual\""),
        "{inspection}"
    );
}

#[test]
fn the_log_names_the_bucket_that_refused_and_no_tax_number() {
    let simulator = Simulator::start(&["--entries", "1", "--virtual-clock"]);
    let policy = "ENTRIES_READ_USER_ANTISCAN";
    let body = format!(
        "{{\"policy\": \"{policy}\", \"participant\": \"12345678\", \"payer\": \"11122233300\", \"level\": -3}}"
    );
    assert!(
        simulator
            .request("PUT", "/sim/buckets", &body)
            .starts_with("HTTP/1.1 200")
    );
    let refused = simulator.get("/api/v2/entries/pessoa0000001@exemplo.com.br");
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    // The limiter logs another line, with the key as a hash.
    let mut lines = std::iter::from_fn(|| simulator.log.recv_timeout(Duration::from_secs(20)).ok());
    let line = lines
        .by_ref()
        .inspect(|line| assert!(!line.contains("11122233300"), "{line}"))
        .find(|line| line.contains("\"request refused\""))
        .expect("a line in the log");
    for expected in [
        "\"request refused\"",
        policy,
        "\"USER\"",
        "12345678",
        "\"bucket_level\":-3",
    ] {
        assert!(line.contains(expected), "{expected}: {line}");
    }
    assert!(!line.contains("11122233300"), "{line}");
}

#[test]
fn it_signs_its_answers_and_verifies_writes() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../balde-simulator/tests/data");
    let (key, cert) = (
        format!("{data}/sign-dict.key"),
        format!("{data}/sign-dict.pem"),
    );
    let more = ["--sign-key", &key, "--sign-cert", &cert];
    for (verify, expected) in [
        ("--verify", "EntryInvalid"),
        ("--verify=required", "RequestSignatureInvalid"),
    ] {
        let simulator = Simulator::start(&[&more[..], &["--entries", "1", verify]].concat());
        let found = simulator.get("/api/v2/entries/pessoa0000001@exemplo.com.br");
        assert!(found.contains("<ds:SignatureValue>"), "{found}");
        let body = "<CreateEntryRequest><Entry><Account><Participant>12345678</Participant></Account>\
                    </Entry></CreateEntryRequest>";
        let refused = simulator.request("POST", "/api/v2/entries/", body);
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert!(refused.contains(expected), "{verify}: {refused}");
    }
}

#[cfg(unix)]
#[test]
fn it_shuts_down_gracefully_on_sigterm() {
    let mut simulator = Simulator::start(&[]);
    assert!(
        simulator
            .get("/api/v2/policies/")
            .starts_with("HTTP/1.1 200")
    );
    let id = simulator.child.id().to_string();
    let sent = Command::new("kill")
        .args(["-TERM", &id])
        .status()
        .expect("kill");
    assert!(sent.success());
    assert!(simulator.child.wait().expect("its end").success());
}

#[test]
fn invalid_arguments_are_reported() {
    for (args, expected) in [
        (&["--profile", "dict-9"][..], "there is no profile"),
        (&["--category", "Z"], "no category Z"),
        (&["--category", "AB"], "one letter"),
        (&["--participant", "1=A"], "ISPB"),
        (&["--seed", "/nowhere"], "/nowhere"),
        (&["--tls-cert", "x"], "--tls-key"),
        (
            &["--virtual-clock", "--redis", "127.0.0.1:1"],
            "virtual clock is not possible",
        ),
        (&["--set", "refill=sometimes"], "refill"),
        (&["--sign-key", "/nowhere"], "--sign-cert"),
        (
            &["--sign-key", "/nowhere", "--sign-cert", "/nowhere"],
            "/nowhere",
        ),
        (&["--verify=sometimes"], "if-present"),
        (&["--participants", "/nowhere"], "/nowhere"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_balde"))
            .args(["simulate", "--listen", "127.0.0.1:0"])
            .args(args)
            .output()
            .expect("balde starts");
        assert!(!output.status.success(), "{args:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}

#[test]
fn a_redis_that_is_away_is_an_error_at_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args([
            "simulate",
            "--listen",
            "localhost:0",
            "--redis",
            "redis://127.0.0.1:1",
        ])
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(
        shown.contains("the Redis of --redis does not respond"),
        "{shown}"
    );
}
