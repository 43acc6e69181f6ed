//! Other spellings of a path are counted by the rule of the plain one, or refused.

use std::fmt::Write as _;

use balde::{Clock, ManualClock};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::byte_log::ByteLog;
use crate::running::{Running, parse, raw, simple, status_of};
use crate::simulated::{PSP_POLICY, START_US, configuration, exact, key, order};

const PATHS: [&str; 10] = [
    "/search",
    "/api/v1/orders",
    "/users/42/files",
    "/a",
    "/deep/er/and/deep/er",
    "/with-dash_and~tilde",
    "/users/@me",
    "/a+b=c",
    "/.well-known/keys",
    "/caf%C3%A9/menu",
];

#[derive(Clone, Copy)]
enum Digits {
    Small,
    Capital,
}

/// A path with every character encoded.
fn encoded(path: &str, digits: Digits) -> String {
    let mut text = String::new();
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        match (byte, digits) {
            (b'/', _) => text.push('/'),
            (b'%', _) => {
                text.push('%');
                text.push(char::from(bytes.next().unwrap()));
                text.push(char::from(bytes.next().unwrap()));
            }
            (_, Digits::Capital) => write!(text, "%{byte:02X}").unwrap(),
            (_, Digits::Small) => write!(text, "%{byte:02x}").unwrap(),
        }
    }
    text
}

/// Request targets that a server could read as this path.
fn spellings(path: &str) -> Vec<String> {
    let rest = &path[1..];
    let last = rest.rsplit('/').next().unwrap();
    let before = &path[..path.len() - last.len()];
    let first = path.as_bytes()[1];
    let one = format!("/%{first:02x}{}", &path[2..]);
    let twice = format!("/%25{first:02x}{}", &path[2..]);
    let mut all = vec![
        path.to_owned(),
        one,
        encoded(path, Digits::Small),
        encoded(path, Digits::Capital),
        twice,
        format!("/{path}"),
        format!("//{path}"),
        path.replacen('/', "//", 3),
        format!("{path}/"),
        format!("{path}//"),
        format!("{path}/."),
        format!("{path}/x/.."),
        format!("{path}/x/../"),
        format!("/.{path}"),
        format!("/././.{path}"),
        format!("/x/..{path}"),
        format!("/x/y/../..{path}"),
        format!("/x//..//{rest}"),
        format!("/%2e{path}"),
        format!("/%2E{path}"),
        format!("/x/%2e%2e{path}"),
        format!("/x/.%2e{path}"),
        format!("/x/%2E.{path}"),
        format!("/x/%252e%252e{path}"),
        format!("/x/%25%32%65%25%32%65{path}"),
        format!("/x/%c0%ae%c0%ae{path}"),
        format!("/x/%uff0e%uff0e{path}"),
        format!("/..{path}"),
        format!("/%2e%2e{path}"),
        format!("/..;{path}"),
        format!("/x/..;{path}"),
        format!("/x/..;y=1{path}"),
        format!("/x/..%3b{path}"),
        format!("{path};"),
        format!("{path};x=1"),
        format!("{path}%3Bx=1"),
        format!("{before};x=1/{last}"),
        format!("/;{path}"),
        format!("{path}%00"),
        format!("{path}%00.html"),
        format!("{path}%0a"),
        format!("{path}%0D%0A"),
        format!("{path}%09"),
        format!("{path}%7f"),
        format!("{path}%2F"),
        format!("{path}%2f"),
        format!("{path}%5C"),
        format!("{path}\\"),
        format!("\\{rest}"),
        format!("/\\{rest}"),
        format!("/x\\..\\{rest}"),
        format!("/x/..\\{rest}"),
        format!("/x/..%5c{rest}"),
        format!("/x/..%2f{rest}"),
        format!("/x%2f..{path}"),
        format!("/%2f{rest}"),
        format!("%2f{rest}"),
        format!("{path}%"),
        format!("{path}%2"),
        format!("{path}%zz"),
        format!("{path}?"),
        format!("{path}?a=b"),
        format!("{path}#fragment"),
        format!("http://shop.example{path}"),
        format!("http://shop.example/{path}"),
        format!("HTTP://SHOP.example:80/x/..{path}"),
        format!("https://shop.example{path}/"),
        format!("ftp://shop.example{path}"),
        format!("shop.example{path}"),
        rest.to_owned(),
    ];
    if path.contains("%C3") {
        all.push(path.replace("%C3%A9", "%c3%a9"));
        all.push(path.replace("%C3%A9", "é"));
        all.push(path.replace("%C3%A9", "%c3é"));
    }
    all
}

/// One token for each path.
fn policies() -> String {
    let mut text = String::new();
    for (index, path) in PATHS.iter().enumerate() {
        let policy = format!(
            "[[policies.policy]]\nname = \"p{index}\"\nmatch = [\"GET {path}\"]\n\
             limit = \"1/day burst 1\"\n"
        );
        text.push_str(&policy);
    }
    text
}

