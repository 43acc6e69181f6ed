//! Requests that two servers could read differently. Each must be refused, or arrive as one request.

use crate::backend::Backend;
use crate::raw_upstream::{RawUpstream, Reply};
use crate::running::{Running, raw, simple, status_of};

/// What was sent, the expected status of the first response, and how many requests may arrive.
async fn expect(bytes: &[u8], status: u16, arrive: usize) {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let answer = raw(gateway.address, bytes).await;
    let shown = String::from_utf8_lossy(bytes);
    assert_eq!(status_of(&answer), status, "{shown}\n---\n{answer}");
    let received = backend.received();
    assert_eq!(received.len(), arrive, "{shown}\n---\n{received:?}");
    for received in received {
        assert_ne!(received.parts.uri.path(), "/smuggled", "{shown}");
    }
}

#[tokio::test]
async fn content_length_and_transfer_encoding_together() {
    // CL.TE: a server that believes Content-Length reads the second request as a body.
    expect(
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n\
          0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
        400,
        0,
    )
    .await;
    // TE.CL, in the other order.
    expect(
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n\
          1c\r\nGET /smuggled HTTP/1.1\r\n\r\n\r\n0\r\n\r\n",
        400,
        0,
    )
    .await;
}

#[tokio::test]
async fn content_length_and_transfer_encoding_together_in_a_pipelined_request() {
    let chunked = "POST /sound HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let both = "POST /both HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\
                Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
                GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    // What looks like such a request in a body is a body.
    let quoting = format!(
        "POST /quoting HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{both}",
        both.len()
    );
    let quoting_in_chunks = format!(
        "{chunked}{:x};x=1\r\n{both}\r\n0\r\nA: b\r\n\r\n",
        both.len()
    );
    let fooling = format!("{chunked}{:x}\r\n{chunked}\r\n0\r\n\r\n", chunked.len());
    for sound in [
        "GET /sound HTTP/1.1\r\nHost: x\r\n\r\n",
        &quoting,
        &quoting_in_chunks,
        &fooling,
    ] {
        let backend = Backend::start().await;
        let gateway = Running::start(&simple(backend.address, "")).await;
        let answer = raw(gateway.address, format!("{sound}{sound}{both}").as_bytes()).await;
        assert_eq!(
            answer.matches("HTTP/1.1 200").count(),
            2,
            "{sound}---\n{answer}"
        );
        assert_eq!(
            answer.matches("HTTP/1.1 400").count(),
            1,
            "{sound}---\n{answer}"
        );
        assert_eq!(backend.received().len(), 2, "{sound}");
    }
}

#[tokio::test]
async fn transfer_encodings_that_hide_chunked() {
    for encoding in [
        "xchunked",
        "chunked, identity",
        "identity",
        "chunked\r\nTransfer-Encoding: identity",
        "\"chunked\"",
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {encoding}\r\n\r\n\
             0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        );
        expect(request.as_bytes(), 400, 0).await;
    }
    // What is decoded is chunked, and a second coding below it would be lost.
    for (encoding, status) in [
        ("gzip, chunked", 501),
        ("gzip,chunked", 501),
        ("gzip\r\nTransfer-Encoding: chunked", 501),
        ("identity, chunked", 501),
        (", chunked", 501),
        ("chunked, chunked", 400),
        ("chunked\r\nTransfer-Encoding: Chunked", 400),
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {encoding}\r\n\r\n\
             0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        );
        expect(request.as_bytes(), status, 0).await;
    }
    // HTTP/1.0 has no transfer encodings.
    expect(
        b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        0,
    )
    .await;
}

