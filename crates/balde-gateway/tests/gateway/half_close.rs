//! Clients that close their half of the connection after a request, and clients that are gone.

use std::time::Duration;

use balde::{Clock, ManualClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::backend::Backend;
use crate::running::{PATIENCE, Running, parse, simple, status_of};

/// Sends a request and closes this half of the connection.
async fn half_closing(gateway: &Running, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(PATIENCE, reading).await;
    read.expect("the connection is closed").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_client_that_closes_its_half_gets_its_response_and_then_the_end() {
    let backend = Backend::start().await;
    // Longer than a test may take: the end of the response closes the connection, not the timeout.
    let more = "[server]\nhalf_close_timeout = \"10 min\"\n";
    let gateway = Running::start(&simple(backend.address, more)).await;
    for request in [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: x\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "GET /nowhere\r\n",
    ] {
        let answer = rest(half_closing(&gateway, request).await).await;
        let expected = if request.contains("nowhere") {
            400
        } else {
            200
        };
        assert_eq!(status_of(&answer), expected, "{request}\n---\n{answer}");
        if request.starts_with("POST") {
            assert!(answer.ends_with("hello"), "{answer}");
        }
    }
    // The upstream takes its time.
    let waiting = half_closing(&gateway, "GET /gate HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let arrived = async {
        while !backend
            .received()
            .iter()
            .any(|one| one.parts.uri == "/gate")
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.unwrap();
    backend.gate.add_permits(1);
    assert_eq!(status_of(&rest(waiting).await), 200);
    // Pipelined requests are all answered.
    let two = "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = rest(half_closing(&gateway, two).await).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
}

#[tokio::test]
async fn a_long_response_reaches_a_client_that_closed_its_half() {
    let backend = Backend::start().await;
    let more = "[server]\nhalf_close_timeout = \"1 ms\"\n";
    let gateway = Running::start(&simple(backend.address, more)).await;
    let length = 8 * 1_024 * 1_024;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; length]).await.unwrap();
    // The response has begun, and is longer than all buffers on the way.
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = rest(stream).await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.len(), length);
}

#[tokio::test]
async fn a_body_that_ends_too_early_is_broken_at_once() {
    let backend = Backend::start().await;
    let more = "[server]\nhalf_close_timeout = \"10 min\"\nbody_timeout = '1 h'\n";
    let gateway = Running::start(&simple(backend.address, more)).await;
    for request in [
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let answer = rest(half_closing(&gateway, request).await).await;
        assert!(answer.is_empty() || status_of(&answer) == 400, "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_is_gone_is_given_up_after_the_timeout_and_charged_as_abandoned() {
    let backend = Backend::start().await;
    let more = "[[policies.policy]]\nname = \"all\"\nscope = \"user\"\n\
                limit = \"1/min burst 100\"\ncosts = { default = 1, unanswered = 7 }\n\
                [server]\nhalf_close_timeout = \"100 ms\"\n\
                [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n";
    let clock = ManualClock::at_us(1_000_000_000);
    let config = parse(&simple(backend.address, more));
    let gateway = Running::start_with(&config, Clock::manual(&clock)).await;
    let gone = half_closing(&gateway, "GET /gate HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let answer = rest(gone).await;
    assert_eq!(answer, "", "the upstream has not answered");
    let settled = async {
        loop {
            let states = gateway.states("user=ip:127.0.0.1").await;
            if states["policies"][0]["level"] == 93 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap();
    // A connection that is idle is closed at once, whatever the timeout.
    let closed = async {
        while !gateway.metrics().contains("gateway_client_connections 0\n") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.unwrap();
}
