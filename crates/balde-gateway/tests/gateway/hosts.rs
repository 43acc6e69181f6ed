//! One host per request: valid, and the same for routing, limiting and forwarding.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::byte_log::ByteLog;
use crate::running::{Running, raw, status_of};

/// `api.example` is limited to one request, `static.example` is not limited, other hosts have no route.
async fn start(log: &ByteLog) -> Running {
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"backend\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"api\"\nhost = \"API.example.\"\npath = \"/\"\nupstream = \"backend\"\n\
         [[route]]\nname = \"static\"\nhost = \"static.example\"\npath = \"/\"\nupstream = \"backend\"\n\
         policies = false\n\
         [policies.scopes]\nby-host = [\"header:Host\"]\n\
         [[policies.policy]]\nname = \"hosts\"\nscope = \"by-host\"\nlimit = \"1/day burst 1\"\n",
        log.address
    );
    let gateway = Running::start(&text).await;
    let plain = "GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n";
    assert_eq!(
        status_of(&raw(gateway.address, plain.as_bytes()).await),
        200
    );
    assert!(log.take().concat().contains("\r\nhost: api.example\r\n"));
    gateway
}

#[tokio::test]
async fn no_spelling_of_a_host_escapes_its_route_or_its_bucket() {
    let log = ByteLog::start().await;
    let gateway = start(&log).await;
    for host in [
        "api.example",
        "API.EXAMPLE",
        "Api.Example",
        "api.example.",
        "api.example:80",
        "api.example:",
        "api.example:0080",
        "API.example.:80",
        " api.example ",
    ] {
        for target in [
            "/",
            "http://api.example/",
            "http://API.example:80/",
            "http://api.example",
        ] {
            let request =
                format!("GET {target} HTTP/1.1\r\nHost:{host}\r\nConnection: close\r\n\r\n");
            let status = status_of(&raw(gateway.address, request.as_bytes()).await);
            assert_eq!(status, 429, "{target} {host}");
            assert!(log.take().is_empty(), "{target} {host}");
        }
    }
}

