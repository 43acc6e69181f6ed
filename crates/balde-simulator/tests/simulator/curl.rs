//! Requests as curl sends them, and curl itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::test_server::{
    CALLER, KEY_HOLDER, PERSON, TestServer, create_entry, delete_entry, end_to_end_id, text_of,
};

const PHONE: &str = "+5561988887777";

/// Sends bytes and reads until the server closes the connection.
fn raw(server: &TestServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_written_by_hand_create_read_delete_an_entry_and_list_policies() {
    let server = TestServer::new().await;
    let post = |path: &str, body: &str| {
        format!(
            "POST /api/v2{path} HTTP/1.1\r\nHost: dict\r\nContent-Type: application/xml\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    let get = |path: &str| {
        format!(
            "GET /api/v2{path} HTTP/1.1\r\nHost: dict\r\nAccept: */*\r\n\
             pi-requestingparticipant: {CALLER}\r\nPI-PAYERID: {PERSON}\r\nPI-EndToEndId: {}\r\n\
             Connection: close\r\n\r\n",
            end_to_end_id(1)
        )
    };
    let created = raw(
        &server,
        &post(
            "/entries/",
            &create_entry("PHONE", PHONE, KEY_HOLDER, "11122233301", 1),
        ),
    );
    assert!(created.starts_with("HTTP/1.1 201 Created\r\n"), "{created}");
    let found = raw(&server, &get("/entries/%2B5561988887777"));
    assert!(found.starts_with("HTTP/1.1 200 OK\r\n"), "{found}");
    assert!(found.contains("content-type: application/xml"), "{found}");
    assert_eq!(text_of(&found, "Key"), PHONE);
    // An unencoded plus in a path is a plus.
    assert!(raw(&server, &get("/entries/+5561988887777")).starts_with("HTTP/1.1 200"));
    let deleted = raw(
        &server,
        &post(
            "/entries/%2B5561988887777/delete",
            &delete_entry(PHONE, KEY_HOLDER),
        ),
    );
    assert!(deleted.starts_with("HTTP/1.1 200"), "{deleted}");
    let policies = raw(&server, &get("/policies/"));
    assert!(policies.contains("<Category>A</Category>"), "{policies}");
    // Payers' buckets are not listed.
    assert_eq!(policies.matches("<Policy>").count(), 29);
    assert_eq!(text_of(&policies, "CorrelationId").len(), 32);
    let one = raw(&server, &get("/policies/POLICIES_LIST"));
    assert_eq!(text_of(&one, "AvailableTokens"), "19");
    assert_eq!(
        (
            text_of(&one, "RefillTokens"),
            text_of(&one, "RefillPeriodSec")
        ),
        ("6", "60")
    );
    assert!(raw(&server, &get("/policies/NONE")).starts_with("HTTP/1.1 404"));
    assert!(raw(&server, &get("/policies/ENTRIES_READ_USER_ANTISCAN")).starts_with("HTTP/1.1 404"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_serves_request_after_request() {
    let server = TestServer::new().await;
    let mut stream = TcpStream::connect(server.address).unwrap();
    for _ in 0..3 {
        let request = format!(
            "GET /api/v2/policies/ENTRIES_WRITE HTTP/1.1\r\nHost: dict\r\n\
             PI-RequestingParticipant: {CALLER}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"</GetPolicyResponse>") {
            let mut buffer = [0; 1_024];
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the connection stays open");
            answer.extend(&buffer[..read]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
    }
    assert_eq!(server.level("POLICIES_READ", CALLER, None).await, 197);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_endpoints_are_limited_too() {
    let server = TestServer::new().await;
    for _ in 0..20 {
        assert_eq!(server.get("/policies/", CALLER).await.0, 200);
    }
    let (status, _) = server.get("/policies/", CALLER).await;
    assert_eq!(status, 429);
    assert_eq!(
        server.get("/policies/POLICIES_LIST", CALLER).await.0,
        200,
        "another policy"
    );
    server.advance(std::time::Duration::from_secs(10)).await;
    assert_eq!(
        server.get("/policies/", CALLER).await.0,
        200,
        "six a minute"
    );
    assert_eq!(server.get("/policies/", CALLER).await.0, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_itself_creates_reads_and_deletes() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("\n*** SKIPPED: curl is not installed ***\n");
        return;
    }
    let server = TestServer::new().await;
    let curl = |args: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "-i", "--noproxy", "*"])
            .args(args)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let body = create_entry("PHONE", PHONE, KEY_HOLDER, "11122233301", 1);
    let xml = "Content-Type: application/xml";
    let created = curl(&[
        "-H",
        xml,
        "--data-binary",
        &body,
        &server.url("/api/v2/entries/"),
    ]);
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    // With curl's default Content-Type too.
    let again = curl(&["--data-binary", &body, &server.url("/api/v2/entries/")]);
    assert!(again.starts_with("HTTP/1.1 201"), "{again}");
    let participant = format!("PI-RequestingParticipant: {CALLER}");
    let payer = format!("PI-PayerId: {PERSON}");
    let id = format!("PI-EndToEndId: {}", end_to_end_id(1));
    let url = server.url("/api/v2/entries/%2B5561988887777");
    let found = curl(&[
        "--compressed",
        "-H",
        &participant,
        "-H",
        &payer,
        "-H",
        &id,
        &url,
    ]);
    assert!(found.starts_with("HTTP/1.1 200"), "{found}");
    assert_eq!(text_of(&found, "Key"), PHONE);
    let body = delete_entry(PHONE, KEY_HOLDER);
    let deleted = curl(&["-H", xml, "--data-binary", &body, &format!("{url}/delete")]);
    assert!(deleted.starts_with("HTTP/1.1 200"), "{deleted}");
}
