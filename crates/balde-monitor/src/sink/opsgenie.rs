//! Opsgenie, through the Alert API v2.

use reqwest::Url;
use serde_json::{Map, Value, json};

use super::config_error::SinkError;
use super::error::SendError;
use super::http::{Call, HttpEndpoint, HttpSettings, Reply};
use super::secret::Secret;
use super::shorten::{cut, short_key};
use super::text::{Wording, current_severity, rfc3339};
use crate::alert::OutboxMessage;
use crate::alert::{Event, EventKind, SinkClass};
use crate::severity::Severity;

/// The URL of the Alert API. Accounts in Europe and Jira Service Management have other ones.
pub const OPSGENIE_URL: &str = "https://api.opsgenie.com/v2/alerts";

// Opsgenie's documented maximum lengths, in characters.
const MESSAGE_MAX: usize = 130;
const ALIAS_MAX: usize = 512;
const DESCRIPTION_MAX: usize = 15_000;
const ENTITY_MAX: usize = 512;
const NOTE_MAX: usize = 25_000;
const USER_MAX: usize = 100;

const SOURCE: &str = "balde monitor";

/// Creates, acknowledges and closes alerts of an Opsgenie integration.
///
/// ```
/// use balde_monitor::sink::{HttpSettings, Opsgenie, Sink};
///
/// let key = "eb243592-faa2-4ba2-a551-1afdf565c889";
/// let sink = Sink::Opsgenie(Opsgenie::new(key, &HttpSettings::default())?);
/// assert!(!format!("{sink:?}").contains("eb24"));
/// # Ok::<(), balde_monitor::sink::SinkError>(())
/// ```
#[derive(Debug)]
pub struct Opsgenie {
    endpoint: HttpEndpoint,
    api_key: Secret,
}

impl Opsgenie {
    /// Sends with the API key of an integration.
    pub fn new(api_key: impl Into<Secret>, settings: &HttpSettings) -> Result<Self, SinkError> {
        Self::at(OPSGENIE_URL, api_key, settings)
    }

    /// Sends to another URL than [`OPSGENIE_URL`].
    pub fn at(
        url: impl Into<Secret>,
        api_key: impl Into<Secret>,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        let api_key = api_key.into();
        let is_key = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_graphic());
        if !is_key(api_key.reveal()) {
            let advice =
                "the Opsgenie API key must be the key of an API integration, without spaces";
            return Err(SinkError::Secret { advice });
        }
        Ok(Self {
            endpoint: HttpEndpoint::new(&url.into(), settings, &[&api_key])?,
            api_key,
        })
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let event = &message.event;
        let action = opsgenie_action(&event.kind);
        let (url, body) = if let Some(action) = action {
            let alias = short_key(&event.episode, ALIAS_MAX);
            let url = action_url(self.endpoint.url(), &alias, action);
            (url, opsgenie_action_body(event, wording))
        } else {
            let body = opsgenie_body(event, message.class, wording);
            (self.endpoint.url().clone(), body)
        };
        let call = Call::json(url, &event.key, body.to_string().into_bytes()).header(
            "authorization",
            &format!("GenieKey {}", self.api_key.reveal()),
        );
        let reply = self.endpoint.call(call, now_us).await?;
        if reply.is_success() || (action.is_some() && is_unknown_alert(&reply)) {
            return Ok(());
        }
        Err(self
            .endpoint
            .refused(&reply, explanation(&reply.body).as_bytes()))
    }
}

/// Returns the body that creates an alert, or adds to it: Opsgenie counts a second request with the
/// alias of an open alert as the same alert. The alias is the episode.
pub fn opsgenie_body(event: &Event, class: SinkClass, wording: &Wording) -> Value {
    let details = [
        ("key", Some(event.key.clone())),
        ("episode", Some(event.episode.clone())),
        ("kind", Some(event.kind.label())),
        ("participant", Some(event.participant.clone())),
        ("policy", event.policy.clone()),
        ("severity", Some(event.severity.to_string())),
        ("tokens_left", event.level.map(|level| level.to_string())),
        ("capacity", event.capacity.map(|tokens| tokens.to_string())),
        (
            "recovery_s",
            event
                .recovery_us
                .map(|us| us.div_ceil(1_000_000).to_string()),
        ),
        ("at", Some(rfc3339(event.at_us))),
        ("runbook", Some(wording.runbook(event))),
        ("dashboard", wording.dashboard(event)),
    ];
    let details: Map<String, Value> = details
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
        .collect();
    json!({
        "message": cut(&wording.title(event), MESSAGE_MAX),
        "alias": short_key(&event.episode, ALIAS_MAX),
        "description": cut(&wording.description(event), DESCRIPTION_MAX),
        "details": details,
        "entity": cut(&entity(event), ENTITY_MAX),
        "source": SOURCE,
        "priority": priority(event, class),
        "tags": ["balde", event.severity.name()],
    })
}

