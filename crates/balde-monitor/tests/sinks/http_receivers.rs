//! Teams, Opsgenie and templates: what they send, and what they make of answers. No registry has a
//! server of Microsoft's or Atlassian's, so the receiver is the tests' own, and the bodies are held to
//! the published formats.

use std::collections::BTreeSet;

use balde_monitor::alert::{Event, EventKind, SinkClass};
use balde_monitor::delivery::DeliverySettings;
use balde_monitor::sink::{
    HttpSettings, HttpTemplate, Opsgenie, SIGNATURE_HEADER, Secret, SendError, Sink,
    TIMESTAMP_HEADER, Teams, TemplateSettings, Wording, sign,
};
use serde_json::{Value, json};

use crate::bodies::{everything, faults};
use crate::messages::{TEN_US, commit_events, episode, history, keys, message};
use crate::receiver::{Answer, Receiver};
use crate::stories::{deliver_all, dispatcher};

const TEAMS: &str = include_str!("schemas/teams_workflow.json");
const OPSGENIE: &str = include_str!("schemas/opsgenie_alert_v2.json");
const API_KEY: &str = "eb243592-faa2-4ba2-a551-1afdf565c889";
/// Teams rejects what is longer.
const TEAMS_BYTES_MAX: usize = 28 * 1_024;

fn opsgenie(url: String) -> Sink {
    Sink::Opsgenie(Opsgenie::at(url, API_KEY, &HttpSettings::default()).unwrap())
}

fn teams(url: String) -> Sink {
    Sink::Teams(Teams::new(url, &HttpSettings::default()).unwrap())
}

fn template(settings: TemplateSettings) -> Sink {
    Sink::Http(HttpTemplate::new(settings, &HttpSettings::default()).unwrap())
}

async fn send(sink: &Sink, event: &Event) -> Result<(), SendError> {
    let message = message(event.clone(), SinkClass::Page);
    sink.deliver(&message, TEN_US, &Wording::default()).await
}

#[tokio::test]
async fn every_message_to_teams_is_a_card_that_microsoft_publishes() {
    let receiver = everything(teams, &[SinkClass::Chat]).await;
    for request in receiver.requests() {
        let body = request.json();
        assert_eq!(faults(TEAMS, &body), [""; 0], "{body:#}");
        assert!(
            request.body.len() <= TEAMS_BYTES_MAX,
            "{}",
            request.body.len()
        );
    }
    assert!(!faults(TEAMS, &json!({ "text": "hello" })).is_empty());
}

#[tokio::test]
async fn an_alert_of_opsgenie_is_created_updated_and_closed_by_its_alias() {
    let receiver = Receiver::start(|_| {
        let body = r#"{"result":"Request will be processed","took":0.302,"requestId":"43a29c5c"}"#;
        Answer::Status(202, String::new(), body.to_owned())
    })
    .await;
    let sink = opsgenie(format!("http://{}/v2/alerts", receiver.address()));
    let events = episode("ENTRIES_WRITE");
    for event in &events {
        assert_eq!(send(&sink, event).await, Ok(()));
    }
    let requests = receiver.requests();
    for request in &requests {
        assert_eq!(
            request.headers["authorization"],
            format!("GenieKey {API_KEY}")
        );
        assert_eq!(faults(OPSGENIE, &request.json()), [""; 0]);
    }
    for created in &requests[..2] {
        assert_eq!(
            (created.method.as_str(), created.path.as_str()),
            ("POST", "/v2/alerts")
        );
        assert_eq!(created.json()["alias"], events[0].episode);
        assert_eq!(created.json()["priority"], "P2");
    }
    assert_eq!(
        requests[2].path,
        "/v2/alerts/12345678%2FENTRIES_WRITE%2F7%2Flevel-0/close?identifierType=alias"
    );
    assert!(
        requests[2].json()["note"]
            .as_str()
            .unwrap()
            .contains("recovered")
    );
}

#[tokio::test]
async fn an_acknowledgement_is_one_in_opsgenie_and_so_is_its_end() {
    let receiver = Receiver::start(|_| Answer::Accept).await;
    let sink = opsgenie(format!("http://{}/v2/alerts", receiver.address()));
    let raised = &episode("ENTRIES_WRITE")[0];
    let (by, via) = ("Ana Silva".to_owned(), None);
    let (again, not) = (by.clone(), via);
    for kind in [
        EventKind::Acknowledged { by, via },
        EventKind::Unacknowledged {
            by: again,
            via: not,
        },
    ] {
        let event = Event {
            kind,
            ..raised.clone()
        };
        assert_eq!(send(&sink, &event).await, Ok(()));
    }
    let alert = "/v2/alerts/12345678%2FENTRIES_WRITE%2F7%2Flevel-0";
    let requests = receiver.requests();
    for (request, action) in requests.iter().zip(["acknowledge", "unacknowledge"]) {
        assert_eq!(request.method, "POST");
        assert_eq!(
            request.path,
            format!("{alert}/{action}?identifierType=alias")
        );
        assert_eq!(request.json()["user"], "Ana Silva");
        assert_eq!(faults(OPSGENIE, &request.json()), [""; 0]);
    }
    assert_eq!(requests.len(), 2);
}

