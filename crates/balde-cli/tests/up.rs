//! `balde up` and `balde monitor` as processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(120);

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn balde(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Sends SIGINT, as Ctrl-C does, and returns the exit code.
fn interrupt(mut child: Running) -> i32 {
    let sent = Command::new("kill")
        .args(["-INT", &child.0.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    child
        .0
        .wait()
        .unwrap()
        .code()
        .expect("it exits, and is not killed")
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{path}: {head}");
    body.to_owned()
}

fn json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&get(address, path)).unwrap()
}

/// The address in a line of its output.
fn address_in(line: &str) -> SocketAddr {
    let (_, rest) = line.split_once("http://").unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn up_shows_a_falling_bucket_an_alert_and_its_resolution_and_stops_on_a_signal() {
    let any = "127.0.0.1:0";
    let mut child = balde(&["up", "--dict", any, "--monitor", any])
        .args(["--gateway", any, "--state", any, "--serve", any])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let child = Running(child);
    let mut printed = Vec::new();
    let mut monitor = None;
    for line in lines.by_ref() {
        let line = line.unwrap();
        if line.starts_with("page ") {
            monitor = Some(address_in(&line));
        }
        let is_last = line.starts_with("Ctrl-C");
        printed.push(line);
        if is_last {
            break;
        }
    }
    let curls = printed.iter().filter(|line| line.contains("curl ")).count();
    assert_eq!(curls, 4, "{printed:?}");
    let monitor = monitor.unwrap();
    let picture = printed.join("\n");
    for expected in [
        "| gateway ",
        " ----> | http://127.0.0.1:",
        "|  reads http://127.0.0.1:",
        &format!("| http://{monitor}/"),
        "<---- open this",
    ] {
        assert!(picture.contains(expected), "{expected}\n{picture}");
    }
    let service = lines.by_ref().map(Result::unwrap);
    let service = service.take(3).find(|line| line.starts_with("service "));
    let service = address_in(&service.expect("the address of the service"));
    assert!(get(service, "/v1/limits").contains("demo"));
    // Further output must not fill the pipe.
    let (sender, alerts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ended = sender.send(line);
        }
    });
    assert!(get(monitor, "/").contains("<title>balde monitor</title>"));

    let mut lowest = i64::MAX;
    let start = Instant::now();
    loop {
        assert!(
            start.elapsed() < DEADLINE,
            "{}",
            json(monitor, "/api/v1/alerts")
        );
        let states = json(monitor, "/api/v1/states");
        let buckets = states["participants"][0]["buckets"].as_array().cloned();
        for bucket in buckets.unwrap_or_default() {
            if bucket["policy"] == "KEYS_CHECK" {
                lowest = lowest.min(bucket["level"].as_i64().unwrap());
            }
        }
        let alerts = json(monitor, "/api/v1/alerts?policy=KEYS_CHECK");
        let has = |kind: &str| {
            let alerts = alerts.as_array().unwrap();
            alerts.iter().any(|alert| alert["kind"]["type"] == kind)
        };
        if has("raised") && has("resolved") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(lowest < 35, "a bucket of 70 visibly fell: {lowest}");
    // The alert and its end are sentences, after the time of the day.
    let severities = &["WARNING", "CRITICAL", "EXHAUSTED"][..];
    for (verb, ends) in [("is ", severities), ("is back at ", &["resolved"])] {
        let expected = format!("KEYS_CHECK of 12345678 {verb}");
        loop {
            let line = alerts.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|_| panic!("no line with {expected}"));
            assert!(!line.starts_with('{') && !line.contains('\x1b'), "{line}");
            let sentence = line.get(10..).unwrap_or("");
            if sentence.starts_with(&expected) && ends.iter().any(|end| sentence.ends_with(end)) {
                break;
            }
        }
    }
    assert_eq!(interrupt(child), 0);
}

fn failed(output: &Output, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains(expected), "{stderr}");
}

#[test]
fn an_address_in_use_is_reported_with_the_option_that_sets_another() {
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let held = holder.local_addr().unwrap();
    let options = ["--dict", "--monitor", "--gateway", "--state"];
    for option in options {
        let mut command = balde(&["up", option, &held.to_string()]);
        for other in options.into_iter().filter(|other| *other != option) {
            command.args([other, "127.0.0.1:0"]);
        }
        let output = command.output().unwrap();
        failed(&output, &format!("cannot listen on {held}"));
        failed(&output, option);
    }
}

#[test]
fn a_monitor_runs_from_its_file_and_reports_where_a_bad_one_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("monitor.toml");
    std::fs::write(&file, "[http]\naddress = 9180\n").unwrap();
    let name = file.display().to_string();
    let output = balde(&["monitor", "-c", &name]).output().unwrap();
    failed(&output, "monitor.toml:2:11");
    failed(&output, "there is no participant");
    let output = balde(&["check", &name]).output().unwrap();
    assert!(!output.status.success());
    let output = balde(&["monitor", "-c", "nowhere.toml"]).output().unwrap();
    failed(&output, "nowhere.toml: cannot read the file");

    std::fs::write(
        &file,
        "[http]\naddress = \"127.0.0.1:0\"\n\
         [[participant]]\nispb = \"12345678\"\ndict = \"http://127.0.0.1:1/api/v2/\"\n",
    )
    .unwrap();
    let output = balde(&["check", &name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut child = balde(&["monitor", "-c", &name])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let child = Running(child);
    let page = lines.next().unwrap().unwrap();
    let monitor = address_in(&page);
    // DICT cannot be reached: the log and the API say so.
    let failed_poll = lines
        .map_while(Result::ok)
        .find(|line| line.contains("\"event_type\":\"poll_failed\""));
    assert!(failed_poll.unwrap().contains("DICT cannot be reached"));
    let status = json(monitor, "/api/v1/status");
    assert!(status["participants"]["12345678"]["failures"]["unreachable"].as_u64() >= Some(1));
    let second = balde(&["monitor", "-c", &name]).output().unwrap();
    failed(&second, "is in use by another monitor");
    assert_eq!(interrupt(child), 0);
}
