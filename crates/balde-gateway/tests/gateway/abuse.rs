//! Clients that are slow, idle, greedy or large.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Frame;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::backend::Backend;
use crate::running::{PATIENCE, Running, raw, simple, status_of};

#[tokio::test]
async fn oversized_heads_are_431() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(
        backend.address,
        "[server]\nheader_size_max = '8 KiB'\nheaders_max = 20\n",
    ))
    .await;
    let long = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n",
        "a".repeat(9_000)
    );
    assert_eq!(status_of(&raw(gateway.address, long.as_bytes()).await), 431);
    let fields: Vec<String> = (0..30).map(|n| format!("X-{n}: 1\r\n")).collect();
    let fields = fields.concat();
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    assert_eq!(status_of(&raw(gateway.address, many.as_bytes()).await), 431);
    let path = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(9_000));
    let status = status_of(&raw(gateway.address, path.as_bytes()).await);
    assert!(matches!(status, 414 | 431), "{status}");
    assert!(backend.received().is_empty());
    assert_eq!(gateway.status("/").await, 200);
}

#[tokio::test]
async fn too_many_header_fields_are_431_over_http2_too() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "[server]\nheaders_max = 20\n")).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<Bytes>>();
    for (fields, status) in [(20, 200), (21, 431), (300, 431)] {
        let mut request = Request::get(gateway.url("/"));
        for number in 0..fields {
            // As many lines of one field as there are fields.
            let name = format!("x-{}", number % 2);
            request = request.header(name, "1");
        }
        let request = request.body(Full::default()).unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.status(), status, "{fields}");
    }
    assert_eq!(backend.received().len(), 1);
}

#[tokio::test]
async fn several_lengths_are_refused_over_http2_too() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    for lengths in [&["5", "5"][..], &["5, 5"], &["5,6"], &["+5"]] {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        let serving = tokio::spawn(connection);
        let mut request = Request::post(gateway.url("/"));
        for length in lengths {
            request = request.header("content-length", *length);
        }
        let request = request.body(()).unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        // The gateway may have reset the stream already.
        let _ = body.send_data(Bytes::from_static(b"hello"), true);
        let response = tokio::time::timeout(PATIENCE, response).await.unwrap();
        // h2 itself resets streams whose length is not a number.
        if let Ok(response) = response {
            assert_eq!(response.status(), 400, "{lengths:?}");
        }
        serving.abort();
    }
    assert!(backend.received().is_empty(), "{:?}", backend.received());
}

#[tokio::test]
async fn a_body_that_is_too_long_is_413_with_and_without_a_length() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(
        backend.address,
        "body_size_max = '10 B'\n[server]\nbody_size_max = '1000000 B'\n",
    ))
    .await;
    let answer = raw(
        gateway.address,
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world",
    )
    .await;
    assert_eq!(status_of(&answer), 413, "{answer}");
    let answer = raw(
        gateway.address,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
    )
    .await;
    assert_eq!(status_of(&answer), 413, "{answer}");
    let answer = raw(
        gateway.address,
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 10\r\n\r\nhello worl",
    )
    .await;
    assert_eq!(status_of(&answer), 200, "{answer}");
}

#[tokio::test]
async fn a_client_that_stops_sending_is_given_up() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(
        backend.address,
        "[server]\nheader_timeout = '200 ms'\nbody_timeout = '200 ms'\n",
    ))
    .await;
    // In the middle of the head, the connection is closed; in the middle of the body it is 408.
    let answer = raw(gateway.address, b"GET / HTTP/1.1\r\nHost: x\r\n").await;
    assert!(answer.is_empty() || status_of(&answer) == 408, "{answer}");
    let answer = raw(
        gateway.address,
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello",
    )
    .await;
    assert_eq!(status_of(&answer), 408, "{answer}");
    // So is an idle connection.
    assert_eq!(raw(gateway.address, b"").await, "");
}

