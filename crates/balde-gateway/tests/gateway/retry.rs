//! Connections that the upstream closes at the moment at which a request is sent on them.

use balde::{Clock, ManualClock};

use crate::raw_upstream::{RawUpstream, Reply};
use crate::running::{Running, parse, raw, simple, status_of};

const POLICY: &str = "
[[policies.policy]]
name = \"all\"
scope = \"user\"
limit = \"1/min burst 100\"
costs = { default = 1, unanswered = 7 }
[state]
address = \"127.0.0.1:0\"
token_env = \"TOKEN\"
";

/// Answers the first request of every connection, and closes the connection at the second.
async fn forgetful() -> RawUpstream {
    RawUpstream::start(|_, request| match request {
        0 => Reply::ok("hello"),
        _ => Reply::Close,
    })
    .await
}

async fn gateway(upstream: &RawUpstream, settings: &str) -> Running {
    let text = simple(upstream.address, POLICY);
    let text = text.replace("[[route]]", &format!("{settings}\n[[route]]"));
    let clock = ManualClock::at_us(1_000_000_000);
    Running::start_with(&parse(&text), Clock::manual(&clock)).await
}

async fn level(gateway: &Running) -> i64 {
    let states = gateway.states("user=ip:127.0.0.1").await;
    states["policies"][0]["level"].as_i64().unwrap()
}

fn assert_retries(gateway: &Running, expected: usize) {
    let line = format!("gateway_upstream_retries_total{{upstream=\"backend\"}} {expected}\n");
    let metrics = gateway.metrics();
    assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
}

async fn send(gateway: &Running, method: &str, body: &'static str) -> (u16, String) {
    let method = method.parse().unwrap();
    let mut request = gateway.client.request(method, gateway.url("/a?b=1"));
    if !body.is_empty() {
        request = request.body(body);
    }
    let response = request.header("x-kept", "yes").send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test]
async fn an_idempotent_request_is_sent_once_more_on_a_new_connection_and_charged_once() {
    for (method, body) in [
        ("GET", ""),
        ("OPTIONS", ""),
        ("DELETE", ""),
        ("PUT", ""),
        ("PUT", "a small body"),
    ] {
        let upstream = forgetful().await;
        let gateway = gateway(&upstream, "").await;
        assert_eq!(send(&gateway, method, body).await.0, 200);
        assert_retries(&gateway, 0);
        let (status, text) = send(&gateway, method, body).await;
        assert_eq!((status, text.as_str()), (200, "hello"), "{method}");
        let connections = upstream.connections();
        assert_eq!(connections.len(), 2, "{connections:?}");
        assert_eq!(upstream.heads(), 3, "{connections:?}");
        // What was repeated is the same, byte for byte but for the order of fields.
        let sorted = |text: &str| {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            lines.join("\n")
        };
        let first = &connections[0][..connections[0].len() / 2];
        assert_eq!(sorted(first), sorted(&connections[1]));
        assert!(connections[1].contains("x-kept: yes"), "{connections:?}");
        assert!(connections[1].ends_with(body), "{connections:?}");
        assert_retries(&gateway, 1);
        assert_eq!(level(&gateway).await, 98, "{method}");
    }
}

#[tokio::test]
async fn many_requests_survive_an_upstream_that_closes_after_each() {
    let upstream = forgetful().await;
    let gateway = gateway(&upstream, "").await;
    for _ in 0..50 {
        assert_eq!(send(&gateway, "GET", "").await.0, 200);
    }
    assert_eq!(level(&gateway).await, 50);
}

#[tokio::test]
async fn a_request_that_may_have_an_effect_is_not_sent_twice() {
    for (method, body, settings) in [
        ("POST", "", ""),
        ("POST", "a small body", ""),
        ("PATCH", "a small body", ""),
        ("GET", "", "retry = \"unsent\""),
    ] {
        let upstream = forgetful().await;
        let gateway = gateway(&upstream, settings).await;
        assert_eq!(send(&gateway, method, body).await.0, 200);
        let (status, _) = send(&gateway, method, body).await;
        assert_eq!(status, 502, "{method}");
        assert_eq!(upstream.heads(), 2, "{method} {:?}", upstream.connections());
        assert_retries(&gateway, 0);
        assert_eq!(level(&gateway).await, 99 - 7, "{method}");
    }
}

#[tokio::test]
async fn there_is_one_retry_and_none_on_a_new_connection() {
    let upstream = RawUpstream::start(|connection, request| match (connection, request) {
        (0, 0) => Reply::ok("hello"),
        _ => Reply::Close,
    })
    .await;
    let gateway = gateway(&upstream, "").await;
    assert_eq!(send(&gateway, "GET", "").await.0, 200);
    assert_eq!(send(&gateway, "GET", "").await.0, 502);
    assert_eq!(upstream.heads(), 3, "{:?}", upstream.connections());
    assert_retries(&gateway, 1);
    assert_eq!(level(&gateway).await, 99 - 7);
    // A connection that was never used is closed for a reason that a retry does not remove.
    assert_eq!(send(&gateway, "GET", "").await.0, 502);
    assert_eq!(upstream.heads(), 4, "{:?}", upstream.connections());
    assert_retries(&gateway, 1);
}

#[tokio::test]
async fn a_response_that_has_begun_is_not_asked_for_again() {
    let upstream = RawUpstream::start(|_, request| match request {
        0 => Reply::ok("hello"),
        1 => Reply::Bytes("HTTP/1.1 2".to_owned()),
        _ => Reply::Close,
    })
    .await;
    let gateway = gateway(&upstream, "response_timeout = '300 ms'").await;
    assert_eq!(send(&gateway, "GET", "").await.0, 200);
    assert_eq!(send(&gateway, "GET", "").await.0, 504);
    assert_eq!(upstream.heads(), 2, "{:?}", upstream.connections());
    assert_retries(&gateway, 0);
}

#[tokio::test]
async fn a_body_that_was_sent_in_part_is_not_repeated() {
    let upstream = forgetful().await;
    let gateway = gateway(&upstream, "").await;
    assert_eq!(send(&gateway, "GET", "").await.0, 200);
    // The rest of the body is broken, so that the request cannot be whole.
    let request =
        "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n";
    let answer = raw(gateway.address, request.as_bytes()).await;
    assert_eq!(status_of(&answer), 400, "{answer}");
    assert_retries(&gateway, 0);
}

#[tokio::test]
async fn an_http2_connection_that_is_lost_is_replaced_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&asked);
    // Each connection answers one request, and is lost at the second.
    let upstream = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let counted = std::sync::Arc::clone(&counted);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let mut is_first = true;
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    if !std::mem::take(&mut is_first) {
                        return;
                    }
                    let response = http::Response::new(());
                    respond.send_response(response, true).unwrap();
                }
            });
        }
    });
    let text = simple(address, POLICY).replace("[[route]]", "protocol = \"http2\"\n[[route]]");
    let clock = ManualClock::at_us(1_000_000_000);
    let gateway = Running::start_with(&parse(&text), Clock::manual(&clock)).await;
    let count = || asked.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(send(&gateway, "GET", "").await.0, 200);
    assert_eq!(send(&gateway, "GET", "").await.0, 200);
    assert_eq!((count(), level(&gateway).await), (3, 98));
    assert_retries(&gateway, 1);
    // The new connection has answered one request, too.
    assert_eq!(send(&gateway, "POST", "").await.0, 502);
    assert_eq!((count(), level(&gateway).await), (4, 91));
    assert_retries(&gateway, 1);
    upstream.abort();
}