/// Returns what an event does to the alert that its episode has in Opsgenie, as the last part of the
/// URL; `None` if it creates or updates the alert.
pub const fn opsgenie_action(kind: &EventKind) -> Option<&'static str> {
    match kind {
        EventKind::Acknowledged { .. } => Some("acknowledge"),
        EventKind::Unacknowledged { .. } => Some("unacknowledge"),
        kind if kind.is_end() => Some("close"),
        _ => None,
    }
}

/// Returns the body of an action: who did it, and what it means.
pub fn opsgenie_action_body(event: &Event, wording: &Wording) -> Value {
    let user = match &event.kind {
        EventKind::Acknowledged { by, .. }
        | EventKind::Unacknowledged { by, .. }
        | EventKind::Closed { by, .. } => by,
        _ => SOURCE,
    };
    json!({
        "source": SOURCE,
        "user": cut(user, USER_MAX),
        "note": cut(&wording.description(event), NOTE_MAX),
    })
}

fn action_url(alerts: &Url, alias: &str, action: &str) -> Url {
    let mut url = alerts.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push(alias).push(action);
    }
    url.query_pairs_mut().append_pair("identifierType", "alias");
    url
}

/// Returns true if Opsgenie itself, not a proxy or another path, says that there is no such alert:
/// what does not exist need be neither closed nor acknowledged.
fn is_unknown_alert(reply: &Reply) -> bool {
    let body: Option<Value> = serde_json::from_slice(&reply.body).ok();
    reply.status == 404 && body.is_some_and(|body| body["requestId"].is_string())
}

/// Returns the message of an error, what is wrong with each field, and the id of the request, by which
/// Opsgenie's support finds it. A body that is no error of Opsgenie is returned as it is.
fn explanation(body: &[u8]) -> String {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(message) = parsed["message"].as_str() else {
        return String::from_utf8_lossy(body).into_owned();
    };
    let mut text = message.to_owned();
    for (field, error) in parsed["errors"].as_object().into_iter().flatten() {
        let error = error
            .as_str()
            .map_or_else(|| error.to_string(), str::to_owned);
        text = format!("{text} {field}: {error}");
    }
    if let Some(id) = parsed["requestId"].as_str() {
        text = format!("{text} (request {id})");
    }
    text
}

fn priority(event: &Event, class: SinkClass) -> &'static str {
    match (class, current_severity(event)) {
        (_, Severity::Normal) => "P5",
        (SinkClass::PageUrgent, _) | (_, Severity::Exhausted) => "P1",
        (SinkClass::Page, _) | (_, Severity::Critical) => "P2",
        (_, Severity::Warning) => "P3",
    }
}

fn entity(event: &Event) -> String {
    match &event.policy {
        Some(policy) => format!("{}/{policy}", event.participant),
        None => event.participant.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::text::tests::event;

    #[test]
    fn an_alert_has_the_episode_as_alias_and_is_closed_by_it() {
        let kind = EventKind::Raised {
            from: Severity::Warning,
            to: Severity::Exhausted,
        };
        let event = event(kind, Severity::Exhausted, 0);
        let body = opsgenie_body(&event, SinkClass::Page, &Wording::default());
        assert_eq!(body["alias"], "12345678/ENTRIES_WRITE/7/level-2");
        assert_eq!(body["priority"], "P1");
        assert_eq!(body["entity"], "12345678/ENTRIES_WRITE");
        assert_eq!(body["details"]["tokens_left"], "0");
        let url = Url::parse("https://api.eu.opsgenie.com/v2/alerts").unwrap();
        assert_eq!(
            action_url(&url, &event.episode, "close").as_str(),
            "https://api.eu.opsgenie.com/v2/alerts/12345678%2FENTRIES_WRITE%2F7%2Flevel-2/close\
             ?identifierType=alias"
        );
    }

    #[test]
    fn an_error_names_its_fields_and_the_request() {
        let body = br#"{"message":"Request body is not processable. Please check the errors.",
            "errors":{"message":"Message can not be empty."},"took":0.0,
            "requestId":"38c07793-91a3-4b7a-9e67-ef3d4c5f4a7e"}"#;
        assert_eq!(
            explanation(body),
            "Request body is not processable. Please check the errors. message: Message can not be \
             empty. (request 38c07793-91a3-4b7a-9e67-ef3d4c5f4a7e)"
        );
        assert_eq!(explanation(b"<html>Bad Gateway"), "<html>Bad Gateway");
    }
}