#[tokio::test]
async fn idle_and_slow_clients_do_not_keep_others_out() {
    const CLIENTS: usize = 500;
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let mut idle = Vec::new();
    for number in 0..CLIENTS {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        if number % 2 == 0 {
            stream
                .write_all(b"GET / HTTP/1.1\r\nX-Slow: ")
                .await
                .unwrap();
        }
        idle.push(stream);
    }
    assert_eq!(gateway.status("/").await, 200);
    let metrics = gateway.metrics();
    let open = metrics
        .lines()
        .find_map(|line| line.strip_prefix("gateway_client_connections "))
        .unwrap();
    assert!(open.parse::<usize>().unwrap() >= CLIENTS, "{open}");
    drop(idle);
    gateway.stop().await;
}

#[tokio::test]
async fn clients_that_hang_within_a_body_leave_connections_to_the_upstream() {
    const CLIENTS: usize = 20;
    let backend = Backend::start().await;
    let text = simple(backend.address, "");
    let limits = "connections_max = 4\nconnect_timeout = '500 ms'\n";
    let text = text.replace("[[route]]", &format!("{limits}[[route]]"));
    let gateway = Running::start(&text).await;
    let mut hanging = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let part = b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello";
        stream.write_all(part).await.unwrap();
        hanging.push(stream);
    }
    // As many as may have reached the backend.
    let reached = async {
        while backend
            .connections
            .load(std::sync::atomic::Ordering::SeqCst)
            < 2
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
    for _ in 0..10 {
        assert_eq!(gateway.status("/").await, 200);
        // A body that arrives completely passes, too.
        let sent = gateway.client.post(gateway.url("/echo")).body("small");
        let response = sent.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.text().await.unwrap(), "small");
    }
    // One that is too long to be read ahead does not, until others have ended.
    let mut long = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n".to_vec();
    long.resize(20_000, b'x');
    assert_eq!(status_of(&raw(gateway.address, &long).await), 503);
    for mut stream in hanging {
        stream.write_all(b"world").await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    let received = backend.received();
    let slow = received
        .iter()
        .filter(|one| one.parts.uri.path() == "/slow");
    assert!(slow.clone().all(|one| one.body == "helloworld"));
    assert_eq!(slow.count(), CLIENTS);
    let long = vec![b'x'; 100_000];
    let sent = gateway.client.post(gateway.url("/echo")).body(long.clone());
    let response = sent.send().await.unwrap();
    assert_eq!(response.bytes().await.unwrap(), long);
}

#[tokio::test]
async fn a_large_body_passes_without_being_collected() {
    const CHUNKS: usize = 1_024;
    const CHUNK: usize = 64 * 1_024;
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(
        backend.address,
        "[server]\nbody_size_max = '9765625 KiB'\n",
    ))
    .await;
    let body = Chunks {
        left: CHUNKS,
        chunk: Bytes::from(vec![7; CHUNK]),
    };
    let client = Client::builder(TokioExecutor::new()).build_http();
    let before = resident_bytes();
    let request = Request::post(gateway.url("/sink")).body(body).unwrap();
    let response: Response<_> = client.request(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, (CHUNKS * CHUNK).to_string());
    let grown = resident_bytes().saturating_sub(before);
    // 64 MiB went through, by client, gateway and backend in this process.
    assert!(grown < 32 * 1_024 * 1_024, "{grown} bytes more");
}

/// A body of the same chunk, many times.
struct Chunks {
    left: usize,
    chunk: Bytes,
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(left) = self.left.checked_sub(1) else {
            return std::task::Poll::Ready(None);
        };
        self.left = left;
        std::task::Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_given_up() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(
        backend.address,
        "[server]\nwrite_timeout = '300 ms'\nbody_size_max = '100000000 B'\n",
    ))
    .await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    // An echo larger than all buffers on the way, which is never read.
    let length = 32 * 1_024 * 1_024;
    let head = format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let sending = async {
        let chunk = vec![1; 64 * 1_024];
        for _ in 0..length / chunk.len() {
            if stream.write_all(&chunk).await.is_err() {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, sending).await.unwrap();
    let closed = async {
        loop {
            let metrics = gateway.metrics();
            if metrics.contains("gateway_client_connections 0") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed)
        .await
        .expect("it is closed");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}
