//! Connections that switch to another protocol.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::backend::Backend;
use crate::byte_log::ByteLog;
use crate::running::{PATIENCE, Running, raw, simple, status_of};

const OPENING: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// Opens a tunnel to the backend's echo.
async fn open(gateway: &Running) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(OPENING).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    stream.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
    stream
}

fn connections(gateway: &Running) -> u64 {
    gateway.counter("gateway_client_connections")
}

#[tokio::test]
async fn only_websocket_passes_unless_a_route_names_another() {
    let log = ByteLog::start().await;
    let gateway = Running::start(&simple(log.address, "")).await;
    for (asked, arrives) in [
        ("h2c", None),
        ("H2C", None),
        ("echo", None),
        ("TLS/1.0, HTTP/1.1", None),
        ("websocket", Some("websocket")),
        ("WebSocket", Some("WebSocket")),
        ("h2c, websocket", Some("websocket")),
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: close, Upgrade, HTTP2-Settings\r\n\
             Upgrade: {asked}\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
        );
        let answer = raw(gateway.address, request.as_bytes()).await;
        assert_eq!(status_of(&answer), 200, "{asked}");
        let head = log.take().concat();
        assert!(!head.contains("http2-settings"), "{head}");
        let line = arrives.map(|protocol| format!("\r\nupgrade: {protocol}\r\n"));
        assert_eq!(head.contains("\r\nupgrade:"), arrives.is_some(), "{head}");
        assert!(line.is_none_or(|line| head.contains(&line)), "{head}");
    }
    // Settings of HTTP/2 do not pass alone, either.
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nHTTP2-Settings: AAMA\r\n\r\n";
    assert_eq!(
        status_of(&raw(gateway.address, request.as_bytes()).await),
        200
    );
    assert!(!log.take().concat().contains("http2-settings"));
}

#[tokio::test]
async fn an_upstream_may_only_switch_to_what_was_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1_024];
            let _read = stream.read(&mut buffer).await.unwrap();
            let answer =
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            // Until the gateway closes it.
            while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
    });
    let gateway = Running::start(&simple(address, "")).await;
    for asked in ["h2c", "websocket", "h2c, websocket"] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: close, Upgrade\r\nUpgrade: {asked}\r\n\r\n"
        );
        let answer = raw(gateway.address, request.as_bytes()).await;
        assert_eq!(status_of(&answer), 502, "{asked}");
    }
}

#[tokio::test]
async fn tunnels_count_as_connections_of_client_and_upstream_until_they_end() {
    let backend = Backend::start().await;
    let text = simple(
        backend.address,
        "upgrade = [\"echo\"]\n[server]\nconnections_max = 5\n",
    );
    let text = text.replace(
        "[[route]]",
        "connections_max = 2\nconnect_timeout = '200 ms'\n[[route]]",
    );
    let gateway = Running::start(&text).await;
    let one = open(&gateway).await;
    let two = open(&gateway).await;
    assert_eq!(connections(&gateway), 2);
    // Both connections to the upstream are tunnels.
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(status_of(&raw(gateway.address, request).await), 503);
    drop(one);
    let freed = async { while status_of(&raw(gateway.address, request).await) != 200 {} };
    tokio::time::timeout(PATIENCE, freed).await.unwrap();
    drop(two);
    let closed = async {
        while connections(&gateway) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.unwrap();
    // Two more of the five connections of clients are idle tunnels: three are left.
    let tunnels = [open(&gateway).await, open(&gateway).await];
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    let accepted = async {
        while connections(&gateway) < 5 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, accepted).await.unwrap();
    let mut waiting = TcpStream::connect(gateway.address).await.unwrap();
    waiting.write_all(request).await.unwrap();
    drop(tunnels);
    // Only now is it accepted and answered.
    let mut answer = Vec::new();
    let reading = waiting.read_to_end(&mut answer);
    tokio::time::timeout(PATIENCE, reading)
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 "));
}

#[tokio::test]
async fn a_tunnel_that_is_idle_or_outlives_the_gateway_is_closed() {
    let backend = Backend::start().await;
    let text = simple(
        backend.address,
        "upgrade = [\"echo\"]\n[server]\ntunnel_idle_timeout = \"1 s\"\n",
    );
    let gateway = Running::start(&text).await;
    let mut stream = open(&gateway).await;
    let mut rest = Vec::new();
    let reading = stream.read_to_end(&mut rest);
    // A reset is as good as a close.
    let _closed = tokio::time::timeout(PATIENCE, reading).await.unwrap();
    assert!(rest.is_empty());
    let text = simple(backend.address, "upgrade = [\"echo\"]\n");
    let gateway = Running::start(&text).await;
    let mut stream = open(&gateway).await;
    gateway.stop().await;
    let reading = stream.read_to_end(&mut rest);
    let _closed = tokio::time::timeout(PATIENCE, reading).await.unwrap();
}