#[tokio::test]
async fn two_hosts_none_or_an_invalid_one_are_refused() {
    let log = ByteLog::start().await;
    let gateway = start(&log).await;
    for head in [
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n",
        "GET / HTTP/1.1\r\nHost: \r\n",
        "GET / HTTP/1.1\r\nHost: static.example\r\nHost: api.example\r\n",
        "GET / HTTP/1.1\r\nHost: static.example\r\nhost: static.example\r\n",
        "GET / HTTP/1.1\r\nHost: static.example, api.example\r\n",
        "GET / HTTP/1.1\r\nHost: static.example, for=6.6.6.6\r\n",
        "GET / HTTP/1.1\r\nHost: static.example;for=6.6.6.6\r\n",
        "GET / HTTP/1.1\r\nHost: static.example\"\r\n",
        "GET / HTTP/1.1\r\nHost: user@static.example\r\n",
        "GET / HTTP/1.1\r\nHost: static.example:port\r\n",
        "GET / HTTP/1.1\r\nHost: static.example:99999\r\n",
        "GET / HTTP/1.1\r\nHost: static.example:0\r\n",
        "GET / HTTP/1.1\r\nHost: static.example/x\r\n",
        "GET / HTTP/1.1\r\nHost: static.example?x\r\n",
        "GET / HTTP/1.1\r\nHost: static.example#x\r\n",
        "GET / HTTP/1.1\r\nHost: stati%63.example\r\n",
        "GET / HTTP/1.1\r\nHost: static..example\r\n",
        "GET / HTTP/1.1\r\nHost: .static.example\r\n",
        "GET / HTTP/1.1\r\nHost: static.example\\api.example\r\n",
        "GET / HTTP/1.1\r\nHost: static.example api.example\r\n",
        "GET / HTTP/1.1\r\nHost: st\u{e4}tic.example\r\n",
        "GET / HTTP/1.1\r\nHost: [::1\r\n",
        "GET / HTTP/1.1\r\nHost: 0x7f.1\r\n",
        "GET http://static.example/x HTTP/1.1\r\nHost: api.example\r\n",
        "GET http://api.example/x HTTP/1.1\r\nHost: static.example\r\n",
        "GET http://static.example/x HTTP/1.1\r\n",
        "GET http://static.example/x HTTP/1.1\r\nHost:\r\n",
        "GET http://static.example:81/x HTTP/1.1\r\nHost: static.example\r\n",
        "GET http://user@static.example/x HTTP/1.1\r\nHost: static.example\r\n",
        "GET http://static.example@api.example/x HTTP/1.1\r\nHost: static.example\r\n",
        "GET ftp://static.example/x HTTP/1.1\r\nHost: static.example\r\n",
        "GET file:///x HTTP/1.1\r\nHost: static.example\r\n",
        "GET gopher://static.example/x HTTP/1.1\r\nHost: static.example\r\n",
        "GET static.example:80 HTTP/1.1\r\nHost: static.example\r\n",
        "GET * HTTP/1.1\r\nHost: static.example\r\n",
        "GET static HTTP/1.1\r\nHost: static.example\r\n",
    ] {
        let request = format!("{head}Connection: close\r\n\r\n");
        let status = status_of(&raw(gateway.address, request.as_bytes()).await);
        assert_eq!(status, 400, "{head}");
        assert!(log.take().is_empty(), "{head}");
    }
    // HTTP/1.0 needs no host, and then has only routes without one.
    let old = "GET / HTTP/1.0\r\n\r\n";
    assert_eq!(status_of(&raw(gateway.address, old.as_bytes()).await), 404);
    let other = "GET / HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n";
    assert_eq!(
        status_of(&raw(gateway.address, other.as_bytes()).await),
        404
    );
    let options = "OPTIONS * HTTP/1.1\r\nHost: static.example\r\nConnection: close\r\n\r\n";
    assert_eq!(
        status_of(&raw(gateway.address, options.as_bytes()).await),
        404
    );
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn the_authority_of_http2_is_the_host() {
    let log = ByteLog::start().await;
    let gateway = start(&log).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    for (uri, host, expected) in [
        ("http://api.example/", None, 429),
        ("http://API.EXAMPLE.:80/", None, 429),
        ("http://api.example/", Some("api.example"), 429),
        ("http://api.example/", Some("API.example:80"), 429),
        ("http://static.example/", Some("api.example"), 400),
        ("http://api.example/", Some("static.example"), 400),
        ("http://user@static.example/", None, 400),
        ("ftp://static.example/", None, 400),
        ("http://static.example:99999/", None, 400),
        ("http://static..example/", None, 400),
        ("http://static.example/", Some(""), 400),
        ("http://static.example/", Some("a, for=6.6.6.6"), 400),
        ("http://other.example/", None, 404),
    ] {
        let Ok(mut request) = Request::get(uri).body(Empty::<Bytes>::new()) else {
            continue;
        };
        if let Some(host) = host {
            request.headers_mut().insert("host", host.parse().unwrap());
        }
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), expected, "{uri} {host:?}");
        let _body = response.into_body().collect().await;
        assert!(log.take().is_empty(), "{uri} {host:?}");
    }
    let mut request = Request::get("http://Static.example/x")
        .body(Empty::<Bytes>::new())
        .unwrap();
    request
        .headers_mut()
        .append("host", "static.example".parse().unwrap());
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let head = log.take().concat();
    assert_eq!(
        head.matches("\r\nhost: static.example\r\n").count(),
        1,
        "{head}"
    );
    // Two lines of `host` are refused, even if they are equal.
    let mut request = Request::get("http://static.example/x")
        .body(Empty::<Bytes>::new())
        .unwrap();
    request
        .headers_mut()
        .append("host", "static.example".parse().unwrap());
    request
        .headers_mut()
        .append("host", "static.example".parse().unwrap());
    sender.ready().await.unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 400);
}
