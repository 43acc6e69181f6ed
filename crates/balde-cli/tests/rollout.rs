//! `balde gateway` as operators run it: replaced under load, without a reader of its output, with few
//! file descriptors.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(120);

struct Gateway {
    child: Child,
    address: SocketAddr,
    state: SocketAddr,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a file for a gateway on free ports.
fn config(folder: &Path, upstream: SocketAddr, more: &str) -> PathBuf {
    let file = folder.join("gateway.toml");
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"backend\"\nurl = \"http://{upstream}\"\n\
         [[route]]\npath = \"/\"\nupstream = \"backend\"\n\
         [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n{more}"
    );
    std::fs::write(&file, text).unwrap();
    file
}

/// Starts a gateway and reads its addresses. What it writes afterwards stays in the pipe.
fn start(file: &Path) -> Gateway {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command.args(["gateway", "--config"]).arg(file);
    start_command(command)
}

fn start_command(mut command: Command) -> Gateway {
    let mut child = command
        .env("TOKEN", "secret")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut addresses: Vec<SocketAddr> = Vec::new();
    while addresses.len() < 2 {
        let mut line = String::new();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it has ended");
        let address: Option<SocketAddr> = line.split_once("http://").and_then(|(_, rest)| {
            let rest = rest.split(['/', ' ']).next()?;
            rest.parse().ok()
        });
        addresses.extend(address);
    }
    // The pipe stays open, and nobody reads it.
    child.stdout = Some(lines.into_inner());
    Gateway {
        child,
        address: addresses[0],
        state: addresses[1],
    }
}

