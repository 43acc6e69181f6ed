//! Clients that take no response, or send no body to its end: they cost only themselves.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::running::{PATIENCE, Running, raw, simple, status_of};

const BODY_BYTES: usize = 100_000;

/// A gateway whose upstream has few connections.
async fn gateway(backend: &Backend, upstream: &str, more: &str) -> Running {
    let text = simple(backend.address, more);
    Running::start(&text.replace("[[route]]", &format!("{upstream}\n[[route]]"))).await
}

/// An HTTP/2 connection whose streams have a window of zero bytes.
async fn without_window(address: SocketAddr) -> http2::SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// Asks for a body that is never read.
async fn ask(sender: &http2::SendRequest<Empty<Bytes>>) -> hyper::Result<Response<Incoming>> {
    let request = Request::get(format!("http://x/bytes/{BODY_BYTES}"));
    let request = request.body(Empty::new()).unwrap();
    sender.clone().send_request(request).await
}

fn cuts(gateway: &Running, reason: &str) -> u64 {
    let metrics = gateway.metrics();
    let name =
        format!("gateway_slow_responses_cut_total{{upstream=\"backend\",reason=\"{reason}\"}}");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{metrics}"))
        .trim()
        .parse()
        .unwrap()
}

async fn until(mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

#[tokio::test]
async fn streams_without_a_window_leave_connections_to_others() {
    const CONNECTIONS: usize = 8;
    const STREAMS: usize = 20;
    let backend = Backend::start().await;
    let gateway = gateway(&backend, "connections_max = 8", "").await;
    let mut asked = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let sender = without_window(gateway.address).await;
        for _ in 0..STREAMS {
            let sender = sender.clone();
            // A response that is not read stays with its stream.
            asked.spawn(async move { (ask(&sender).await, sender) });
        }
    }
    for _ in 0..50 {
        let response = gateway.get(&format!("/bytes/{BODY_BYTES}")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.bytes().await.unwrap().len(), BODY_BYTES);
    }
    assert!(cuts(&gateway, "share") > 0);
    // All of them were asked for, and those that were cut are reset.
    let mut resets = 0;
    while let Some(Ok((response, _sender))) = asked.join_next().await {
        let Ok(response) = response else { continue };
        assert_eq!(response.status(), 200);
        let body = response.into_body();
        let frame = tokio::time::timeout(Duration::from_millis(1), body.collect()).await;
        resets += usize::from(matches!(frame, Ok(Err(_))));
    }
    assert!(resets > 0);
    assert_eq!(gateway.status("/").await, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_that_takes_nothing_is_reset_after_the_write_timeout_and_others_go_on() {
    let backend = Backend::start().await;
    let gateway = gateway(
        &backend,
        "connections_max = 8",
        "[server]\nwrite_timeout = '300 ms'\n",
    )
    .await;
    let sender = without_window(gateway.address).await;
    let response = ask(&sender).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = tokio::time::timeout(PATIENCE, response.into_body().collect());
    assert!(body.await.expect("it is reset").is_err());
    assert_eq!(cuts(&gateway, "timeout"), 1);
    // Only the stream was reset: the connection goes on.
    let request = Request::head("http://x/").body(Empty::new()).unwrap();
    let response = sender.clone().send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn http1_clients_that_read_nothing_leave_connections_to_others() {
    const CLIENTS: usize = 40;
    const LENGTH: usize = 8 * 1_024 * 1_024;
    let backend = Backend::start().await;
    let gateway = gateway(&backend, "connections_max = 8", "").await;
    let mut idle = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let request = format!("GET /bytes/{LENGTH} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        idle.push(stream);
    }
    for _ in 0..20 {
        let response = gateway.get(&format!("/bytes/{LENGTH}")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.bytes().await.unwrap().len(), LENGTH);
    }
    assert!(cuts(&gateway, "share") > 0);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stalled_stream_does_not_stop_others_of_a_shared_connection_to_the_upstream() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend, "protocol = \"http2\"", "").await;
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let sender = without_window(gateway.address).await;
        stalled.push((ask(&sender).await.unwrap(), sender));
    }
    for _ in 0..10 {
        let response = gateway.get(&format!("/bytes/{BODY_BYTES}")).await;
        let body = tokio::time::timeout(PATIENCE, response.bytes()).await;
        assert_eq!(body.unwrap().unwrap().len(), BODY_BYTES);
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_upstream_is_not_down_because_bodies_do_not_arrive() {
    const CLIENTS: usize = 40;
    let backend = Backend::start().await;
    let gateway = gateway(
        &backend,
        "response_timeout = '300 ms'",
        "[server]\nbody_timeout = '1 min'\n",
    )
    .await;
    let part = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello";
    let mut slow = JoinSet::new();
    for _ in 0..CLIENTS {
        slow.spawn(raw(gateway.address, part));
    }
    // The client is told that it was too slow, not that the upstream was.
    let mut answers = Vec::new();
    while let Some(answer) = slow.join_next().await {
        answers.push(status_of(&answer.unwrap()));
        assert_eq!(gateway.status("/").await, 200);
    }
    assert_eq!(answers, [408; CLIENTS]);
    assert!(
        gateway
            .metrics()
            .contains("gateway_upstream_up{upstream=\"backend\"} 1")
    );
    // Complete requests without an answer still say something.
    let mut hanging = JoinSet::new();
    for _ in 0..5 {
        hanging.spawn(gateway.client.get(gateway.url("/hang")).send());
    }
    while let Some(answer) = hanging.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status(), 504);
    }
    assert!(
        gateway
            .metrics()
            .contains("gateway_upstream_up{upstream=\"backend\"} 0")
    );
}

const WAITING: &str = "
wait = '2 min'
[limiting]
waiters_max = 8
waiting_share = \"25%\"
[policies.scopes]
code = [\"path:code\"]
[[policies.policy]]
name = \"by-path\"
match = [\"GET /status/{code}\"]
scope = \"code\"
limit = \"1/min\"
";

#[tokio::test]
async fn requests_that_wait_for_one_bucket_do_not_refuse_those_for_another() {
    let backend = Backend::start().await;
    let text = simple(backend.address, WAITING);
    // A second route does not wait.
    let text = text.replace(
        "[limiting]",
        "[[route]]\nname = \"hurried\"\nhost = \"hurried\"\npath = \"/\"\nupstream = \"backend\"\n[limiting]",
    );
    let gateway = Running::start(&text).await;
    assert_eq!(gateway.status("/status/201").await, 201);
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let get = gateway.client.get(gateway.url("/status/201"));
        waiting.spawn(get.send());
    }
    until(|| gateway.metrics().contains("gateway_waiting_requests 2")).await;
    // Another bucket of the same policy is full.
    for status in [202, 203, 204] {
        let path = format!("/status/{status}");
        let get = gateway.client.get(gateway.url(&path));
        let response = get.header("host", "hurried").send().await.unwrap();
        assert_eq!(response.status(), status);
    }
    let get = gateway.client.get(gateway.url("/status/201"));
    let response = get.header("host", "hurried").send().await.unwrap();
    assert_eq!(response.status(), 429, "others wait for this one");
}

#[tokio::test]
async fn a_slow_client_is_served_to_the_end_while_it_takes_something() {
    let backend = Backend::start().await;
    let gateway = gateway(
        &backend,
        "connections_max = 2",
        "[server]\nwrite_timeout = '1 s'\n",
    )
    .await;
    let length = 4 * 1_024 * 1_024;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let request = format!("GET /bytes/{length} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut taken = 0;
    let mut buffer = vec![0; 256 * 1_024];
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        if read == 0 {
            break;
        }
        taken += read;
        assert_eq!(gateway.status("/").await, 200);
    }
    assert!(taken > length, "{taken}");
    assert_eq!(cuts(&gateway, "timeout") + cuts(&gateway, "share"), 0);
}
