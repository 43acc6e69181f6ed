//! What requests cost whose bodies break, and what of them reaches the upstream.

use std::time::Duration;

use balde::{Clock, ManualClock};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::raw_upstream::{RawUpstream, Reply};
use crate::running::{PATIENCE, Running, parse, raw, simple, status_of};

const POLICY: &str = "
body_size_max = '10 B'
[[policies.policy]]
name = \"all\"
scope = \"user\"
limit = \"1/min burst 100\"
costs = { default = 1, unanswered = 7 }
[server]
body_timeout = '200 ms'
[state]
address = \"127.0.0.1:0\"
token_env = \"TOKEN\"
";

async fn start() -> (RawUpstream, Running) {
    let upstream = RawUpstream::start(|_, _| Reply::ok("hello")).await;
    let clock = ManualClock::at_us(1_000_000_000);
    let config = parse(&simple(upstream.address, POLICY));
    let gateway = Running::start_with(&config, Clock::manual(&clock)).await;
    (upstream, gateway)
}

async fn level(gateway: &Running) -> i64 {
    let states = gateway.states("user=ip:127.0.0.1").await;
    states["policies"][0]["level"].as_i64().unwrap()
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_body_that_breaks_before_anything_was_sent_is_free() {
    for (request, status) in [
        (format!("{CHUNKED}zz\r\n"), 400),
        (format!("{CHUNKED}b\r\nhello world\r\n0\r\n\r\n"), 413),
        (format!("{CHUNKED}-1\r\n"), 400),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world".to_owned(),
            413,
        ),
    ] {
        // On a new connection to the upstream, and on one that was used before.
        for is_reused in [false, true] {
            let (upstream, gateway) = start().await;
            let mut before = 100;
            if is_reused {
                assert_eq!(gateway.status("/").await, 200);
                before = 99;
            }
            let sent = upstream.read().len();
            let answer = raw(gateway.address, request.as_bytes()).await;
            assert_eq!(status_of(&answer), status, "{request}\n---\n{answer}");
            assert_eq!(level(&gateway).await, before, "{request}");
            assert_eq!(upstream.read().len(), sent, "{request} {}", upstream.read());
        }
    }
}

#[tokio::test]
async fn a_body_that_breaks_after_a_part_was_sent_costs_what_an_unanswered_request_costs() {
    // It stops, within the body's timeout and without it.
    let (upstream, gateway) = start().await;
    let part = format!("{CHUNKED}5\r\nhello\r\n");
    let answer = raw(gateway.address, part.as_bytes()).await;
    assert_eq!(status_of(&answer), 408, "{answer}");
    assert!(upstream.read().contains("hello"), "{}", upstream.read());
    assert_eq!(level(&gateway).await, 93);
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(part.as_bytes()).await.unwrap();
    let arrived = async {
        while upstream.read().matches("hello").count() < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.unwrap();
    drop(stream);
    let settled = async {
        while level(&gateway).await != 86 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_for_a_connection_is_free() {
    // The upstream's only connection is busy, and the second client goes away meanwhile.
    let upstream = RawUpstream::start(|_, _| Reply::Bytes(String::new())).await;
    let text = simple(upstream.address, POLICY);
    let text = text.replace("[[route]]", "connections_max = 1\n[[route]]");
    let clock = ManualClock::at_us(1_000_000_000);
    let gateway = Running::start_with(&parse(&text), Clock::manual(&clock)).await;
    let get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut first = TcpStream::connect(gateway.address).await.unwrap();
    first.write_all(get).await.unwrap();
    let until = |expected: i64| {
        let gateway = &gateway;
        async move {
            while level(gateway).await != expected {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, until(99)).await.unwrap();
    let mut second = TcpStream::connect(gateway.address).await.unwrap();
    second.write_all(get).await.unwrap();
    tokio::time::timeout(PATIENCE, until(98)).await.unwrap();
    // A reset says that nobody waits for a response any longer.
    second.set_zero_linger().unwrap();
    drop(second);
    tokio::time::timeout(PATIENCE, until(99)).await.unwrap();
    assert_eq!(upstream.heads(), 1);
}