#[tokio::test]
async fn every_body_for_opsgenie_is_what_its_page_allows() {
    let sink_classes = [SinkClass::Page, SinkClass::PageUrgent, SinkClass::Event];
    let receiver = Receiver::start(|_| Answer::Accept).await;
    let sink = opsgenie(receiver.url());
    for event in crate::messages::every_kind() {
        for class in sink_classes {
            let message = message(event.clone(), class);
            let sent = sink.deliver(&message, TEN_US, &Wording::default()).await;
            assert_eq!(sent, Ok(()));
        }
    }
    for request in receiver.requests() {
        assert_eq!(
            faults(OPSGENIE, &request.json()),
            [""; 0],
            "{}",
            request.json()
        );
    }
    assert!(!faults(OPSGENIE, &json!({ "message": "x".repeat(131) })).is_empty());
}

#[tokio::test]
async fn the_errors_of_opsgenie_are_understood() {
    let events = episode("A");
    for (status, body, is_transient, expected) in [
        (
            422,
            r#"{"message":"Request body is not processable. Please check the errors.","errors":{"message":"Message can not be empty."},"took":0.0,"requestId":"38c07793"}"#,
            false,
            "status 422: Request body is not processable. Please check the errors. message: Message can \
             not be empty. (request 38c07793)",
        ),
        (
            401,
            r#"{"message":"Could not authenticate","took":0.001,"requestId":"8ba8b2ae"}"#,
            false,
            "status 401: Could not authenticate (request 8ba8b2ae)",
        ),
        (
            429,
            r#"{"message":"You are making too many requests!","took":0.0,"requestId":"1"}"#,
            true,
            "You are making too many requests! (request 1) (Retry-After: 9 s)",
        ),
        (
            503,
            "<html>Bad Gateway</html>",
            true,
            "<html>Bad Gateway</html>",
        ),
    ] {
        let receiver = Receiver::start(move |_| {
            Answer::Status(status, "retry-after: 9\r\n".to_owned(), body.to_owned())
        })
        .await;
        let failure = send(&opsgenie(receiver.url()), &events[0])
            .await
            .unwrap_err();
        assert_eq!(failure.is_transient(), is_transient, "{failure}");
        assert!(failure.to_string().contains(expected), "{failure}");
    }
    // An alert that somebody has deleted need not be closed. A wrong address is an error.
    for (body, is_fine) in [
        (
            r#"{"message":"Alert not found","took":0.01,"requestId":"7"}"#,
            true,
        ),
        ("<html>Not Found</html>", false),
    ] {
        let answer = move |_: &_| Answer::Status(404, String::new(), body.to_owned());
        let receiver = Receiver::start(answer).await;
        let sink = opsgenie(receiver.url());
        assert_eq!(send(&sink, &events[2]).await.is_ok(), is_fine, "{body}");
        assert!(send(&sink, &events[0]).await.is_err());
    }
}

#[tokio::test]
async fn a_template_makes_method_headers_body_and_signature() {
    let receiver = Receiver::start(|_| Answer::Accept).await;
    let settings = TemplateSettings::new(
        receiver.url(),
        r#"{"note": {{ title }}, "over": {{ is_over }}, "labels": [{{ severity }}, {{ label }}],
            "left": {{ level }}{% if policy %}, "policy": {{ policy }}{% endif %}}"#,
    );
    let settings = settings
        .method("PUT")
        .header("Authorization", "Bearer t0ken-secret")
        .header("content-type", "application/vnd.example+json")
        .secret("key");
    let sink = template(settings);
    for event in &crate::messages::every_kind() {
        assert_eq!(send(&sink, event).await, Ok(()), "{event:?}");
    }
    let requests = receiver.requests();
    for (request, event) in requests.iter().zip(crate::messages::every_kind()) {
        assert_eq!(request.method, "PUT");
        assert_eq!(request.headers["authorization"], "Bearer t0ken-secret");
        assert_eq!(
            request.headers["content-type"],
            "application/vnd.example+json"
        );
        assert!(!request.key().is_empty());
        let body = request.json();
        assert_eq!(body["note"], Wording::default().title(&event));
        assert_eq!(body["over"], event.kind.is_end());
        assert_eq!(body["left"], json!(event.level));
        assert_eq!(
            body.get("policy").and_then(Value::as_str),
            event.policy.as_deref()
        );
        let timestamp: u64 = request.headers[TIMESTAMP_HEADER].parse().unwrap();
        let signature = sign(&Secret::new("key"), timestamp, &request.body);
        assert_eq!(request.headers[SIGNATURE_HEADER], signature);
    }
    // Without JSON, values are inserted as they are.
    let text = TemplateSettings::new(receiver.url(), "{{ severity }}|{{ participant }}")
        .header("Content-Type", "text/plain");
    assert_eq!(send(&template(text), &episode("A")[0]).await, Ok(()));
    let last = receiver.requests().pop().unwrap();
    assert_eq!(last.body, b"CRITICAL|12345678");
    assert!(!last.headers.contains_key(SIGNATURE_HEADER));
}