async fn ask(gateway: &Running, method: &str, target: &str, more: &str) -> u16 {
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{more}\r\n"
    );
    status_of(&raw(gateway.address, request.as_bytes()).await)
}

/// A route that is limited, and one that is not.
const STATIC: &str = "[[route]]\npath = \"/static\"\nupstream = \"backend\"\npolicies = false\n";

#[tokio::test]
async fn no_spelling_of_a_path_escapes_its_rule() {
    let log = ByteLog::start().await;
    for paths in ["", "[paths]\nsend = \"received\"\n"] {
        let more = format!("{STATIC}{paths}{}", policies());
        let gateway = Running::start(&simple(log.address, &more)).await;
        let mut counted = 0;
        for path in PATHS {
            assert_eq!(ask(&gateway, "GET", path, "").await, 200, "{path}");
            assert_eq!(log.take().len(), 1);
            let spellings = spellings(path);
            assert!(spellings.len() >= 60);
            for target in spellings {
                for method in ["GET", "HEAD", "get", "GeT"] {
                    let status = ask(&gateway, method, &target, "").await;
                    let heads = log.take();
                    assert!(matches!(status, 400 | 429), "{method} {target}: {status}");
                    assert!(heads.is_empty(), "{method} {target}: {heads:?}");
                    counted += u32::from(status == 429);
                }
                // Through the route without limits.
                if !target.starts_with('/') {
                    continue;
                }
                for target in [
                    format!("/static/..{target}"),
                    format!("/static/%2e%2e{target}"),
                    format!("/static/x/../../{}", &target[1..]),
                ] {
                    let status = ask(&gateway, "GET", &target, "").await;
                    assert!(matches!(status, 400 | 429), "{target}: {status}");
                    assert!(log.take().is_empty(), "{target}");
                }
            }
            // Another method in a header field.
            for field in [
                "X-HTTP-Method-Override",
                "X-HTTP-Method",
                "x-method-override",
            ] {
                let more = format!("{field}: GET\r\nContent-Length: 0\r\n");
                assert_eq!(ask(&gateway, "POST", path, &more).await, 400, "{field}");
            }
            assert!(log.take().is_empty());
        }
        assert!(counted > 200, "{counted} were counted by their rule");
        // What is not limited passes, in its normal form.
        assert_eq!(ask(&gateway, "GET", "/static//%61.css", "").await, 200);
        let head = log.take().concat();
        let expected = if paths.is_empty() {
            "/static/a.css"
        } else {
            "/static//%61.css"
        };
        assert!(
            head.starts_with(&format!("GET {expected} HTTP/1.1\r\n")),
            "{head}"
        );
    }
}

#[tokio::test]
async fn no_spelling_of_a_path_escapes_its_rule_over_http2() {
    let log = ByteLog::start().await;
    let gateway = Running::start(&simple(log.address, &policies())).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<Bytes>>();
    let mut sent = 0;
    for path in PATHS {
        assert_eq!(ask(&gateway, "GET", path, "").await, 200, "{path}");
        log.take();
        for target in spellings(path) {
            for method in ["GET", "HEAD", "get"] {
                let uri = format!("http://{}{target}", gateway.address);
                let request = Request::builder().method(method).uri(uri);
                // Some are no URI to this client.
                let Ok(request) = request.body(Full::default()) else {
                    continue;
                };
                if !target.starts_with('/') {
                    continue;
                }
                sent += 1;
                let response = client.request(request).await.unwrap();
                let status = response.status().as_u16();
                assert!(matches!(status, 400 | 429), "{method} {target}: {status}");
                assert!(log.take().is_empty(), "{method} {target}");
            }
        }
    }
    assert!(sent > 1_000, "{sent}");
}

#[tokio::test]
async fn what_no_route_covers_does_not_reach_the_upstream() {
    let log = ByteLog::start().await;
    let text = simple(log.address, "").replace("path = \"/\"", "path = \"/public\"");
    let gateway = Running::start(&text).await;
    for target in [
        "/search",
        "/public/../search",
        "/public/%2e%2e/search",
        "/public/.%2E/search",
        "/public//../search",
        "/public/x/../../search",
        "/public/..;/search",
        "/public/..%2fsearch",
        "/public%2f..%2fsearch",
        "/public/..\\search",
        "/public/%252e%252e/search",
        "/public/%c0%ae%c0%ae/search",
        "//search",
        "/publicsearch",
        "/PUBLIC/x",
        "http://shop.example/public/../search",
    ] {
        let status = ask(&gateway, "GET", target, "").await;
        assert!(matches!(status, 400 | 404), "{target}: {status}");
        assert!(log.take().is_empty(), "{target}");
    }
    for (target, arrives) in [
        ("/public/x", "/public/x"),
        ("/x/../public/y", "/public/y"),
        ("/%70ublic", "/public"),
    ] {
        assert_eq!(ask(&gateway, "GET", target, "").await, 200, "{target}");
        let head = log.take().concat();
        assert!(
            head.starts_with(&format!("GET {arrives} HTTP/1.1\r\n")),
            "{head}"
        );
    }
}

