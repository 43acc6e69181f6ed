//! Requests and responses on their way through.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::backend::Backend;
use crate::running::{PATIENCE, Running, raw, simple, status_of};

#[tokio::test]
async fn path_query_and_body_arrive_as_they_were_sent() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let path = "/a%20b/c+%2B/x%40y=%C3%A3?q=1&q=2&%2B=+//..;%zz";
    let body = "bytes \u{0} as they are";
    let response = gateway
        .client
        .post(gateway.url("/").trim_end_matches('/').to_owned() + path)
        .header("x-kept", "yes")
        .header("host", "shop.example")
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.text().await.unwrap(), body);
    let received = backend.only();
    assert_eq!(received.parts.uri.to_string(), path);
    assert_eq!(received.parts.headers["x-kept"], "yes");
    assert_eq!(received.parts.headers["host"], "shop.example");
    assert_eq!(received.parts.headers["x-forwarded-for"], "127.0.0.1");
    assert_eq!(received.parts.headers["x-forwarded-proto"], "http");
    assert_eq!(
        received.parts.headers["forwarded"],
        "for=127.0.0.1;proto=http;host=\"shop.example\""
    );
    let length = received.parts.headers["content-length"].to_str().unwrap();
    assert_eq!(length, body.len().to_string());
}

#[tokio::test]
async fn the_body_of_any_method_arrives_with_and_without_a_length() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "PROPFIND", "POST"] {
        for body in [
            "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            "Content-Length: 5\r\n\r\nhello",
        ] {
            let backend = Backend::start().await;
            let gateway = Running::start(&simple(backend.address, "")).await;
            let request = format!("{method} / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{body}");
            let answer = raw(gateway.address, request.as_bytes()).await;
            assert_eq!(status_of(&answer), 200, "{request}\n---\n{answer}");
            let received = backend.only();
            assert_eq!(received.body, "hello", "{request}");
            assert_eq!(received.parts.method, method);
        }
    }
}

#[tokio::test]
async fn hop_by_hop_fields_are_removed_in_both_directions() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let answer = raw(
        gateway.address,
        b"GET /headers HTTP/1.1\r\nHost: x\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\n\
          Proxy-Authorization: Basic eDp5\r\nTE: gzip\r\nX-Kept: 1\r\n\r\n",
    )
    .await
    .to_lowercase();
    assert_eq!(status_of(&answer), 200);
    assert!(answer.contains("x-end: 2"), "{answer}");
    assert!(!answer.contains("x-hop"), "{answer}");
    assert!(!answer.contains("keep-alive"), "{answer}");
    let headers = backend.only().parts.headers;
    for name in ["connection", "x-secret", "proxy-authorization", "te"] {
        assert!(!headers.contains_key(name), "{name}: {headers:?}");
    }
    assert_eq!(headers["x-kept"], "1");
}

#[tokio::test]
async fn http2_in_and_out() {
    let backend = Backend::start().await;
    for protocol in ["http1", "http2"] {
        let text = simple(backend.address, "").replace(
            "[[route]]",
            &format!("protocol = \"{protocol}\"\n[[route]]"),
        );
        let gateway = Running::start(&text).await;
        let client = Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build_http::<Full<Bytes>>();
        let request = Request::post(gateway.url("/two"))
            .body(Full::from("over HTTP/2"))
            .unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "over HTTP/2");
        let received = backend.received().pop().unwrap();
        let expected = match protocol {
            "http2" => http::Version::HTTP_2,
            _ => http::Version::HTTP_11,
        };
        assert_eq!(received.parts.version, expected);
        // The client's host arrives, wherever its version of HTTP has it.
        let host = received.parts.headers.get("host").unwrap();
        assert_eq!(host.to_str().unwrap(), gateway.address.to_string());
        // HTTP/2 has it twice, and the same.
        if let Some(authority) = received.parts.uri.authority() {
            assert_eq!(authority.as_str(), host);
        }
    }
}

#[tokio::test]
async fn an_upgraded_connection_passes_bytes_both_ways() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "upgrade = [\"echo\"]\n")).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream
        .write_all(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("upgrade: echo"), "{head}");
    for text in [b"hello".as_slice(), b"world"] {
        stream.write_all(text).await.unwrap();
        let mut echo = [0; 5];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, text);
    }
    let headers = backend.only().parts.headers;
    assert_eq!(headers["upgrade"], "echo");
    assert!(headers.contains_key("sec-websocket-key"));
    gateway.stop().await;
}

