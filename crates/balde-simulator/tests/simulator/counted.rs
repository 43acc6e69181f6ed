//! No spelling of a getEntry answers it without counting it.

use fastrand::Rng;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::test_server::{CALLER, KEY, NO_KEY, PERSON, READ_PARTICIPANT, READ_USER, TestServer};

const ROUNDS: usize = 600;

/// Sends bytes and returns the whole answer.
async fn raw(server: &TestServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The tokens that are missing in the buckets of the participant and the payer.
async fn taken(server: &TestServer) -> (i64, i64) {
    let missing = |bucket: Value| {
        let number = |name: &str| bucket[name].as_i64().unwrap();
        number("capacity") - number("level")
    };
    let user = server.bucket(READ_USER, CALLER, Some(PERSON)).await;
    let participant = server.bucket(READ_PARTICIPANT, CALLER, None).await;
    (missing(user), missing(participant))
}

/// A key with some of its characters percent-encoded, in either case.
fn encoded(random: &mut Rng, key: &str) -> String {
    let mut text = String::new();
    for byte in key.bytes() {
        match random.u8(..4) {
            0 => text.extend([format!("%{byte:02x}")]),
            1 => text.extend([format!("%{byte:02X}")]),
            _ => text.push(char::from(byte)),
        }
    }
    text
}

fn request(random: &mut Rng) -> String {
    // The first of each is the plain one, and comes most often.
    let mut one_of = |words: &[&'static str]| {
        let other = random.usize(..words.len());
        words[if random.u8(..4) > 0 { 0 } else { other }]
    };
    let method = one_of(&[
        "GET", "GET", "GET", "GET", "get", "HEAD", "POST", "OPTIONS", "PATCH", "TRACE", "QUERY",
    ]);
    let base = one_of(&[
        "/api/v2/entries/",
        "/api/v2/entries/",
        "/api/v2/entries/",
        "/api-np/v2/entries/",
        "/api/v2//entries/",
        "/api/v2/entries//",
        "//api/v2/entries/",
        "/api/v2/./entries/",
        "/api/v2/x/../entries/",
        "/API/v2/entries/",
        "/api/v2/%65ntries/",
        "/api/v2/entries%2F",
        "/api%2Fv2/entries/",
        "/api/v2/entries;x=1/",
        "http://dict/api/v2/entries/",
    ]);
    let end = one_of(&[
        "",
        "",
        "",
        "",
        "/",
        "//",
        "?",
        "?IncludeStatistics=true",
        "%20",
        "%00",
        "?IncludeStatistics=true&IncludeStatistics=false",
        "#x",
        ";a=b",
        ".",
        "/.",
        "?a=b&a=c&%00",
    ]);
    let participant = one_of(&[
        "PI-RequestingParticipant: 12345678\r\n",
        "pi-requestingparticipant:12345678\r\n",
        "PI-RequestingParticipant:\t12345678 \r\n",
        "PI-RequestingParticipant: 12345678\r\nPI-RequestingParticipant: 12345678\r\n",
        "PI-RequestingParticipant: 12345678\r\nPI-RequestingParticipant: 87654321\r\n",
        "PI-RequestingParticipant: 12345678, 12345678\r\n",
        "PI-RequestingParticipant: 0012345678\r\n",
        "",
    ]);
    let payer = one_of(&[
        "PI-PayerId: 11122233300\r\n",
        "PI-PAYERID: 11122233300\r\n",
        "PI-PayerId: 11122233300\r\nPI-PayerId: 11122233300\r\n",
        "PI-PayerId: 11122233300\r\nPI-PayerId: 11122233301\r\n",
        "PI-PayerId: 111.222.333-00\r\n",
        "PI-PayerId: 11122233300,\r\n",
        "PI-PayerId:\r\n",
        "",
    ]);
    let id = one_of(&[
        "PI-EndToEndId: x\r\n",
        "PI-EndToEndId: E1\r\npi-endtoendid: E1\r\n",
        "",
    ]);
    let more = one_of(&[
        "",
        "X-HTTP-Method-Override: GET\r\n",
        "X-Original-URL: /api/v2/policies/\r\n",
        "Content-Length: 0\r\n",
        "Expect: 100-continue\r\n",
        "Accept-Encoding: identity\r\n",
    ]);
    let key = if random.bool() { KEY } else { NO_KEY };
    let key = encoded(random, key);
    format!(
        "{method} {base}{key}{end} HTTP/1.1\r\nHost: dict\r\nConnection: close\r\n{participant}{payer}\
         {id}{more}\r\n"
    )
}

#[tokio::test]
async fn a_lookup_is_counted_however_it_is_spelled() {
    let seed = std::env::var("BALDE_WALK_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("BALDE_WALK_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let server = TestServer::new().await;
    let (mut found, mut missed) = (0, 0);
    for _ in 0..ROUNDS {
        server.set_level(READ_USER, CALLER, Some(PERSON), 100).await;
        server
            .set_level(READ_PARTICIPANT, CALLER, None, 50_000)
            .await;
        let request = request(&mut random);
        let answer = raw(&server, &request).await;
        let counted = taken(&server).await;
        let is_found = answer.contains("<Entry>");
        let is_missed = answer.contains("Entry associated with given key does not exist");
        let expected = match (is_found, is_missed) {
            (true, _) => (1, 1),
            (_, true) => (20, 3),
            _ => (0, 0),
        };
        found += u32::from(is_found);
        missed += u32::from(is_missed);
        assert_eq!(counted, expected, "{request}{answer}");
        if expected == (0, 0) {
            assert!(!answer.starts_with("HTTP/1.1 2"), "{request}{answer}");
        }
    }
    assert!(found > 5 && missed > 5, "{found} found, {missed} missed");
}
