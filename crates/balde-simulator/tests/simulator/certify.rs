//! `balde certify` against the simulator, and against a DICT that differs in five places.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use balde_dict::wire::{Element, XmlSigner, XmlVerifier};
use balde_simulator::certify::{Caller, Conversation, Report, Verdict, compare, to_html, to_junit};
use tokio::net::TcpListener;

use crate::test_server::{CALLER, KEY_HOLDER, TestServer, client};

/// The steps whose answers the proxy changes.
const PLANTED: [&str; 5] = [
    "a used RequestId is refused",
    "checkKeys says which keys have entries",
    "closeInfractionReport marks the fraud",
    "createInfractionReport is gone",
    "an empty bucket answers 429",
];

fn caller(address: std::net::SocketAddr) -> Caller {
    Caller::new(&format!("http://{address}/api/v2/"), None, None).unwrap()
}

async fn certified(caller: &Caller) -> Report {
    Conversation::new(CALLER, KEY_HOLDER).run(caller).await
}

#[tokio::test]
async fn certify_finds_the_simulator_as_published() {
    let server = TestServer::new().await;
    let report = certified(&caller(server.address)).await;
    assert!(report.is_as_published(), "{report}");
    assert!(report.steps.len() > 50, "{}", report.steps.len());
}

#[tokio::test]
async fn certify_signs_its_writes() {
    let data = |name: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
        std::fs::read(format!("{path}{name}")).unwrap()
    };
    let certificate = data("sign-participant.pem");
    let verifier = XmlVerifier::trusting_pem(&certificate).unwrap();
    let server = TestServer::with(|builder| builder.verifier(Arc::new(verifier))).await;
    let unsigned = certified(&caller(server.address)).await;
    assert!(!unsigned.is_as_published());
    // The buckets that the first conversation emptied fill up.
    server.advance(Duration::from_secs(3_600)).await;
    let signer = XmlSigner::from_pem(&certificate, &data("sign-participant.key")).unwrap();
    let caller = caller(server.address).signer(Arc::new(signer));
    let report = certified(&caller).await;
    let failed: Vec<_> = report.failed().map(|step| step.name).collect();
    assert!(failed.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certify_finds_five_planted_differences_and_no_other() {
    let server = TestServer::new().await;
    let proxy = start_proxy(server.address).await;
    let differing = certified(&caller(proxy)).await;
    let found: Vec<_> = differing.failed().map(|step| step.name).collect();
    assert_eq!(found, PLANTED, "{differing}");
    for step in differing.failed() {
        assert!(matches!(step.verdict, Verdict::Differs(_)), "{}", step.name);
        assert!(!step.request.is_empty() && !step.answer.is_empty());
        assert!(!step.sentence.is_empty() && !step.source.is_empty());
    }
    // Another simulator, because the bucket of this one is empty now.
    let other = TestServer::new().await;
    let published = certified(&caller(other.address)).await;
    let differences = compare(&published, &differing);
    let names: Vec<_> = differences
        .iter()
        .map(|difference| difference.name)
        .collect();
    assert_eq!(names, PLANTED, "{differences:?}");
    assert_eq!(compare(&published, &published), []);
    let reports = [published, differing];
    let junit = to_junit(&reports);
    let root = Element::read(junit.as_bytes()).unwrap();
    let failures: Vec<_> = root
        .children()
        .iter()
        .map(|suite| suite.attribute("failures"))
        .collect();
    assert_eq!(failures, [Some("0"), Some("5")]);
    let page = to_html(&reports, &differences);
    for name in PLANTED {
        assert!(page.contains(name), "{name}");
    }
}

#[tokio::test]
async fn certify_knows_which_addresses_are_on_this_machine() {
    for (url, expected) in [
        ("http://127.0.0.1:8085/api/v2/", true),
        ("http://localhost:8085/api/v2/", true),
        ("http://[::1]:8085/api/v2/", true),
        ("https://dict-h.pi.rsfn.net.br:16522/api/v2/", false),
        ("http://192.0.2.1/api/v2/", false),
        ("http://127.0.0.1.example.com/api/v2/", false),
    ] {
        let caller = Caller::new(url, None, None).unwrap();
        assert_eq!(caller.is_loopback(), expected, "{url}");
    }
    for url in ["127.0.0.1:8085", "ftp://127.0.0.1/", ""] {
        assert!(Caller::new(url, None, None).is_err(), "{url}");
    }
}

/// A proxy that changes five answers.
async fn start_proxy(upstream: std::net::SocketAddr) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new()
        .fallback(forward)
        .with_state((upstream, client()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn forward(
    State((upstream, client)): State<(std::net::SocketAddr, reqwest::Client)>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    headers.remove("host");
    headers.remove("accept-encoding");
    let request = client.request(method, format!("http://{upstream}{uri}"));
    let answer = request.headers(headers).body(body).send().await.unwrap();
    let mut status = answer.status();
    let content_type = answer.headers()["content-type"].clone();
    let mut text = answer.text().await.unwrap();
    if text.contains("RequestIdAlreadyUsed") {
        text = text.replace("RequestIdAlreadyUsed", "EntryAlreadyExists");
    }
    if text.contains("<CheckKeysResponse>") {
        text = text.replacen("hasEntry=\"true\"", "hasEntry=\"false\"", 1);
    }
    if text.contains("<CloseInfractionReportResponse>") {
        let start = text.find("<FraudMarkerId>").unwrap();
        let end = text.find("</FraudMarkerId>").unwrap() + "</FraudMarkerId>".len();
        text.replace_range(start..end, "");
    }
    if status == StatusCode::GONE {
        status = StatusCode::BAD_REQUEST;
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        status = StatusCode::SERVICE_UNAVAILABLE;
    }
    (status, [("content-type", content_type)], text).into_response()
}