impl Gateway {
    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }

    fn wait(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < DEADLINE, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_ready(&self) -> bool {
        get(self.state, "/readyz").is_some_and(|answer| answer.status == 200)
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    is_closing: bool,
    text: String,
}

/// One request over a new connection; `None` without an answer.
fn get(address: SocketAddr, path: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    exchange(&mut stream, path)
}

/// One request over a connection that stays open.
fn exchange(stream: &mut TcpStream, path: &str) -> Option<Answer> {
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1)?;
    let length = length.split("\r\n").next()?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Answer {
        status: head.split(' ').nth(1)?.parse().ok()?,
        is_closing: head.contains("connection: close"),
        text: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// A server that answers every request, and counts its connections.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                    let is_end = line == "\r\n";
                    line.clear();
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    if is_end && stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn three_gateways_are_replaced_under_load_and_no_request_fails() {
    const CLIENTS: usize = 4;
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), upstream, "[server]\ndrain_delay = \"1 s\"\n");
    let mut gateways: Vec<Gateway> = (0..3).map(|_| start(&file)).collect();
    // What a balancer knows: the gateways that said they are ready when they were last asked.
    let known: Arc<Mutex<Vec<(SocketAddr, SocketAddr)>>> = Arc::default();
    let ready: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
    let all = |gateways: &[Gateway]| gateways.iter().map(|it| (it.state, it.address)).collect();
    *known.lock().unwrap() = all(&gateways);
    *ready.lock().unwrap() = gateways.iter().map(|it| it.address).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let (served, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut threads = Vec::new();
    {
        let (known, ready, is_over) = (known.clone(), ready.clone(), is_over.clone());
        threads.push(thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let known = known.lock().unwrap().clone();
                let is_ready = |state| get(state, "/readyz").is_some_and(|it| it.status == 200);
                let up = known.into_iter().filter(|(state, _)| is_ready(*state));
                *ready.lock().unwrap() = up.map(|(_, address)| address).collect();
                thread::sleep(Duration::from_millis(20));
            }
        }));
    }
    for client in 0..CLIENTS {
        let (ready, is_over) = (ready.clone(), is_over.clone());
        let (served, failed) = (served.clone(), failed.clone());
        threads.push(thread::spawn(move || {
            let mut kept: Option<(SocketAddr, TcpStream)> = None;
            for number in client.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let ready = ready.lock().unwrap().clone();
                let address = ready[number / 8 % ready.len()];
                // A balancer keeps connections, to gateways that are ready.
                let mut stream = match kept.take() {
                    Some((to, stream)) if to == address => stream,
                    _ => TcpStream::connect(address).unwrap(),
                };
                match exchange(&mut stream, "/") {
                    Some(answer) if answer.status == 200 => {
                        served.fetch_add(1, Ordering::Relaxed);
                        if !answer.is_closing {
                            kept = Some((address, stream));
                        }
                    }
                    _ => {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }));
    }
    let more_served = || {
        let before = served.load(Ordering::Relaxed);
        let start = Instant::now();
        while served.load(Ordering::Relaxed) < before + 200 {
            assert!(start.elapsed() < DEADLINE, "requests are answered");
            thread::sleep(Duration::from_millis(5));
        }
    };
    more_served();
    for index in 0..gateways.len() {
        gateways[index].signal("-TERM");
        assert_eq!(gateways[index].wait(), Some(0));
        gateways[index] = start(&file);
        *known.lock().unwrap() = all(&gateways);
        let start = Instant::now();
        while !ready.lock().unwrap().contains(&gateways[index].address) {
            assert!(start.elapsed() < DEADLINE, "the new one is found");
            thread::sleep(Duration::from_millis(5));
        }
        more_served();
    }
    is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    let served = served.load(Ordering::Relaxed);
    assert_eq!(failed.load(Ordering::Relaxed), 0, "of {served}");
}

#[test]
fn a_gateway_that_gets_sigterm_goes_on_serving_and_says_that_it_is_not_ready() {
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let more = "[server]\ndrain_delay = \"1 h\"\n";
    let mut gateway = start(&config(folder.path(), upstream, more));
    assert!(gateway.is_ready());
    let mut kept = TcpStream::connect(gateway.address).unwrap();
    assert!(!exchange(&mut kept, "/").unwrap().is_closing);
    gateway.signal("-TERM");
    let start = Instant::now();
    while gateway.is_ready() {
        assert!(start.elapsed() < DEADLINE);
        thread::sleep(Duration::from_millis(5));
    }
    let answer = get(gateway.state, "/readyz").unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.text.contains("shutting down"), "{}", answer.text);
    assert_eq!(get(gateway.state, "/healthz").unwrap().status, 200);
    // Connections that were open, and new ones, are served and then closed.
    for mut stream in [kept, TcpStream::connect(gateway.address).unwrap()] {
        let answer = exchange(&mut stream, "/").unwrap();
        assert_eq!((answer.status, answer.is_closing), (200, true));
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    // Whoever does not want to wait sends another signal.
    gateway.signal("-TERM");
    assert_eq!(gateway.wait(), Some(130));
}

#[test]
fn nobody_reads_standard_output_and_every_request_is_answered() {
    const REQUESTS: usize = 2_000;
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let more = "[server]\naccess_log = true\ndrain_delay = \"0 s\"\n";
    let mut gateway = start(&config(folder.path(), upstream, more));
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    for number in 0..REQUESTS {
        // Long lines fill the pipe soon.
        let path = format!("/{number}/{}", "x".repeat(200));
        let answer = exchange(&mut stream, &path).expect("an answer");
        assert_eq!(answer.status, 200);
    }
    assert_eq!(get(gateway.state, "/healthz").unwrap().status, 200);
    drop(stream);
    // The lines that are left are given up.
    gateway.signal("-TERM");
    assert_eq!(gateway.wait(), Some(0));
    // What fitted into the pipe are whole lines of the access log.
    let mut text = String::new();
    let mut stdout = gateway.child.stdout.take().unwrap();
    stdout.read_to_string(&mut text).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().nth(20).unwrap()).unwrap();
    assert_eq!(line["event_type"], "request");
    assert_eq!(line["method"], "GET");
    assert_eq!(line["status"], 200);
    assert_eq!(line["route"], "/");
}

#[test]
fn idle_connections_leave_descriptors_for_requests_and_health() {
    const IDLE: usize = 300;
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), upstream, "");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_balde"))
        .args(["gateway", "--config"])
        .arg(&file);
    let gateway = start_command(command);
    let mut first = TcpStream::connect(gateway.address).unwrap();
    assert_eq!(exchange(&mut first, "/").unwrap().status, 200);
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(TcpStream::connect(gateway.address).unwrap());
        // A connection that is used is not the one that makes room.
        if idle.len().is_multiple_of(10) {
            assert_eq!(exchange(&mut first, "/").unwrap().status, 200);
            assert_eq!(get(gateway.state, "/healthz").unwrap().status, 200);
        }
    }
    let mut last = TcpStream::connect(gateway.address).unwrap();
    assert_eq!(exchange(&mut last, "/").unwrap().status, 200);
    // The state endpoint has its own places, and connections that say nothing do not keep them.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(gateway.state).unwrap());
    }
    assert_eq!(get(gateway.state, "/healthz").unwrap().status, 200);
}