#[tokio::test]
async fn several_content_lengths() {
    expect(
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        400,
        0,
    )
    .await;
    for length in ["5, 6", "+5", "-1", "5x", "0x5", "99999999999999999999999"] {
        let request =
            format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\nhello");
        expect(request.as_bytes(), 400, 0).await;
    }
    // The same twice is refused, too: another server may believe neither.
    for lengths in [
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\ncontent-length:5",
        "Content-Length: 5\r\nX: 1\r\nCONTENT-LENGTH: 05",
        "Content-Length: 5, 5",
        "Content-Length: 5,5",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: x\r\n{lengths}\r\n\r\nhello");
        expect(request.as_bytes(), 400, 0).await;
        // Behind another request on the same connection.
        let request =
            format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n\r\n{request}");
        let backend = Backend::start().await;
        let gateway = Running::start(&simple(backend.address, "")).await;
        let answer = raw(gateway.address, request.as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 400").count(), 1, "{answer}");
        assert_eq!(backend.only().body, "\r\n");
    }
}

#[tokio::test]
async fn folded_and_malformed_header_fields() {
    for head in [
        "X-Folded: a\r\n b",
        "Transfer-Encoding:\r\n chunked",
        "Content-Length : 5",
        "X Y: 1",
        "X-Null: a\0b",
        ": no name",
        "no colon",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\nhello");
        expect(request.as_bytes(), 400, 0).await;
    }
}

#[tokio::test]
async fn chunk_extensions_are_not_forwarded_and_broken_chunks_are_refused() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let answer = raw(
        gateway.address,
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
          5;ext=\"GET /smuggled\"\r\nhello\r\n0\r\n\r\n",
    )
    .await;
    assert_eq!(status_of(&answer), 200, "{answer}");
    assert_eq!(backend.only().body, "hello");
    for chunk in [
        "x\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"
        );
        let backend = Backend::start().await;
        let gateway = Running::start(&simple(backend.address, "")).await;
        let answer = raw(gateway.address, request.as_bytes()).await;
        assert_eq!(status_of(&answer), 400, "{request}\n---\n{answer}");
        for received in backend.received() {
            assert_eq!(received.parts.uri.path(), "/");
        }
    }
    // An endless extension is refused, too.
    let mut endless =
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;".to_vec();
    endless.extend(std::iter::repeat_n(b'a', 100_000));
    let answer = raw(gateway.address, &endless).await;
    assert_eq!(status_of(&answer), 400, "{answer}");
}

#[tokio::test]
async fn a_second_request_behind_a_body_is_a_request_of_its_own() {
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let answer = raw(
        gateway.address,
        b"POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\
          GET /two HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
    let paths: Vec<String> = backend
        .received()
        .iter()
        .map(|one| one.parts.uri.path().to_owned())
        .collect();
    assert_eq!(paths, ["/one", "/two"]);
}

#[tokio::test]
async fn connect_and_absolute_targets_do_not_make_it_a_forward_proxy() {
    expect(
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        405,
        0,
    )
    .await;
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, "")).await;
    let answer = raw(
        gateway.address,
        b"GET http://shop.example/path HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(status_of(&answer), 200, "{answer}");
    assert_eq!(backend.only().parts.uri, "/path");
}

#[tokio::test]
async fn methods_that_send_a_request_back_are_refused() {
    for method in ["TRACE", "TRACK", "trace", "Track"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: x\r\nCookie: secret\r\n\r\n");
        let backend = Backend::start().await;
        let gateway = Running::start(&simple(backend.address, "")).await;
        let answer = raw(gateway.address, request.as_bytes()).await;
        assert_eq!(status_of(&answer), 405, "{answer}");
        assert!(answer.contains("allow: GET, HEAD, POST"), "{answer}");
        assert!(!answer.contains("secret"), "{answer}");
        assert!(backend.received().is_empty());
    }
}

#[tokio::test]
async fn responses_that_two_clients_could_read_differently_are_not_passed_on() {
    for fields in [
        "Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "Content-Length: 5, 5\r\n\r\nhello",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    ] {
        let response = format!("HTTP/1.1 200 OK\r\n{fields}");
        let upstream = RawUpstream::start(move |_, _| Reply::Bytes(response.clone())).await;
        let gateway = Running::start(&simple(upstream.address, "")).await;
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let answer = raw(gateway.address, request).await;
        assert_eq!(status_of(&answer), 502, "{fields}\n---\n{answer}");
        assert!(!answer.contains("hello"), "{answer}");
    }
}