#[tokio::test]
async fn the_path_goes_on_as_the_file_says() {
    let log = ByteLog::start().await;
    let rule = "[[policies.policy]]\nname = \"all\"\nmatch = [\"GET /a/{x}\"]\nlimit = \"1/day burst 100\"\n\
                [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n";
    for (paths, target, arrives) in [
        ("", "/%61/%2B%40+@/", "/a/%2B%40+@/"),
        ("", "/a/%c3%a3?x=%61//..;", "/a/%C3%A3?x=%61//..;"),
        ("send = \"received\"", "/%61//%2B", "/%61//%2B"),
        ("escaped_slashes = \"keep\"", "/a/b%2fc", "/a/b%2Fc"),
        ("parameters = \"keep\"", "/a;x=1/b;y/", "/a;x=1/b;y/"),
        ("double_encoding = \"keep\"", "/a/%252e", "/a/%252e"),
    ] {
        let more = format!("[paths]\n{paths}\n{rule}");
        let gateway = Running::start(&simple(log.address, &more)).await;
        assert_eq!(ask(&gateway, "GET", target, "").await, 200, "{target}");
        let head = log.take().concat();
        assert!(
            head.starts_with(&format!("GET {arrives} HTTP/1.1\r\n")),
            "{head}"
        );
        let level = gateway.states("").await["policies"][0]["level"].as_i64();
        assert_eq!(level, Some(99), "{target} is counted");
    }
    let gateway = Running::start(&simple(
        log.address,
        "[paths]\nmethod_override = \"keep\"\n",
    ))
    .await;
    let more = "X-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n";
    assert_eq!(ask(&gateway, "POST", "/", more).await, 200);
}

#[tokio::test]
async fn what_connection_names_is_gone_before_it_is_counted() {
    let log = ByteLog::start().await;
    let rule = "[[policies.policy]]\nname = \"low\"\n\
                match = [{ on = \"GET /x\", headers = { X-Priority = \"!high\" } }]\nlimit = \"1/day burst 1\"\n";
    let gateway = Running::start(&simple(log.address, rule)).await;
    assert_eq!(ask(&gateway, "GET", "/x", "").await, 200);
    assert_eq!(
        ask(&gateway, "GET", "/x", "X-Priority: high\r\n").await,
        200
    );
    log.take();
    let hiding = "X-Priority: high\r\nConnection: X-Priority\r\n";
    assert_eq!(ask(&gateway, "GET", "/x", hiding).await, 429);
    let twice = "X-Priority: high\r\nX-Priority: low\r\n";
    assert_eq!(ask(&gateway, "GET", "/x", twice).await, 429);
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn every_spelling_of_a_lookup_is_counted_in_front_of_dict_or_refused() {
    let log = ByteLog::start().await;
    let config = parse(&configuration(log.address, &exact('A'), ""));
    let clock = ManualClock::at_us(START_US);
    let gateway = Running::start_with(&config, Clock::manual(&clock)).await;
    let key = key(1);
    let plain = format!("/api/v2/entries/{key}");
    let mut number = 0;
    let mut level = gateway.mirrored(PSP_POLICY, None).await;
    for target in spellings(&plain) {
        for method in ["GET", "HEAD", "get", "POST"] {
            number += 1;
            let fields = format!(
                "PI-RequestingParticipant: 12345678\r\nPI-PayerId: 1{number:010}\r\n\
                 PI-EndToEndId: {}\r\nContent-Length: 0\r\n",
                order(number)
            );
            let status = ask(&gateway, method, &target, &fields).await;
            let heads = log.take();
            let now = gateway.mirrored(PSP_POLICY, None).await;
            if status == 200 {
                assert_eq!((heads.len(), level - now), (1, 1), "{method} {target}");
                let head = heads[0].replace("%40", "@");
                assert!(
                    head.starts_with(&format!("GET {plain}")),
                    "{target}: {head}"
                );
            } else {
                assert!(
                    matches!(status, 400 | 404 | 405),
                    "{method} {target}: {status}"
                );
                assert!(heads.is_empty(), "{method} {target}: {heads:?}");
                assert_eq!(now, level, "{method} {target}");
            }
            level = now;
        }
    }
    // Below the base path, and anywhere else at DICT, only its operations pass.
    for target in [
        "/api/v2/",
        "/api/v2",
        "/api/v2/unknown",
        "/api/v2/entries/a/b/c/d",
        "/api/v1/entries/x",
        "/api/v2/../v1/entries/x",
        "/sim/buckets",
        "/",
    ] {
        let fields = "PI-RequestingParticipant: 12345678\r\n";
        let status = ask(&gateway, "GET", target, fields).await;
        assert!(matches!(status, 400 | 404 | 405), "{target}: {status}");
        assert!(log.take().is_empty(), "{target}");
    }
}
