//! A thousand invalid requests: each gets its 4xx, and only the buckets that count it change.

use std::time::Duration;

use balde_dict::wire::{Problem, XML_DEPTH_MAX};
use fastrand::Rng;
use reqwest::{Body, Method};
use serde_json::Value;

use crate::test_server::{CALLER, KEY_HOLDER, PERSON, TestServer, create_entry, end_to_end_id};

const REQUESTS: usize = 1_000;
const SEED: u64 = 0xba1de;

/// A request and the expected result.
struct InvalidRequest {
    class: &'static str,
    method: Method,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Option<Vec<u8>>,
    status: u16,
    error_type: &'static str,
    /// The policy that counts it, if any.
    costs: Option<&'static str>,
}

impl InvalidRequest {
    fn get(class: &'static str, path: impl Into<String>) -> Self {
        Self {
            class,
            method: Method::GET,
            path: path.into(),
            headers: vec![
                ("PI-RequestingParticipant", CALLER.into()),
                ("PI-PayerId", PERSON.into()),
                ("PI-EndToEndId", end_to_end_id(0).into()),
            ],
            body: None,
            status: 400,
            error_type: "BadRequest",
            costs: None,
        }
    }

    fn post(class: &'static str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: Method::POST,
            headers: vec![("Content-Type", b"application/xml".to_vec())],
            body: Some(body.into()),
            ..Self::get(class, path)
        }
    }

    fn header(mut self, name: &'static str, value: Option<&[u8]>) -> Self {
        self.headers.retain(|(own, _)| *own != name);
        self.headers
            .extend(value.map(|value| (name, value.to_vec())));
        self
    }

    fn expecting(mut self, status: u16, error_type: &'static str) -> Self {
        self.status = status;
        self.error_type = error_type;
        self
    }

    fn costing(mut self, policy: &'static str) -> Self {
        self.costs = Some(policy);
        self
    }
}

fn lookup(class: &'static str) -> InvalidRequest {
    InvalidRequest::get(class, "/api/v2/entries/ana@example.com")
}

fn entry() -> String {
    create_entry("PHONE", "+5561988880000", CALLER, PERSON, 1)
}

const ENTRIES: &str = "/api/v2/entries/";

