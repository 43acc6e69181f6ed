//! `PagerDuty`'s webhooks (V3): what people do about an alert there happens here, too.
//!
//! | Event of `PagerDuty` | Here |
//! |--|--|
//! | `incident.acknowledged` | the alert is acknowledged by that person |
//! | `incident.unacknowledged` | the acknowledgement is taken back |
//! | `incident.resolved` | the alert is closed; if its cause is still there, the next check raises a new one |
//!
//! What the monitor itself has caused in `PagerDuty` comes back without a person, and is ignored.

use std::collections::VecDeque;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use ring::hmac;
use serde::Deserialize;

use super::App;
use super::access::NAME_BYTES_MAX;
use super::api::ApiError;
use crate::alert::Via;
use crate::sink::{Secret, dedup_key};

/// The path that a webhook subscription names.
pub(super) const PATH: &str = "/api/v1/pagerduty";

/// The longest body, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 256 * 1024;

/// The header field with the signatures.
const SIGNATURE: &str = "x-pagerduty-signature";

/// How many ids of events are remembered, to ignore those that are sent again.
const SEEN_MAX: usize = 1_000;

/// The secrets of the webhook subscriptions, and the events that were processed.
#[derive(Default)]
pub(super) struct Webhooks {
    secrets: Vec<Secret>,
    seen: Mutex<VecDeque<String>>,
}

impl Webhooks {
    pub(super) fn new(secrets: Vec<Secret>) -> Self {
        Self {
            secrets,
            seen: Mutex::default(),
        }
    }

    /// Whether one of the signatures is that of a configured secret. The field may have several, for
    /// the time in which a secret is replaced.
    fn is_genuine(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let sent = headers.get_all(SIGNATURE).iter();
        let sent = sent.filter_map(|value| value.to_str().ok());
        let sent = sent.flat_map(|value| value.split(','));
        let sent = sent.filter_map(|part| from_hex(part.trim().strip_prefix("v1=")?));
        let signatures: Vec<Vec<u8>> = sent.collect();
        self.secrets.iter().any(|secret| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes());
            let mut signatures = signatures.iter();
            signatures.any(|signature| hmac::verify(&key, body, signature).is_ok())
        })
    }

    fn is_seen(&self, id: &str) -> bool {
        self.seen.lock().iter().any(|seen| seen == id)
    }

    fn record(&self, id: &str) {
        let mut seen = self.seen.lock();
        if seen.len() >= SEEN_MAX {
            seen.pop_front();
        }
        seen.push_back(id.to_owned());
    }
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").finish_non_exhaustive()
    }
}

/// The part of a webhook's body that is used.
#[derive(Deserialize)]
struct Message {
    event: WebhookEvent,
}

#[derive(Deserialize)]
struct WebhookEvent {
    id: String,
    #[serde(rename = "event_type")]
    kind: String,
    agent: Option<Agent>,
    #[serde(default)]
    data: Data,
}

/// Who caused the event: a person, or an integration such as the Events API.
#[derive(Deserialize)]
struct Agent {
    #[serde(rename = "type")]
    kind: String,
    summary: Option<String>,
}

#[derive(Default, Deserialize)]
struct Data {
    /// The `dedup_key` of the event that opened the incident.
    incident_key: Option<String>,
}

/// Receives an event.
pub(super) async fn receive(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, ApiError> {
    let body = body.map_err(|error| ApiError::new(error.status(), &error.body_text()))?;
    let webhooks = &app.0.pager_duty;
    if webhooks.secrets.is_empty() {
        let detail = "no sink of this monitor has `webhook_secret_env`";
        return Err(ApiError::new(StatusCode::NOT_FOUND, detail));
    }
    if !webhooks.is_genuine(&headers, &body) {
        let detail = "the signature is not that of a configured webhook secret";
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, detail));
    }
    let message: Message = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad(format!("this is no event of PagerDuty: {error}")))?;
    let event = message.event;
    if webhooks.is_seen(&event.id) {
        return Ok(StatusCode::OK);
    }
    let status = process(&app, &event).await?;
    webhooks.record(&event.id);
    Ok(status)
}

async fn process(app: &App, event: &WebhookEvent) -> Result<StatusCode, ApiError> {
    let is_person = |agent: &&Agent| agent.kind.starts_with("user");
    let agent = event.agent.as_ref().filter(is_person);
    let is_used = matches!(
        event.kind.as_str(),
        "incident.acknowledged" | "incident.unacknowledged" | "incident.resolved"
    );
    // An acknowledgement also ends by a timeout, which no person causes.
    let is_by_somebody = agent.is_some() || event.kind == "incident.unacknowledged";
    let key = event.data.incident_key.as_deref();
    let (true, true, Some(key)) = (is_used, is_by_somebody, key) else {
        return Ok(StatusCode::ACCEPTED);
    };
    let is_meant = |episode: &str| dedup_key(episode) == key;
    let found = app.0.cycle.find_open_alert(is_meant).await?;
    let Some(alert) = found else {
        // Of another monitor, or over.
        return Ok(StatusCode::ACCEPTED);
    };
    let by = agent.and_then(|agent| agent.summary.as_deref());
    let by = name(by.unwrap_or("PagerDuty"));
    let via = Via::PagerDuty;
    match event.kind.as_str() {
        "incident.acknowledged" => {
            app.acknowledge(&alert, &by, Some(via)).await?;
        }
        "incident.unacknowledged" => {
            app.unacknowledge(&alert, &by, Some(via)).await?;
        }
        _ => {
            let (participant, episode) = (&alert.participant, &alert.episode);
            let cycle = &app.0.cycle;
            cycle.close_alert(participant, episode, &by, via).await?;
            app.forget_view().await;
        }
    }
    Ok(StatusCode::OK)
}

/// A name without control characters, cut to its maximum.
fn name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        name.push(c);
    }
    name
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signature of `{}` with the secret `secret`, computed with OpenSSL.
    fn signature(secret: &str, body: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hmac::sign(&key, body);
        let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
        format!("v1={}", digits.collect::<String>())
    }

    #[test]
    fn one_right_signature_of_several_is_enough() {
        let webhooks = Webhooks::new(vec![Secret::new("secret")]);
        let is_genuine = |value: &str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(SIGNATURE, value.parse().unwrap());
            webhooks.is_genuine(&headers, body)
        };
        let body = b"{}";
        let (right, wrong) = (signature("secret", body), signature("other", body));
        assert!(is_genuine(&right, body));
        assert!(is_genuine(&format!("{wrong}, {right}"), body));
        assert!(!is_genuine(&wrong, body));
        assert!(!is_genuine(&right, b"{ }"));
        assert!(!is_genuine("", body) && !is_genuine("v1=", body) && !is_genuine("v1=zz", body));
        assert!(!webhooks.is_genuine(&HeaderMap::new(), body));
        let without = Webhooks::default();
        let mut headers = HeaderMap::new();
        headers.insert(SIGNATURE, right.parse().unwrap());
        assert!(!without.is_genuine(&headers, body));
    }

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(name("Ana\n Silva"), "Ana Silva");
        assert_eq!(name(&"ç".repeat(80)).len(), NAME_BYTES_MAX);
    }
}
