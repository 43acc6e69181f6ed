//! What a peer says of others: kept from a trusted proxy, replaced from anybody else.

use crate::byte_log::ByteLog;
use crate::running::{Running, raw, simple, status_of};

const IDENTITY: &str = "user_id_header = \"x-user\"\napi_key_header = \"x-api-key\"\n";

async fn forwarded(gateway: &Running, log: &ByteLog, fields: &str) -> String {
    let request =
        format!("GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{fields}\r\n");
    let status = status_of(&raw(gateway.address, request.as_bytes()).await);
    assert_eq!(status, 200, "{fields}");
    log.take().concat()
}

const FORGED: &str = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\n\
    X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Port: 1\r\n\
    Forwarded: for=6.6.6.6;proto=https\r\nX-Real-IP: 6.6.6.6\r\nTrue-Client-IP: 6.6.6.6\r\n\
    X-User: root\r\nX-Api-Key: stolen\r\nX-Forwarded-Client-Cert: By=6.6.6.6\r\n\
    Client-Cert: :6.6.6.6:\r\nX-Original-URL: /6.6.6.6\r\nX-Rewrite-URL: /6.6.6.6\r\n\
    X_Forwarded_For: 6.6.6.6\r\nX_User: root\r\nx_real-ip: 6.6.6.6\r\n";

#[tokio::test]
async fn an_untrusted_peer_says_nothing_of_others() {
    let log = ByteLog::start().await;
    let more = format!("[identity]\ntrusted_proxies = [\"10.0.0.0/8\"]\n{IDENTITY}");
    let gateway = Running::start(&simple(log.address, &more)).await;
    let head = forwarded(&gateway, &log, FORGED).await;
    for part in [
        "6.6.6.6",
        "7.7.7.7",
        "evil",
        "root",
        "stolen",
        "x-forwarded-port",
        "_",
    ] {
        assert!(!head.contains(part), "{part}: {head}");
    }
    for line in [
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: shop.example",
        "forwarded: for=127.0.0.1;proto=http;host=\"shop.example\"",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }
    // Nothing is added for this upstream, and nothing forged passes.
    let text = simple(log.address, "").replace("[[route]]", "add_forwarded = false\n[[route]]");
    let gateway = Running::start(&text).await;
    let head = forwarded(&gateway, &log, FORGED).await;
    assert!(
        !head.contains("6.6.6.6") && !head.contains("forwarded"),
        "{head}"
    );
}

#[tokio::test]
async fn a_trusted_proxy_is_continued() {
    let log = ByteLog::start().await;
    let more = format!("[identity]\ntrusted_proxies = [\"127.0.0.0/8\"]\n{IDENTITY}");
    let gateway = Running::start(&simple(log.address, &more)).await;
    let head = forwarded(&gateway, &log, FORGED).await;
    for line in [
        "x-forwarded-for: 6.6.6.6, 7.7.7.7, 127.0.0.1",
        "x-forwarded-proto: https",
        "x-forwarded-host: evil.example",
        "x-forwarded-port: 1",
        "forwarded: for=6.6.6.6;proto=https, for=127.0.0.1;proto=http;host=\"shop.example\"",
        "x-user: root",
        "x-api-key: stolen",
        "x-real-ip: 6.6.6.6",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }
    // Names with underscores come from clients.
    assert!(!head.contains('_'), "{head}");
    // A field that does not parse hides nothing.
    for open in [
        "for=\"6.6.6.6",
        "for=6.6.6.6, \"",
        "for=\"a\\",
        "=",
        "for=1.2.3.4 x",
    ] {
        let head = forwarded(&gateway, &log, &format!("Forwarded: {open}\r\n")).await;
        let own = "\r\nforwarded: for=127.0.0.1;proto=http;host=\"shop.example\"\r\n";
        assert!(head.contains(own), "{open}: {head}");
    }
}