/// A random request of one of the classes.
#[expect(clippy::too_many_lines, reason = "an arm to each class")]
fn bad(random: &mut Rng) -> InvalidRequest {
    let one_of = |random: &mut Rng, all: &[&'static str]| all[random.usize(..all.len())];
    match random.u32(0..26) {
        0 => {
            // Truncated anywhere before the end of its last tag.
            let whole = entry();
            let mut end = random.usize(1..whole.len() - 1);
            while !whole.is_char_boundary(end) {
                end -= 1;
            }
            InvalidRequest::post("cut off", ENTRIES, &whole[..end])
        }
        1 => InvalidRequest::post(
            "tags crossed",
            ENTRIES,
            entry().replace("</Entry>", "</Entri>"),
        ),
        2 => {
            let file = one_of(
                random,
                &["file:///etc/passwd", "http://127.0.0.1:1/", "expect://id"],
            );
            let document = format!("<!DOCTYPE r [<!ENTITY x SYSTEM \"{file}\">]>{}", entry());
            let document = document
                .replace("João Silva", "&x;")
                .replace("<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "");
            InvalidRequest::post("external entity", ENTRIES, document)
        }
        3 => {
            let entities: Vec<_> = (1..10)
                .map(|n| format!("<!ENTITY a{n} \"{}\">", format!("&a{};", n - 1).repeat(10)))
                .collect();
            let laughs = format!("<!DOCTYPE r [<!ENTITY a0 \"ha\">{}", entities.concat());
            InvalidRequest::post("billion laughs", ENTRIES, format!("{laughs}]><r>&a9;</r>"))
        }
        4 => InvalidRequest::post("unknown entity", ENTRIES, entry().replace("João", "&joao;")),
        5 => {
            let depth = XML_DEPTH_MAX + random.usize(1..1_000);
            InvalidRequest::post(
                "too deep",
                ENTRIES,
                "<a>".repeat(depth) + &"</a>".repeat(depth),
            )
        }
        6 => {
            let mut document = entry().into_bytes();
            let at = random.usize(..document.len());
            document[at] = 0xff;
            InvalidRequest::post("not UTF-8", ENTRIES, document)
        }
        7 => InvalidRequest::post("nothing at all", ENTRIES, ""),
        8 => InvalidRequest::post(
            "not XML",
            ENTRIES,
            one_of(
                random,
                &["{\"Entry\": 1}", "hello", "\u{0}", "<", "<a", "&amp;"],
            ),
        ),
        9 => {
            let name = one_of(
                random,
                &["PI-RequestingParticipant", "PI-PayerId", "PI-EndToEndId"],
            );
            lookup("a header missing").header(name, None)
        }
        10 => {
            let ispb = one_of(
                random,
                &[
                    "1",
                    "1234567",
                    "123456789",
                    "1234567-",
                    "1234 678",
                    "../../..",
                    "12345678,87654321",
                ],
            );
            lookup("bad ISPB").header("PI-RequestingParticipant", Some(ispb.as_bytes()))
        }
        11 => {
            let payer = one_of(
                random,
                &[
                    "1",
                    "1112223330",
                    "111222333001",
                    "1122233300015",
                    "112223330001500",
                    "1112223330a",
                    "***********",
                    "11222333000abc",
                ],
            );
            lookup("bad PayerId").header("PI-PayerId", Some(payer.as_bytes()))
        }
        12 => {
            let id = one_of(
                random,
                &[
                    "é",
                    "E12345678202601010000000000000é0",
                    "x".repeat(257).leak(),
                ],
            );
            lookup("bad EndToEndId").header("PI-EndToEndId", Some(id.as_bytes()))
        }
        13 => {
            let key = one_of(
                random,
                &[
                    "1",
                    "1234567890",
                    "123456789012",
                    "1234567890a",
                    "%2B",
                    "%2B0551198",
                    "%2B123456789012345678",
                    "a%40",
                    "%40b",
                    "Ana%40example.com",
                    "a b%40c.d",
                    "123e4567-e89b-12d3-a456-42661417400",
                    "123E4567-E89B-12D3-A456-426614174000",
                    "%00",
                    "%FF",
                    "%zz",
                    "%",
                    "..%2F..%2Fetc",
                    "%3Cscript%3E",
                    "%F0%9F%98%80",
                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%40b.c",
                ],
            );
            InvalidRequest::get("bad key", format!("/api/v2/entries/{key}"))
        }
        14 => {
            let (path, status) = [
                ("/api/v2/nothing", 404),
                ("/api/v2/", 404),
                ("/", 404),
                ("/api/v1/entries/x", 404),
                ("/api/v2/entries/a/b/c/d", 404),
                ("/api/v2/policies", 404),
            ][random.usize(..6)];
            InvalidRequest::get("no such path", path).expecting(status, "NotFound")
        }
        15 => {
            let mut bad = lookup("wrong method").expecting(405, "BadRequest");
            bad.method = [Method::DELETE, Method::PATCH, Method::POST][random.usize(..3)].clone();
            bad
        }
        16 => InvalidRequest::post("compressed", ENTRIES, entry())
            .header(
                "Content-Encoding",
                Some(one_of(random, &["gzip", "deflate", "br"]).as_bytes()),
            )
            .expecting(415, "BadRequest"),
        17 => InvalidRequest::post("not said to be XML", ENTRIES, entry())
            .header(
                "Content-Type",
                Some(one_of(random, &["application/json", "text/plain", "image/png"]).as_bytes()),
            )
            .expecting(415, "BadRequest"),
        18 => lookup("a header that is no text").header("PI-PayerId", Some(b"\xff\xfe1112223330")),
        19 => {
            let mut bad = lookup("a header twice");
            bad.headers
                .push(("PI-RequestingParticipant", KEY_HOLDER.into()));
            bad
        }
        20 => {
            let (what, with) = [
                ("<Participant>12345678</Participant>", ""),
                (
                    "<Participant>12345678</Participant>",
                    "<Participant>1</Participant>",
                ),
                (
                    "<Participant>12345678</Participant>",
                    "<Participant>abcdefg-</Participant>",
                ),
            ][random.usize(..3)];
            let mut request =
                InvalidRequest::post("no participant", ENTRIES, entry().replace(what, with));
            if !with.is_empty() {
                // The field is named, but whose bucket would count it is not known.
                request.error_type = "EntryInvalid";
            }
            request
        }
        // From here on the participant and a policy are known, so the request is counted.
        21 => {
            let (what, with) = [
                ("<KeyType>PHONE</KeyType>", "<KeyType>FAX</KeyType>"),
                ("<Key>+5561988880000</Key>", "<Key>5561988880000</Key>"),
                ("<Key>+5561988880000</Key>", ""),
                (
                    "<AccountNumber>0007654321</AccountNumber>",
                    "<AccountNumber>x-</AccountNumber>",
                ),
                (
                    "<OpeningDate>2010-01-10T03:00:00Z</OpeningDate>",
                    "<OpeningDate>then</OpeningDate>",
                ),
                ("<Type>NATURAL_PERSON</Type>", "<Type>LEGAL_PERSON</Type>"),
                ("<Reason>USER_REQUESTED</Reason>", "<Reason>WHIM</Reason>"),
                (
                    "<RequestId>a946d533-7f22-42a5-9a9b-000000000001</RequestId>",
                    "<RequestId>1</RequestId>",
                ),
                ("João Silva", ""),
            ][random.usize(..9)];
            InvalidRequest::post("bad fields", ENTRIES, entry().replace(what, with))
                .expecting(400, "EntryInvalid")
                .costing("ENTRIES_WRITE")
        }
        22 => {
            let query = one_of(
                random,
                &[
                    "Limit=0",
                    "Limit=-1",
                    "Limit=9999999999999999999999",
                    "Status=X",
                    "IsDonor=maybe",
                ],
            );
            InvalidRequest::get(
                "bad parameters",
                format!("/api/v2/claims/?Participant={CALLER}&{query}"),
            )
            .costing("CLAIMS_LIST_WITHOUT_ROLE")
        }
        23 => {
            let id = one_of(
                random,
                &[
                    "1",
                    "91d65e98-97c0-4b0f-b577-73625da1f9f",
                    "%00",
                    "x".repeat(36).leak(),
                ],
            );
            InvalidRequest::get("bad id", format!("/api/v2/claims/{id}")).costing("CLAIMS_READ")
        }
        24 => InvalidRequest::post(
            "no keys",
            "/api-np/v2/keys/check",
            "<CheckKeysRequest><Keys></Keys></CheckKeysRequest>",
        )
        .header("PI-RequestingParticipant", Some(CALLER.as_bytes()))
        .costing("KEYS_CHECK"),
        _ => InvalidRequest::get(
            "a list without a participant",
            one_of(
                random,
                &[
                    "/api/v2/claims/",
                    "/api/v2/claims/?Participant=1",
                    "/api/v2/refunds/?Participant=",
                    "/api/v2/claims/?Participant=12345678&Participant=87654321",
                ],
            ),
        ),
    }
}

async fn send(server: &TestServer, bad: &InvalidRequest) -> reqwest::Response {
    let mut request = server
        .client
        .request(bad.method.clone(), server.url(&bad.path));
    for (name, value) in &bad.headers {
        request = request.header(
            *name,
            reqwest::header::HeaderValue::from_bytes(value).unwrap(),
        );
    }
    if let Some(body) = &bad.body {
        request = request.body(Body::from(body.clone()));
    }
    request
        .send()
        .await
        .unwrap_or_else(|error| panic!("{}: {error}", bad.class))
}

async fn levels(server: &TestServer) -> Vec<Value> {
    let mut all = Vec::new();
    for participant in [CALLER, KEY_HOLDER] {
        let path = format!("/sim/buckets?participant={participant}&payer={PERSON}");
        let (_, shown) = server.sim(Method::GET, &path, None).await;
        all.extend(shown["buckets"].as_array().unwrap().clone());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_invalid_requests_get_their_problem_and_change_only_the_right_buckets() {
    println!("seed {SEED:#x}");
    let mut random = Rng::with_seed(SEED);
    let server = TestServer::new().await;
    let mut classes = std::collections::BTreeMap::new();
    for number in 0..REQUESTS {
        // All buckets are full again, so none of them refuses.
        server.clock.advance(Duration::from_secs(30 * 86_400));
        let before = levels(&server).await;
        let bad = bad(&mut random);
        *classes.entry(bad.class).or_insert(0) += 1;
        let response = send(&server, &bad).await;
        let what = format!("{number}: {} {} {}", bad.class, bad.method, bad.path);
        assert_eq!(response.status().as_u16(), bad.status, "{what}");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+xml",
            "{what}"
        );
        let body = response.bytes().await.unwrap();
        let problem = Problem::read(&body).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(problem.status(), bad.status, "{what}");
        assert_eq!(problem.error_type(), bad.error_type, "{what}: {problem}");
        for (before, after) in before.iter().zip(levels(&server).await) {
            let taken = before["level"].as_i64().unwrap() - after["level"].as_i64().unwrap();
            let is_its = before["policy"].as_str() == bad.costs && before["participant"] == CALLER;
            assert_eq!(taken, i64::from(is_its), "{what}: {}", before["policy"]);
        }
    }
    println!("{classes:?}");
    assert!(classes.len() >= 25, "every class came up: {classes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_ten_mebibytes_are_answered_and_cost_nothing() {
    let server = TestServer::new().await;
    for length in [256 * 1_024 + 1, 10 << 20] {
        let before = levels(&server).await;
        let bad = InvalidRequest::post("too long", ENTRIES, vec![b' '; length])
            .expecting(413, "BadRequest");
        let response = send(&server, &bad).await;
        assert_eq!(response.status(), 413);
        let problem = Problem::read(&response.bytes().await.unwrap()).unwrap();
        assert_eq!(problem.error_type(), "BadRequest");
        assert_eq!(before, levels(&server).await);
    }
    // A body of the maximum length is read, and is not XML.
    let bad = InvalidRequest::post("long enough", ENTRIES, vec![b' '; 256 * 1_024]);
    assert_eq!(send(&server, &bad).await.status(), 400);
}

#[tokio::test]
async fn a_missing_header_is_reported_in_dicts_words() {
    let server = TestServer::new().await;
    let bad = lookup("a header missing").header("PI-PayerId", None);
    let body = send(&server, &bad).await.text().await.unwrap();
    assert!(
        body.contains("<detail>Missing request header &apos;PI-PayerId&apos;</detail>"),
        "{body}"
    );
    let problem = Problem::read(body.as_bytes()).unwrap();
    assert_eq!(
        problem.detail(),
        Some("Missing request header 'PI-PayerId'")
    );
}

#[tokio::test]
async fn all_invalid_fields_are_reported_together_with_their_values() {
    let server = TestServer::new().await;
    let body = entry()
        .replace("<KeyType>PHONE</KeyType>", "<KeyType>FAX</KeyType>")
        .replace("<AccountNumber>0007654321</AccountNumber>", "")
        .replace("<Reason>USER_REQUESTED</Reason>", "<Reason>WHIM</Reason>");
    let (status, answer) = server.post("/entries/", body).await;
    assert_eq!(status, 400);
    let problem = Problem::read(answer.as_bytes()).unwrap();
    let properties: Vec<_> = problem
        .violations()
        .iter()
        .filter_map(|v| v.property.as_deref())
        .collect();
    assert_eq!(
        properties,
        ["entry.keyType", "entry.account.accountNumber", "reason"]
    );
    let values: Vec<_> = problem
        .violations()
        .iter()
        .map(|violation| violation.value.as_deref())
        .collect();
    assert_eq!(values, [Some("FAX"), None, Some("WHIM")]);
    assert_eq!(problem.title(), "Entry is invalid");
    assert_eq!(problem.correlation_id().map(str::len), Some(32));
}
