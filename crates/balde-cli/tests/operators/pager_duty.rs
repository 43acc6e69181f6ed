//! `PagerDuty` in both directions: a monitor, a server in its place, and its signed webhooks.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use reqwest::{Client, StatusCode};
use ring::hmac;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::processes::{Service, client_from, get_json, start_monitor, wait_for};
use crate::source::Source;

type Received = Arc<Mutex<Vec<Value>>>;

/// A server that takes what `PagerDuty`'s Events API takes.
async fn events_api() -> (String, Received) {
    let received = Received::default();
    let events = Arc::clone(&received);
    let take = move |body: String| {
        events
            .lock()
            .unwrap()
            .push(serde_json::from_str(&body).unwrap());
        async { (StatusCode::ACCEPTED, "{}") }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v2/enqueue", listener.local_addr().unwrap());
    let app = Router::new().route("/v2/enqueue", post(take));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, received)
}

/// The actions that were sent, in their order.
fn actions(received: &Received) -> Vec<String> {
    let received = received.lock().unwrap();
    let actions = received.iter().map(|event| event["event_action"].as_str());
    actions.map(|action| action.unwrap().to_owned()).collect()
}

struct World {
    monitor: Service,
    source: Source,
    received: Received,
    client: Client,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::start(0).await;
        let (url, received) = events_api().await;
        let file = format!(
            "[http]\naddress = \"127.0.0.1:0\"\npublic_url = \"https://monitor.example.com/balde/\"\n\
             [alerts]\nresolve_after = '1 s'\n{}\
             [[sink]]\nname = \"pd\"\nkind = \"pagerduty\"\nurl = \"{url}\"\n\
             routing_key_env = \"ROUTING_KEY\"\nwebhook_secret_env = \"WEBHOOK_SECRET\"\n",
            source.section()
        );
        std::fs::write(folder.path().join("monitor.toml"), file).unwrap();
        let monitor = start_monitor(folder.path());
        let client = client_from("127.0.0.1");
        Self {
            monitor,
            source,
            received,
            client,
            _folder: folder,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.monitor.address)
    }

    async fn wait_for_actions(&self, expected: &[&str]) {
        wait_for(&format!("{expected:?}"), async || {
            (actions(&self.received) == expected).then_some(())
        })
        .await;
    }

    async fn bucket(&self) -> Value {
        let states = get_json(&self.client, &self.url("/api/v1/states")).await;
        states["participants"][0]["buckets"][0].clone()
    }

    /// Sends an event as `PagerDuty` does.
    async fn webhook(&self, id: &str, event: &str, key: &str, agent: &Value) -> StatusCode {
        let body = json!({"event": {
            "id": id, "event_type": event, "resource_type": "incident",
            "occurred_at": "2026-11-17T04:00:00.000Z", "agent": agent, "client": null,
            "data": {"id": "PGR0VU2", "type": "incident", "incident_key": key, "status": "x"},
        }});
        let body = body.to_string();
        self.signed(&body, "a-secret-of-a-subscription").await
    }

    async fn signed(&self, body: &str, secret: &str) -> StatusCode {
        let hmac_key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hmac::sign(&hmac_key, body.as_bytes());
        let digits = tag.as_ref().iter();
        let digits = digits.fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let request = self.client.post(self.url("/api/v1/pagerduty"));
        let request = request.header("x-pagerduty-signature", format!("v1={digits}"));
        let request = request.header("content-type", "application/json");
        request.body(body.to_owned()).send().await.unwrap().status()
    }
}

