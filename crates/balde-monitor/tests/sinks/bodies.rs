//! Every body that can be, against the published formats.

use balde_monitor::alert::SinkClass;
use balde_monitor::sink::{
    HttpSettings, IncidentWebhook, PagerDuty, Sink, Slack, Webhook, event_json,
};
use serde_json::Value;

use crate::messages::{TEN_US, every_kind, message};
use crate::receiver::{Answer, Receiver};

const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";
const PAGER_DUTY: &str = include_str!("schemas/pagerduty_events_v2.json");
const SLACK: &str = include_str!("schemas/slack_incoming_webhook.json");
const PAGER_DUTY_BYTES_MAX: usize = 512 * 1_024;

const CLASSES: [SinkClass; 3] = [SinkClass::Page, SinkClass::PageUrgent, SinkClass::Event];

pub(crate) fn faults(schema: &str, body: &Value) -> Vec<String> {
    let schema = serde_json::from_str(schema).expect("a schema of JSON");
    let options = jsonschema::options().should_validate_formats(true);
    let validator = options.build(&schema).expect("a schema");
    let fault = |error: jsonschema::ValidationError| format!("{}: {error}", error.instance_path());
    validator.iter_errors(body).map(fault).collect()
}

/// Delivers everything that can be, and gives back what arrived.
pub(crate) async fn everything(
    sink: impl FnOnce(String) -> Sink,
    classes: &[SinkClass],
) -> Receiver {
    let receiver = Receiver::start(|_| Answer::Accept).await;
    let sink = sink(receiver.url());
    for event in every_kind() {
        for class in classes {
            let delivered = sink
                .deliver(
                    &message(event.clone(), *class),
                    TEN_US,
                    &balde_monitor::sink::Wording::default(),
                )
                .await;
            delivered.expect("a receiver that accepts");
        }
    }
    let requests = receiver.requests();
    assert_eq!(requests.len(), every_kind().len() * classes.len());
    for request in &requests {
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/hook")
        );
        assert_eq!(request.headers["content-type"], "application/json");
        assert!(request.headers["user-agent"].starts_with("balde-monitor/"));
        assert!(request.headers["idempotency-key"].is_ascii());
    }
    receiver
}

#[tokio::test]
async fn every_message_to_slack_is_what_slack_publishes() {
    let settings = HttpSettings::default();
    let sink = |url: String| Sink::Slack(Slack::new(url, &settings).unwrap());
    let receiver = everything(sink, &[SinkClass::Chat]).await;
    for request in receiver.requests() {
        let body = request.json();
        assert_eq!(faults(SLACK, &body), [""; 0], "{body:#}");
    }
}

#[tokio::test]
async fn every_event_for_pager_duty_is_what_pager_duty_publishes() {
    let settings = HttpSettings::default();
    let sink = |url: String| Sink::PagerDuty(PagerDuty::at(url, ROUTING_KEY, &settings).unwrap());
    let receiver = everything(sink, &CLASSES).await;
    for request in receiver.requests() {
        let body = request.json();
        assert_eq!(faults(PAGER_DUTY, &body), [""; 0], "{body:#}");
        assert!(request.body.len() <= PAGER_DUTY_BYTES_MAX);
    }
}

#[tokio::test]
async fn webhooks_and_incidents_carry_the_whole_event() {
    let settings = HttpSettings::default();
    let webhook = |url: String| Sink::Webhook(Webhook::new(url, "secret", &settings).unwrap());
    let incident =
        |url: String| Sink::Incident(IncidentWebhook::new(url, "secret", &settings).unwrap());
    let webhooks = everything(webhook, &[SinkClass::Event]).await;
    let incidents = everything(incident, &[SinkClass::Incident]).await;
    for (event, (webhook, incident)) in every_kind()
        .into_iter()
        .zip(webhooks.requests().into_iter().zip(incidents.requests()))
    {
        assert_eq!(
            webhook.json(),
            event_json(&event, &balde_monitor::sink::Wording::default())
        );
        let incident = incident.json();
        assert_eq!(
            incident["event"],
            event_json(&event, &balde_monitor::sink::Wording::default())
        );
        assert_eq!(incident["incident"]["id"], event.episode);
        let (action, status) = (&incident["action"], &incident["incident"]["status"]);
        assert_eq!(*action == "closed", *status == "closed");
        assert!(
            ["opened", "updated", "closed"]
                .iter()
                .any(|one| action == one)
        );
    }
}

/// A schema that takes everything would prove nothing.
#[test]
fn the_schemas_refuse_what_the_receivers_would_refuse() {
    let slack = |body: Value| !faults(SLACK, &body).is_empty();
    let text = |text: &str| serde_json::json!({ "type": "mrkdwn", "text": text });
    let section = |text: Value| serde_json::json!({ "text": "x", "blocks": [{ "type": "section", "text": text }] });
    let fields = |n: usize, chars: usize| {
        let fields = vec![text(&"a".repeat(chars)); n];
        serde_json::json!({ "text": "x", "blocks": [{ "type": "section", "fields": fields }] })
    };
    let header = |chars: usize| {
        let text = serde_json::json!({ "type": "plain_text", "text": "a".repeat(chars) });
        serde_json::json!({ "text": "x", "blocks": [{ "type": "header", "text": text }] })
    };
    let dividers = |n: usize| {
        let blocks = vec![serde_json::json!({ "type": "divider" }); n];
        serde_json::json!({ "text": "x", "blocks": blocks })
    };
    assert!(!slack(section(text(&"a".repeat(3_000)))));
    assert!(slack(section(text(&"a".repeat(3_001)))));
    assert!(slack(section(text(""))));
    assert!(slack(section(text("a < b"))));
    assert!(slack(section(text("a & b"))));
    assert!(!slack(section(text("a &amp; b &lt; c"))));
    assert!(!slack(fields(10, 2_000)) && slack(fields(11, 1)) && slack(fields(1, 2_001)));
    assert!(!slack(header(150)) && slack(header(151)));
    assert!(!slack(dividers(50)) && slack(dividers(51)));
    assert!(slack(serde_json::json!({ "blocks": [] })));

    let pager = |change: fn(&mut Value)| {
        let mut body = serde_json::json!({
            "routing_key": ROUTING_KEY,
            "event_action": "trigger",
            "dedup_key": "k",
            "payload": {
                "summary": "s", "source": "s", "severity": "info",
                "timestamp": "2026-11-15T10:00:00.000000Z",
            },
        });
        change(&mut body);
        !faults(PAGER_DUTY, &body).is_empty()
    };
    assert!(!pager(|_| {}));
    assert!(pager(|body| body["routing_key"] = "short".into()));
    assert!(pager(|body| body["event_action"] = "fire".into()));
    assert!(pager(|body| body["dedup_key"] = "k".repeat(256).into()));
    assert!(pager(
        |body| body["payload"]["summary"] = "s".repeat(1_025).into()
    ));
    assert!(pager(
        |body| body["payload"]["severity"] = "EXHAUSTED".into()
    ));
    assert!(pager(
        |body| body["payload"]["timestamp"] = "yesterday".into()
    ));
    assert!(pager(|body| body["payload"] = Value::Null));
}
