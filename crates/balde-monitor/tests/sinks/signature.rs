//! The signature, checked as a receiver would check it: with what arrived and the secret only.

use std::io::Write;
use std::process::{Command, Stdio};

use balde_monitor::alert::SinkClass;
use balde_monitor::sink::{HttpSettings, IncidentWebhook, Sink, Webhook};
use ring::hmac;

use crate::messages::{SECOND_US, TEN_US, episode, message};
use crate::receiver::{Answer, Receiver, Request};

const SECRET: &str = "It is a secret to everybody";
const WINDOW_S: u64 = 300;

/// The check that docs/alerts.md shows to receivers.
fn is_genuine(request: &Request, now_s: u64) -> bool {
    let timestamp = &request.headers["x-balde-timestamp"];
    let Ok(sent_s) = timestamp.parse::<u64>() else {
        return false;
    };
    if now_s.abs_diff(sent_s) > WINDOW_S {
        return false;
    }
    let Some(digits) = request.headers["x-balde-signature"].strip_prefix("v1=") else {
        return false;
    };
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let Some(tag) = digits
        .as_bytes()
        .chunks(2)
        .map(byte)
        .collect::<Option<Vec<u8>>>()
    else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signed = [timestamp.as_bytes(), b".", &request.body].concat();
    hmac::verify(&key, &signed, &tag).is_ok()
}

async fn delivered() -> Vec<Request> {
    let receiver = Receiver::start(|_| Answer::Accept).await;
    let settings = HttpSettings::default();
    let sinks = [
        Sink::Webhook(Webhook::new(receiver.url(), SECRET, &settings).unwrap()),
        Sink::Incident(IncidentWebhook::new(receiver.url(), SECRET, &settings).unwrap()),
    ];
    for sink in &sinks {
        for (later, event) in (0..).zip(episode("AÇÃO & <b>")) {
            let message = message(event, SinkClass::Event);
            let now_us = TEN_US + later * SECOND_US;
            sink.deliver(&message, now_us, &balde_monitor::sink::Wording::default())
                .await
                .expect("a receiver that accepts");
        }
    }
    receiver.requests()
}

#[tokio::test]
async fn a_receiver_can_tell_what_is_genuine_from_what_is_not() {
    let now_s = TEN_US / SECOND_US;
    for request in delivered().await {
        assert!(is_genuine(&request, now_s));
        assert!(is_genuine(&request, now_s + WINDOW_S));
        // Recorded and sent again later.
        assert!(!is_genuine(&request, now_s + WINDOW_S + 4));

        let mut changed = request.clone();
        let last = changed.body.len() - 2;
        changed.body[last] ^= 1;
        assert!(!is_genuine(&changed, now_s));

        let mut moved = request.clone();
        let later = (now_s + 10).to_string();
        moved.headers.insert("x-balde-timestamp".to_owned(), later);
        assert!(!is_genuine(&moved, now_s));
    }
}

/// The lines of Python in the documentation, run as they stand there.
#[tokio::test]
async fn the_documented_lines_of_python_do_the_same() {
    let docs = include_str!("../../../../docs/alerts.md");
    let (_, after) = docs
        .split_once("```python\n")
        .expect("lines of Python in the docs");
    let (lines, _) = after.split_once("```").expect("the end of the lines");
    let now_s = TEN_US / SECOND_US;
    let mut cases = Vec::new();
    for request in delivered().await {
        let case = |body: &[u8], now_s: u64, expected: bool| {
            let body: Vec<String> = body.iter().map(|byte| format!("{byte:02x}")).collect();
            let headers = &request.headers;
            let (stamp, tag) = (&headers["x-balde-timestamp"], &headers["x-balde-signature"]);
            serde_json::json!([body.concat(), stamp, tag, now_s, expected])
        };
        cases.push(case(&request.body, now_s, true));
        cases.push(case(&request.body, now_s + 2 * WINDOW_S, false));
        cases.push(case(b"{}", now_s, false));
    }
    let test = "
import json, sys
for body, timestamp, signature, now, expected in json.load(sys.stdin):
    headers = {'X-Balde-Timestamp': timestamp, 'X-Balde-Signature': signature}
    found = is_genuine(b'It is a secret to everybody', headers, bytes.fromhex(body), now)
    assert found is expected, (timestamp, now, expected)
print('checked')
";
    let mut python = match Command::new("python3")
        .args(["-c", &format!("{lines}\n{test}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    {
        Ok(python) => python,
        Err(error) => {
            let is_required = std::env::var("BALDE_REQUIRE_SERVICES").as_deref() == Ok("1");
            assert!(!is_required, "python3 does not start: {error}");
            eprintln!("\n*** SKIPPED: python3 does not start, so this test tested NOTHING ***\n");
            return;
        }
    };
    let mut input = python.stdin.take().expect("an input");
    let cases = serde_json::Value::from(cases).to_string();
    input.write_all(cases.as_bytes()).expect("python3 reads");
    drop(input);
    let output = python.wait_with_output().expect("python3 ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "checked\n");
}
