//! What no honest client sends, and more connections than there is room for.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::running::{DEADLINE, Running, eventually};

const LIMITS: &str = "[limits.users]\nlimit = \"10/day\"\n[limits.slow]\nlimit = \"1/day\"\n";

#[tokio::test]
async fn garbage_gets_the_protocols_error_and_is_closed() {
    let service = Running::start(LIMITS).await;
    for (garbage, error) in [
        (
            "*1\r\n$104857600\r\n",
            "-ERR Protocol error: invalid bulk length\r\n",
        ),
        (
            "*99999999\r\n",
            "-ERR Protocol error: invalid multibulk length\r\n",
        ),
        ("*1\r\nPING\r\n", "-ERR Protocol error: expected '$'\r\n"),
        (
            "*2\r\n$4\r\nPING!!",
            "-ERR Protocol error: expected a line end after a bulk string\r\n",
        ),
        (
            "ECHO \"\r\n",
            "-ERR Protocol error: unbalanced quotes in request\r\n",
        ),
        (
            &"x".repeat(70_000),
            "-ERR Protocol error: too big inline request\r\n",
        ),
    ] {
        let mut resp = service.resp().await;
        resp.expect(garbage, error).await;
        assert_eq!(resp.rest().await, "", "{garbage:.40}");
    }
    let mut random = fastrand::Rng::with_seed(28);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..random.usize(1..2_000)).map(|_| random.u8(..)).collect();
        let mut resp = service.resp().await;
        resp.0.write_all(&bytes).await.unwrap();
        resp.0.shutdown().await.unwrap();
        resp.rest().await;
    }
    let mut resp = service.resp().await;
    resp.expect("PING\r\n", "+PONG\r\n").await;
    service.stop().await;
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_at_their_head() {
    let service = Running::start(LIMITS).await;
    let mut resp = service.resp().await;
    resp.0
        .write_all(b"*2\r\n$4\r\nECHO\r\n$104857600\r\n")
        .await
        .unwrap();
    let mut sent = 0_usize;
    let chunk = vec![b'x'; 64 << 10];
    // It is closed long before the whole argument is sent.
    while sent < 104_857_600 && resp.0.write_all(&chunk).await.is_ok() {
        sent += chunk.len();
    }
    assert!(sent < 50 << 20, "{sent} bytes were accepted");
    let before = memory_kib();
    // Incomplete commands within the limits cost what was sent of them.
    let mut connections = Vec::new();
    for _ in 0..100 {
        let mut stream = service.resp().await.0;
        stream
            .write_all(b"*3\r\n$4\r\nECHO\r\n$60000\r\nxxxxxx")
            .await
            .unwrap();
        connections.push(stream);
    }
    let mut resp = service.resp().await;
    resp.expect("PING\r\n", "+PONG\r\n").await;
    let grown = memory_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB for 100 incomplete commands");
    service.stop().await;
}

/// Each of them stays below its own limit.
#[tokio::test]
async fn incomplete_commands_of_many_connections_do_not_fill_the_memory() {
    let service = Running::start(LIMITS).await;
    let before = memory_kib();
    let argument = [
        b"*2\r\n$4\r\nECHO\r\n$60000\r\n".as_slice(),
        &vec![b'x'; 50_000],
    ]
    .concat();
    let mut connections = Vec::new();
    for _ in 0..1_600 {
        let mut stream = service.resp().await.0;
        // It may be closed before all bytes are sent.
        let _may_be_closed = stream.write_all(&argument).await;
        connections.push(stream);
    }
    let mut answer = vec![0; 64];
    eventually("some are refused", async || {
        connections.iter().any(|stream| {
            let read = stream.try_read(&mut answer).unwrap_or(0);
            answer[..read].starts_with(b"-BUSY too many incomplete commands")
        })
    })
    .await;
    let grown = memory_kib().saturating_sub(before);
    assert!(grown < 256 << 10, "{grown} KiB");
    let mut resp = service.resp().await;
    resp.expect("PING\r\n", "+PONG\r\n").await;
    service.stop().await;
}

/// What of this process is in memory.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_connection_too_many_gets_the_protocols_error() {
    let text = format!(
        "{LIMITS}[http]\naddress = \"127.0.0.1:0\"\nconnections_max = 2\n\
         [resp]\naddress = \"127.0.0.1:0\"\nconnections_max = 2\n"
    );
    let service = Running::start_only(&text).await;
    let mut first = service.resp().await;
    let mut second = service.resp().await;
    first.expect("PING\r\n", "+PONG\r\n").await;
    second.expect("PING\r\n", "+PONG\r\n").await;
    let mut third = service.resp().await;
    assert_eq!(third.rest().await, "-ERR max number of clients reached\r\n");
    drop(first);
    eventually("there is room again", async || {
        let mut next = service.resp().await;
        let _may_be_closed = next.0.write_all(b"PING\r\nQUIT\r\n").await;
        next.rest().await.starts_with("+PONG")
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(service.address("http")).await.unwrap();
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let mut bytes = [0; 12];
        stream.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"HTTP/1.1 200");
        open.push(stream);
    }
    let mut stream = TcpStream::connect(service.address("http")).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(
        text.starts_with("HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"),
        "{text}"
    );
    drop(open);
    service.stop().await;
}

#[tokio::test]
async fn a_caller_that_is_gone_waits_no_longer() {
    let text = "[limits.slow]\nlimit = \"1/20s\"\n";
    let service = Running::start(text).await;
    let mut resp = service.resp().await;
    resp.0
        .write_all(b"BALDE.CHECK slow k\r\nBALDE.WAIT slow k 1 30000\r\nPING\r\n")
        .await
        .unwrap();
    let waiting = async || {
        let url = format!("http://{}/v1/limits", service.address("http"));
        let state: serde_json::Value = service
            .client
            .get(url)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        state["limits"][0]["waiting"].as_u64().unwrap()
    };
    eventually("it waits", async || waiting().await == 1).await;
    drop(resp);
    eventually("it waits no longer", async || waiting().await == 0).await;
    service.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_closed_and_costs_little() {
    let text = format!("{LIMITS}[resp]\naddress = \"127.0.0.1:0\"\nwrite_timeout = \"300 ms\"\n");
    let service = Running::start_only(&text).await;
    let mut resp = service.resp().await;
    let pings = "PING\r\n".repeat(10_000);
    let begun = std::time::Instant::now();
    // Its answers fill the buffers of the system, and then it is closed.
    let sending = async { while resp.0.write_all(pings.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(DEADLINE, sending)
        .await
        .expect("it is closed in time");
    assert!(begun.elapsed() > Duration::from_millis(100));
    let mut resp = service.resp().await;
    resp.expect("PING\r\n", "+PONG\r\n").await;
    service.stop().await;
}