#[tokio::test]
async fn what_is_acknowledged_here_is_acknowledged_there_and_the_other_way_round() {
    let world = World::start().await;
    world.wait_for_actions(&["trigger"]).await;
    let (key, link) = {
        let received = world.received.lock().unwrap();
        let event = &received[0];
        (
            event["dedup_key"].as_str().unwrap().to_owned(),
            event["client_url"].clone(),
        )
    };
    assert_eq!(
        link,
        "https://monitor.example.com/balde/#/policy/12345678/KEYS_CHECK"
    );
    // Here, then there.
    let body = json!({"episode": key, "by": "Ana"});
    let request = world
        .client
        .post(world.url("/api/v1/acknowledgements"))
        .json(&body);
    assert_eq!(request.send().await.unwrap().status(), 201);
    world.wait_for_actions(&["trigger", "acknowledge"]).await;
    assert_eq!(world.received.lock().unwrap()[1]["dedup_key"], key);

    let rui = json!({"id": "PLH1HKV", "type": "user_reference", "summary": "Rui Souza"});
    let integration =
        json!({"id": "PX", "type": "inbound_integration_reference", "summary": "Events API"});
    // A wrong signature, and what the monitor itself has caused, change nothing.
    let forged = world.signed("{\"event\": {}}", "another-secret").await;
    assert_eq!(forged, 401);
    let echo = world
        .webhook("e1", "incident.acknowledged", &key, &integration)
        .await;
    assert_eq!(echo, 202);
    assert_eq!(world.bucket().await["acknowledged"]["by"], "Ana");
    // There, then here; nothing goes back.
    assert_eq!(
        world
            .webhook("e2", "incident.unacknowledged", &key, &rui)
            .await,
        200
    );
    assert_eq!(world.bucket().await["acknowledged"], Value::Null);
    assert_eq!(
        world
            .webhook("e3", "incident.acknowledged", &key, &rui)
            .await,
        200
    );
    assert_eq!(world.bucket().await["acknowledged"]["by"], "Rui Souza");
    // PagerDuty sends an event again if it got no answer.
    assert_eq!(
        world
            .webhook("e2", "incident.unacknowledged", &key, &rui)
            .await,
        200
    );
    assert_eq!(world.bucket().await["acknowledged"]["by"], "Rui Souza");
    assert_eq!(
        world
            .webhook("e4", "incident.acknowledged", "unknown", &rui)
            .await,
        202
    );
    let alerts = get_json(&world.client, &world.url("/api/v1/alerts?limit=1")).await;
    assert_eq!(
        alerts[0]["kind"],
        json!({"type": "acknowledged", "by": "Rui Souza", "via": "pagerduty"})
    );
    // The bucket recovers: resolved there.
    world.source.set(70);
    world
        .wait_for_actions(&["trigger", "acknowledge", "resolve"])
        .await;
}

#[tokio::test]
async fn what_is_resolved_there_is_closed_here() {
    let world = World::start().await;
    world.wait_for_actions(&["trigger"]).await;
    let key = world.received.lock().unwrap()[0]["dedup_key"].clone();
    let key = key.as_str().unwrap();
    let rui = json!({"id": "PLH1HKV", "type": "user_reference", "summary": "Rui Souza"});
    assert_eq!(
        world.webhook("e1", "incident.resolved", key, &rui).await,
        200
    );
    let alerts = get_json(&world.client, &world.url("/api/v1/alerts?limit=20")).await;
    let alerts = alerts.as_array().unwrap();
    let closed = alerts
        .iter()
        .find(|event| event["kind"]["type"] == "closed");
    let closed = closed.unwrap_or_else(|| panic!("{alerts:?}"));
    assert_eq!(
        (&closed["kind"]["by"], &closed["episode"]),
        (&json!("Rui Souza"), &json!(key))
    );
    let incidents = get_json(&world.client, &world.url("/api/v1/incidents")).await;
    let incident = incidents
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["episode"] == key)
        .unwrap()
        .clone();
    assert!(incident["closed_us"].is_u64(), "{incident}");
    // The bucket is still empty, so a new alert is raised, and nothing was sent about the old one.
    world.wait_for_actions(&["trigger", "trigger"]).await;
    let received = world.received.lock().unwrap();
    assert_ne!(received[0]["dedup_key"], received[1]["dedup_key"]);
}