#[tokio::test]
async fn connections_to_the_upstream_are_reused() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    for _ in 0..20 {
        assert_eq!(gateway.status("/").await, 200);
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_dead_upstream_is_502_at_once_and_comes_back() {
    let backend = Backend::start().await;
    let address = backend.address;
    let gateway = Running::start(&simple(address, "")).await;
    assert_eq!(gateway.status("/").await, 200);
    drop(backend);
    // The listener is gone; a pooled connection may still answer once.
    let dead = async { while gateway.status("/").await != 502 {} };
    tokio::time::timeout(PATIENCE, dead).await.unwrap();
    let metrics = gateway.metrics();
    assert!(
        metrics.contains("gateway_upstream_up{upstream=\"backend\"} 0"),
        "{metrics}"
    );
    let backend = Backend::start_on(address).await;
    let back = async { while gateway.status("/").await != 200 {} };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    drop(backend);
}

#[tokio::test]
async fn an_upstream_that_dies_under_load_costs_each_request_once() {
    const CAPACITY: u64 = 50_000;
    let backend = Backend::start().await;
    let address = backend.address;
    let policy = format!(
        "[[policies.policy]]\nname = \"all\"\nlimit = \"1/day burst {CAPACITY}\"\n\
         [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n"
    );
    let gateway = Arc::new(Running::start(&simple(address, &policy)).await);
    let is_over = Arc::new(AtomicBool::new(false));
    let (served, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let callers = (0..8).map(|_| {
        let (gateway, is_over) = (gateway.clone(), is_over.clone());
        let (served, failed) = (served.clone(), failed.clone());
        tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                match gateway.status("/").await {
                    200 => served.fetch_add(1, Ordering::SeqCst),
                    502 => failed.fetch_add(1, Ordering::SeqCst),
                    other => panic!("{other}"),
                };
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let reach = async |count: &AtomicU64, more: u64| {
        let target = count.load(Ordering::SeqCst) + more;
        let reached = async {
            while count.load(Ordering::SeqCst) < target {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.unwrap();
    };
    reach(&served, 50).await;
    let seen_by_first = {
        let received = backend.received().len();
        drop(backend);
        received
    };
    reach(&failed, 50).await;
    let backend = Backend::start_on(address).await;
    reach(&served, 50).await;
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    let seen = u64::try_from(seen_by_first + backend.received().len()).unwrap();
    let served = served.load(Ordering::SeqCst);
    let level = gateway.states("").await["policies"][0]["level"]
        .as_u64()
        .unwrap();
    let spent = CAPACITY - level;
    // What was answered is paid for once. What the upstream may have seen, and nobody answered, is
    // paid for too; at most one for each caller. What was never sent is not.
    assert!(
        (served..=served + 8).contains(&spent),
        "{spent} for {served}"
    );
    // The first backend may have received something after it was asked for the last time.
    assert!(
        (served..=served + 16).contains(&(seen + 8)),
        "{seen} seen, {served} served"
    );
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_504_and_then_502_without_waiting() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = simple(silent.local_addr().unwrap(), "")
        .replace("[[route]]", "response_timeout = '300 ms'\n[[route]]");
    let gateway = Running::start(&text).await;
    let mut statuses = Vec::new();
    let started = Instant::now();
    for _ in 0..50 {
        statuses.push(gateway.status("/").await);
    }
    assert_eq!(statuses[0], 504);
    let waited = statuses.iter().filter(|status| **status == 504).count();
    let at_once = statuses.iter().filter(|status| **status == 502).count();
    assert_eq!(waited + at_once, 50, "{statuses:?}");
    assert!(at_once > 30, "{statuses:?} within {:?}", started.elapsed());
}

#[tokio::test]
async fn routes_are_chosen_by_host_path_and_method() {
    let (one, two) = (Backend::start().await, Backend::start().await);
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"one\"\nurl = \"http://{}\"\n\
         [[upstream]]\nname = \"two\"\nurl = \"http://{}\"\n\
         [[route]]\npath = \"/shop\"\nupstream = \"one\"\n\
         [[route]]\npath = \"/shop/cart\"\nupstream = \"two\"\n\
         [[route]]\nname = \"posts\"\npath = \"/shop\"\nmethods = [\"POST\"]\nupstream = \"two\"\n\
         [[route]]\nname = \"other\"\npath = \"/\"\nhost = \"two.example\"\nupstream = \"two\"\n",
        one.address, two.address
    );
    let gateway = Running::start(&text).await;
    let send = async |method: &str, path: &str, host: &str| {
        let method = method.parse().unwrap();
        let request = gateway.client.request(method, gateway.url(path));
        let request = if host.is_empty() {
            request
        } else {
            request.header("host", host)
        };
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(send("GET", "/shop", "").await, 200);
    assert_eq!(send("GET", "/shop/cart/1", "").await, 200);
    assert_eq!(send("POST", "/shop/x", "").await, 200);
    assert_eq!(send("GET", "/elsewhere", "TWO.example:80").await, 200);
    assert_eq!(send("GET", "/elsewhere", "").await, 404);
    assert_eq!(send("GET", "/shopping", "").await, 404);
    assert_eq!(one.received().len(), 1);
    assert_eq!(two.received().len(), 3);
    let metrics = gateway.metrics();
    for line in [
        "gateway_requests_total{route=\"/shop\",status=\"2xx\"} 1",
        "gateway_requests_total{route=\"posts\",status=\"2xx\"} 1",
        "gateway_request_duration_ms_count{route=\"/shop/cart\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn the_parent_of_a_trace_is_passed_on_unchanged() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = gateway.client.get(gateway.url("/"));
    let request = request
        .header("traceparent", sent)
        .header("tracestate", "a=1");
    assert_eq!(request.send().await.unwrap().status(), 200);
    let headers = backend.only().parts.headers;
    assert_eq!(headers["traceparent"], sent);
    assert_eq!(headers["tracestate"], "a=1");
}

#[tokio::test]
async fn requests_in_flight_are_answered_before_a_shutdown_ends() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let asking = gateway.client.get(gateway.url("/gate")).send();
    let asking = tokio::spawn(asking);
    let arrived = async {
        while backend.received().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.unwrap();
    let stopping = tokio::spawn(gateway.stop());
    backend.gate.add_permits(1);
    assert_eq!(asking.await.unwrap().unwrap().status(), 200);
    tokio::time::timeout(PATIENCE, stopping)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_upstream_may_not_switch_protocols_unasked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1_024];
        let _ = stream.read(&mut buffer).await.unwrap();
        stream
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            )
            .await
            .unwrap();
        std::future::pending::<()>().await;
        drop(stream);
    });
    let gateway = Running::start(&simple(address, "")).await;
    assert_eq!(gateway.status("/").await, 502);
}
