//! Requests that are made to cost much, and requests of web pages.

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::test_server::{CALLER, PERSON, TestServer, create_entry, error_type};

/// Sends a body in chunks of one byte, and returns the whole answer.
async fn send_in_bytes(server: &TestServer, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let mut request = b"POST /api/v2/entries/ HTTP/1.1\r\nHost: dict\r\nConnection: close\r\n\
        Content-Type: application/xml\r\nTransfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    for byte in body {
        request.extend_from_slice(&[b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let (mut read, mut write) = stream.split();
    let sending = async {
        // The simulator may answer and close before it has read everything.
        let _closed = write.write_all(&request).await;
    };
    let reading = async {
        let mut answer = Vec::new();
        let _reset = read.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    tokio::join!(sending, reading).1
}

#[tokio::test]
async fn a_body_in_chunks_of_one_byte_is_read_within_limits() {
    let server = TestServer::new().await;
    let document = create_entry("PHONE", "+5561988880000", CALLER, PERSON, 1);
    let created = send_in_bytes(&server, document.as_bytes()).await;
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    // As long as a body may be, and longer than it may be in any number of chunks.
    let longest = format!("<a>{}", "é<b/>".repeat(43_000));
    let refused = send_in_bytes(&server, longest.as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    let refused = send_in_bytes(&server, &vec![b' '; 320_000]).await;
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
}

#[tokio::test]
async fn many_small_elements_are_refused_with_their_position() {
    let server = TestServer::new().await;
    let document = format!("<a>{}", "é<b/>".repeat(43_000));
    let (status, problem) = server.post("/entries/", document).await;
    assert_eq!((status, error_type(&problem)), (400, "BadRequest"));
    // The 20,000th <b/>: three characters for <a>, and five for each one before it.
    assert!(problem.contains("line 1, column 100000: "), "{problem}");
    assert!(problem.contains("20000 elements"), "{problem}");
}

#[tokio::test]
async fn web_pages_cannot_use_the_inspection_endpoints() {
    let server = TestServer::new().await;
    let own = server.url("");
    let port = server.address.port();
    let named = format!("http://dict.example:{port}");
    let fault = json!({"operation": "*", "status": 500}).to_string();
    for (content_type, origin, expected) in [
        (Some("application/json"), None, 200),
        (Some("application/json; charset=utf-8"), None, 200),
        (Some("application/json"), Some(own.as_str()), 200),
        // What a form of a web page can send.
        (Some("text/plain"), None, 415),
        (Some("application/x-www-form-urlencoded"), None, 415),
        (
            Some("multipart/form-data; boundary=application/json"),
            None,
            415,
        ),
        (None, None, 415),
        (Some("application/json"), Some("http://evil.example"), 403),
        (Some("application/json"), Some("null"), 403),
        (Some("application/json"), Some(named.as_str()), 403),
    ] {
        let mut request = server.client.put(server.url("/sim/faults"));
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        if let Some(origin) = origin {
            request = request.header("Origin", origin);
        }
        let status = request.body(fault.clone()).send().await.unwrap().status();
        assert_eq!(status, expected, "{content_type:?} {origin:?}");
    }
    // Another site's page whose name resolves to this address sends its own name as host.
    for method in [Method::GET, Method::DELETE] {
        let request = server
            .client
            .request(method, server.url("/sim/faults"))
            .header("Host", format!("dict.example:{port}"))
            .header("Origin", &named);
        assert_eq!(request.send().await.unwrap().status(), 403);
    }
}

#[tokio::test]
async fn a_client_that_closes_its_half_gets_its_response() {
    let server = TestServer::new().await;
    for (request, status) in [
        ("GET /api/v2/policies/ HTTP/1.1\r\nHost: dict\r\n\r\n", 200),
        (
            "TRACE /api/v2/policies/ HTTP/1.1\r\nHost: dict\r\n\r\n",
            405,
        ),
        ("GET /api/v2//policies/ HTTP/1.1\r\nHost: dict\r\n\r\n", 404),
        (
            "POST /api/v2/entries/ HTTP/1.1\r\nHost: dict\r\nContent-Length: 3\r\n\
             Content-Type: application/xml\r\n\r\n<a>",
            400,
        ),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let named = format!("Host: dict\r\nPI-RequestingParticipant: {CALLER}\r\n");
        let request = request.replace("Host: dict\r\n", &named);
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        let reading = stream.read_to_string(&mut answer);
        let read = tokio::time::timeout(std::time::Duration::from_secs(60), reading).await;
        read.expect("the connection is closed").unwrap();
        let found = answer.split(' ').nth(1).unwrap_or_default();
        assert_eq!(found, status.to_string(), "{request}\n---\n{answer}");
    }
}