#[test]
fn mistakes_in_templates_are_found_at_the_start() {
    let new = |body: &str| TemplateSettings::new("https://api.example/", body);
    let good = || new(r#"{"a": {{ title }}}"#);
    for (settings, expected) in [
        (new(r#"{"a": {{ titel }}}"#), "undefined"),
        (new(r#"{"a": {{ title }"#), "the template cannot be read"),
        (new(r#"{"a": "{{ title }}"}"#), "without quotation marks"),
        (
            new("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}"),
            "fuel",
        ),
        (good().method("GET"), "POST, PUT or PATCH"),
        (good().header("a b", "c"), "header"),
        (good().header("a", "b\r\nc: d"), "header"),
        (good().secret(""), "empty"),
    ] {
        let made = HttpTemplate::new(settings, &HttpSettings::default());
        let error = made.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn the_new_kinds_deliver_everything_once_although_half_of_it_fails() {
    const SEED: u64 = 0xba1de;
    println!("seed {SEED}");
    let mut receivers = Vec::new();
    for n in 0..3 {
        let mut random = fastrand::Rng::with_seed(SEED + n);
        let fickle = move |_: &_| match random.u32(..10) {
            0..5 => Answer::Accept,
            5 => Answer::AcceptAndClose,
            6 => Answer::Close,
            7 => Answer::status(500),
            8 => Answer::status(400),
            _ => Answer::Status(429, "retry-after: 3\r\n".to_owned(), String::new()),
        };
        receivers.push(Receiver::start(fickle).await);
    }
    let (_folder, history) = history().await;
    let names = ["teams", "opsgenie", "http"];
    let body = r#"{"note": {{ title }}}"#;
    let sinks = vec![
        ("teams", teams(receivers[0].url())),
        ("opsgenie", opsgenie(receivers[1].url())),
        (
            "http",
            template(TemplateSettings::new(receivers[2].url(), body)),
        ),
    ];
    let dispatcher = dispatcher(&history, &DeliverySettings::default(), sinks);
    let events = ["A", "B", "C", "D", "E"].map(episode).concat();
    commit_events(&history, &events, &names).await;
    deliver_all(&history, &dispatcher, &names).await;
    assert_eq!(history.backlog().await.unwrap(), []);
    let expected: BTreeSet<String> = keys(&events).into_iter().collect();
    for receiver in &receivers {
        let accepted: BTreeSet<String> = receiver.accepted_keys().into_iter().collect();
        assert_eq!(accepted, expected);
        assert!(
            receiver.requests().len() > events.len(),
            "some were tried again"
        );
    }
}

#[tokio::test]
async fn no_secret_of_the_new_kinds_is_shown() {
    // A receiver that repeats whatever it was sent.
    let echo = |request: &crate::receiver::Request| {
        let text = format!(
            "{} {:?}",
            request.path,
            request.headers.get("authorization")
        );
        Answer::Status(400, String::new(), text)
    };
    let receiver = Receiver::start(echo).await;
    let base = format!("http://{}", receiver.address());
    let header = "Bearer t0ken-secret-0123";
    let sinks = [
        (
            teams(format!(
                "{base}/workflows/secret-workflow-id?sig=secret-signature"
            )),
            "secret-",
        ),
        (opsgenie(format!("{base}/v2/alerts")), API_KEY),
        (
            template(
                TemplateSettings::new(format!("{base}/x"), "{}").header("authorization", header),
            ),
            header,
        ),
    ];
    for (sink, secret) in sinks {
        let failure = send(&sink, &episode("A")[0]).await.unwrap_err();
        assert!(failure.to_string().contains("400"), "{failure}");
        assert!(!failure.to_string().contains(secret), "{failure}");
        assert!(!format!("{sink:?}").contains(secret), "{sink:?}");
    }
}
