//! `balde serve` as a process: its file, reloads and shutdown; thousands of connections; a standard
//! output that nobody reads; two processes over one Redis, of which one is killed; Envoy while the service
//! is killed.

#[path = "../../balde/tests/support/redis_server.rs"]
#[expect(dead_code, reason = "these tests neither kill nor freeze the server")]
mod redis_server;

#[path = "../../balde-service/tests/support/proxy_process.rs"]
mod proxy_process;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use proxy_process::{Proxy, Upstream, envoy, examples, free_port, header, program};
use redis_server::RedisServer;
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(120);

struct Serving {
    child: Child,
    addresses: HashMap<String, SocketAddr>,
    lines: Option<BufReader<std::process::ChildStdout>>,
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(text: &str) -> Self {
        Self::start_with(text, &[])
    }

    fn start_with(text: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("service.toml");
        std::fs::write(&file, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
            .args(["serve", "--log-format", "json", "-c"])
            .arg(&file)
            .args(arguments)
            .env("TOKEN", "a-token-for-the-tests")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let expected = text.matches("address = \"127.0.0.1:0").count();
        let mut addresses = HashMap::new();
        while addresses.len() < expected {
            let mut line = String::new();
            let read = lines.read_line(&mut line).unwrap();
            assert!(read > 0, "balde serve has ended");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["event_type"] == "listening" {
                let url = line["url"].as_str().unwrap();
                let address = url.split("://").nth(1).unwrap().split('/').next().unwrap();
                let name = line["endpoint"].as_str().unwrap().to_owned();
                addresses.insert(name, address.parse().unwrap());
            }
        }
        Self {
            child,
            addresses,
            lines: Some(lines),
            _folder: folder,
            file,
        }
    }

    fn connect(&self, protocol: &str) -> TcpStream {
        let stream = TcpStream::connect(self.addresses[protocol]).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    fn line_with(&mut self, text: &str) -> String {
        let lines = self.lines.as_mut().expect("the lines are read");
        loop {
            let mut line = String::new();
            assert!(
                lines.read_line(&mut line).unwrap() > 0,
                "no line with {text:?}"
            );
            if line.contains(text) {
                return line;
            }
        }
    }

    fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// Sends a command of the Redis protocol as a line, and reads the first line of the answer.
fn ask(stream: &mut TcpStream, line: &str) -> String {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap().trim_end().to_owned()
}

fn balde(arguments: &[&str]) -> (bool, String) {
    let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
    let output = balde.args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn balde_check_knows_a_service_file_and_its_mistakes() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/service.toml");
    let (is_valid, text) = balde(&["check", "--without-env", docs.to_str().unwrap()]);
    assert!(is_valid, "{text}");
    assert!(
        text.contains("service, 2 limits, 4 protocols, valid"),
        "{text}"
    );
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/proxies/service.toml");
    let (is_valid, text) = balde(&["check", examples.to_str().unwrap()]);
    assert!(is_valid, "{text}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    let wrong = "[limits.a]\nlimit = \"1/s\"\n[rls]\naddress = \"127.0.0.1:0\"\n[[rls.rule]]\n\
                 domain = \"d\"\nmatch = [\"k\"]\nlimit = \"b\"\n[proxy]\naddress = \"127.0.0.1:0\"\n";
    std::fs::write(&file, wrong).unwrap();
    let (is_valid, text) = balde(&["check", file.to_str().unwrap()]);
    assert!(!is_valid);
    for expected in [
        "there is no limit `b`",
        "wrong.toml:8:",
        "[proxy] asks policies",
        "trusted_proxies",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn it_reloads_on_a_signal_and_drains_before_it_ends() {
    let text = "[limits.a]\nlimit = \"10/day\"\n[resp]\naddress = \"127.0.0.1:0\"\n\
                [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n[server]\ndrain_delay = \"1 s\"\n";
    let mut serving = Serving::start(text);
    let mut resp = serving.connect("resp");
    assert_eq!(ask(&mut resp, "CL.THROTTLE k 9 10 86400 3"), "*5");
    let changed = text.replace("10/day", "20/day");
    std::fs::write(&serving.file, &changed).unwrap();
    serving.signal("-HUP");
    serving.line_with("reloaded");
    std::fs::write(
        &serving.file,
        changed.replace("127.0.0.1:0\"\n[state]", "127.0.0.1:1\"\n[state]"),
    )
    .unwrap();
    serving.signal("-HUP");
    let line = serving.line_with("reload_refused");
    assert!(line.contains("restart"), "{line}");
    serving.signal("-TERM");
    serving.line_with("draining");
    // It still answers, on new connections as well.
    let mut resp = serving.connect("resp");
    assert_eq!(ask(&mut resp, "PING"), "+PONG");
    serving.line_with("stopped");
    assert!(serving.child.wait().unwrap().success());
}

#[test]
fn ten_thousand_connections_are_served_or_refused_and_cost_little() {
    const OPEN: usize = 9_000;
    const ALL: usize = 10_000;
    let text = format!(
        "[limits.a]\nlimit = \"10/day\"\n[resp]\naddress = \"127.0.0.1:0\"\nconnections_max = {OPEN}\n"
    );
    let serving = Serving::start(&text);
    let mut open: Vec<TcpStream> = Vec::new();
    let mut refused = 0;
    for index in 0..ALL {
        let mut stream = serving.connect("resp");
        // A refused connection may be closed before the command is sent.
        let _may_be_closed = stream.write_all(b"PING\r\n");
        let mut answer = [0; 7];
        match stream.read_exact(&mut answer) {
            Ok(()) if &answer == b"+PONG\r\n" => open.push(stream),
            Ok(()) => {
                assert_eq!(&answer, b"-ERR ma");
                refused += 1;
            }
            Err(_) => refused += 1,
        }
        assert!(
            index >= OPEN || refused == 0,
            "connection {index} was refused"
        );
    }
    assert_eq!((open.len(), refused), (OPEN, ALL - OPEN));
    for stream in open.iter_mut().step_by(1_000) {
        assert_eq!(ask(stream, "PING"), "+PONG");
    }
    let memory = serving.memory_kib();
    println!("{OPEN} connections: {memory} KiB");
    assert!(memory < 512 << 10, "{memory} KiB");
    drop(open);
}

/// A million decisions in all protocols, while nobody reads the log of every one of them.
#[test]
fn nobody_reads_the_log_and_no_decision_waits_for_it() {
    const BY_RESP: usize = 900_000;
    const BY_OTHERS: usize = 34_000;
    const PIPELINE: usize = 1_000;
    let text = "[limits.a]\nlimit = \"1/day\"\ndenials = \"every\"\n\
                [http]\naddress = \"127.0.0.1:0\"\n[resp]\naddress = \"127.0.0.1:0\"\n\
                [rls]\naddress = \"127.0.0.1:0\"\n[[rls.rule]]\ndomain = \"d\"\nmatch = [\"k\"]\nlimit = \"a\"\n\
                [proxy]\naddress = \"127.0.0.1:0\"\n[identity]\ntrusted_proxies = [\"127.0.0.1\"]\n\
                [[policies.policy]]\nname = \"p\"\nscope = \"user\"\nlimit = \"1/day\"\ndenials = \"every\"\n";
    let serving = Serving::start_with(text, &["--log-level", "debug"]);
    let longest = AtomicU64::new(0);
    let timed = |begun: Instant| {
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
        longest.fetch_max(ms, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = serving.connect("resp");
            let commands = "BALDE.CHECK a k\r\n".repeat(PIPELINE);
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            for _ in 0..BY_RESP / PIPELINE {
                let begun = Instant::now();
                stream.write_all(commands.as_bytes()).unwrap();
                // Each answer has eight fields: a head, and two items of two lines or one.
                let mut answers = 0;
                while answers < PIPELINE {
                    let mut line = String::new();
                    assert!(reader.read_line(&mut line).unwrap() > 0);
                    answers += usize::from(line == "*16\r\n");
                }
                timed(begun);
            }
        });
        let over_http = |protocol: &'static str, request: String, status: &'static str| {
            let mut stream = serving.connect(protocol);
            let timed = &timed;
            move || {
                let mut bytes = vec![0; 8_192];
                for index in 0..BY_OTHERS {
                    let begun = Instant::now();
                    stream.write_all(request.as_bytes()).unwrap();
                    let read = stream.read(&mut bytes).unwrap();
                    let head = String::from_utf8_lossy(&bytes[..read]);
                    // The first takes the only token.
                    assert!(index == 0 || head.starts_with(status), "{head}");
                    timed(begun);
                }
            }
        };
        let body = r#"{"limit":"a","key":"h"}"#;
        let post = format!(
            "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        scope.spawn(over_http("http", post, "HTTP/1.1 200"));
        let question = "GET /ext-authz/x HTTP/1.1\r\nhost: a\r\n\r\n".to_owned();
        scope.spawn(over_http("proxy", question, "HTTP/1.1 429"));
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime
                .unwrap()
                .block_on(over_grpc(serving.addresses["rls"], BY_OTHERS, &timed));
        });
    });
    let longest = longest.into_inner();
    println!("the longest of a million took {longest} ms");
    assert!(longest < 10_000, "{longest} ms");
}

async fn over_grpc(address: SocketAddr, requests: usize, timed: &(impl Fn(Instant) + Sync)) {
    let mut client = RateLimitServiceClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let entry = Entry {
        key: "k".to_owned(),
        value: "v".to_owned(),
    };
    let request = RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 1,
    };
    for index in 0..requests {
        let begun = Instant::now();
        let answer = client
            .should_rate_limit(request.clone())
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.overall_code, if index == 0 { 1 } else { 2 });
        timed(begun);
    }
}

/// Counts what two processes over one Redis allow in half a minute, with one killed on the way.
fn allowed_by_two(leases: bool) -> Option<(u64, u64)> {
    const RATE: u64 = 50;
    const BURST: u64 = 100;
    let redis = RedisServer::start()?;
    let text = format!(
        "[limits.a]\nlimit = \"{RATE}/s burst {BURST}\"\nstorage = \"redis\"\non_failure = \"deny\"\n\
         leases = {leases}\nlease_share = \"10%\"\n[redis]\naddress = \"{}\"\ntimeout = \"100 ms\"\n[resp]\naddress = \"127.0.0.1:0\"\n",
        redis.url()
    );
    let (mut one, two) = (Serving::start(&text), Serving::start(&text));
    let (allowed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    thread::scope(|scope| {
        for serving in [&one, &two] {
            let mut stream = serving.connect("resp");
            let (allowed, is_over) = (&allowed, &is_over);
            scope.spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while !is_over.load(Ordering::Relaxed) {
                    if stream.write_all(b"BALDE.CHECK a k\r\n").is_err() {
                        return;
                    }
                    let mut is_allowed = false;
                    // A head, and eight fields: names of two lines, integers of one, and a text of two.
                    for line in 0..26 {
                        let mut text = String::new();
                        // The process that is killed answers no more.
                        if !reader.read_line(&mut text).is_ok_and(|read| read > 0) {
                            return;
                        }
                        is_allowed |= line == 3 && text == ":1\r\n";
                    }
                    allowed.fetch_add(u64::from(is_allowed), Ordering::Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_secs(10));
        one.signal("-KILL");
        thread::sleep(Duration::from_secs(20));
        is_over.store(true, Ordering::Relaxed);
    });
    let _killed = one.child.wait();
    let elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
    Some((
        allowed.into_inner(),
        BURST + (RATE * elapsed_ms).div_ceil(1_000),
    ))
}

#[test]
fn two_processes_never_allow_more_than_the_limit() {
    let Some((allowed, most)) = allowed_by_two(false) else {
        return;
    };
    println!("without leases: {allowed} of at most {most}");
    assert!(allowed <= most, "{allowed} of at most {most}");
    assert!(
        allowed * 10 > most * 9,
        "{allowed} of {most}: the limit is used"
    );
}

#[test]
fn two_processes_with_leases_stay_within_the_documented_bound() {
    let Some((allowed, most)) = allowed_by_two(true) else {
        return;
    };
    // One block per process: a tenth of the capacity.
    let most = most + 2 * 10;
    println!("with leases: {allowed} of at most {most}");
    assert!(allowed <= most, "{allowed} of at most {most}");
    assert!(
        allowed * 10 > most * 8,
        "{allowed} of {most}: the limit is used"
    );
}

/// Repeats a question until the answer is yes.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `failure_mode_deny` says what Envoy answers while the service is dead: 200 or 500.
async fn envoy_survives_a_killed_service(failure_mode_deny: bool, status_without: u16) {
    let Some(path) = program("envoy") else { return };
    let _by_another = rustls::crypto::ring::default_provider().install_default();
    let port = free_port();
    let text = std::fs::read_to_string(examples().join("service.toml")).unwrap();
    let text = text
        .replace(":8081\"", &format!(":{port}\""))
        .replace(":8082\"", ":0\"");
    let (mut service, upstream) = (Serving::start(&text), Upstream::start().await);
    let file = "envoy-rate-limit.yaml";
    let ports = [(8_081, port), (9_000, upstream.port)];
    let proxy = Proxy::start(&[file], &ports, |folder| {
        let config = folder.join(file);
        let text = std::fs::read_to_string(&config).unwrap();
        assert!(text.contains("failure_mode_deny: false"));
        let mode = format!("failure_mode_deny: {failure_mode_deny}");
        // A busy machine must not fail the test by the half second that the example waits.
        let text = text.replace("timeout: 0.5s", "timeout: 30s");
        std::fs::write(&config, text.replace("failure_mode_deny: false", &mode)).unwrap();
        envoy(&path, folder, file)
    })
    .await;
    let alice = [("x-user", "alice")];
    for status in [200, 200, 200, 429] {
        assert_eq!(proxy.status("/", &alice).await, status);
    }
    service.child.kill().unwrap();
    service.child.wait().unwrap();
    let served = upstream.served();
    for asked in 1..=3 {
        let response = proxy.get("/", &alice).await;
        assert_eq!(response.status(), status_without, "request {asked}");
        assert_eq!(header(&response, "ratelimit-limit"), "");
    }
    let forwarded = if failure_mode_deny { 0 } else { 3 };
    assert_eq!(upstream.served() - served, forwarded);
    let _service = Serving::start(&text);
    eventually("Envoy asks the new service", async || {
        let response = proxy.get("/", &[("x-user", "bob")]).await;
        !header(&response, "ratelimit-limit").is_empty()
    })
    .await;
    for status in [200, 200, 200, 429] {
        assert_eq!(proxy.status("/", &alice).await, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_forwards_while_the_service_is_killed_and_asks_it_again() {
    envoy_survives_a_killed_service(false, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_refuses_while_the_service_is_killed_and_asks_it_again() {
    envoy_survives_a_killed_service(true, 500).await;
}
