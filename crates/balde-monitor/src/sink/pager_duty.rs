//! `PagerDuty`, through the Events API v2.

use serde_json::{Value, json};

use super::config_error::SinkError;
use super::error::SendError;
use super::http::{HttpEndpoint, HttpSettings};
use super::secret::Secret;
use super::shorten::{cut, short_key};
use super::text::{Wording, current_severity, rfc3339};
use crate::alert::OutboxMessage;
use crate::alert::{Event, EventKind, SinkClass, Via};
use crate::severity::Severity;

/// The URL of the Events API. Accounts in Europe have another one.
pub const PAGER_DUTY_URL: &str = "https://events.pagerduty.com/v2/enqueue";

/// The longest summary that `PagerDuty` accepts, in characters.
pub const SUMMARY_MAX: usize = 1_024;

/// The longest `dedup_key` that `PagerDuty` accepts, in characters.
pub const DEDUP_KEY_MAX: usize = 255;

/// The length of every integration key.
const ROUTING_KEY_CHARS: usize = 32;

/// Triggers and resolves alerts of a `PagerDuty` service.
///
/// ```
/// use balde_monitor::sink::{HttpSettings, PagerDuty, Sink};
///
/// let routing_key = "0123456789abcdef0123456789abcdef";
/// let sink = Sink::PagerDuty(PagerDuty::new(routing_key, &HttpSettings::default())?);
/// assert!(!format!("{sink:?}").contains("0123"));
/// # Ok::<(), balde_monitor::sink::SinkError>(())
/// ```
#[derive(Debug)]
pub struct PagerDuty {
    endpoint: HttpEndpoint,
    routing_key: Secret,
}

impl PagerDuty {
    /// Sends to the service of `routing_key`, which is its integration key.
    pub fn new(routing_key: impl Into<Secret>, settings: &HttpSettings) -> Result<Self, SinkError> {
        Self::at(PAGER_DUTY_URL, routing_key, settings)
    }

    /// Sends to another URL than [`PAGER_DUTY_URL`].
    pub fn at(
        url: impl Into<Secret>,
        routing_key: impl Into<Secret>,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        let routing_key = routing_key.into();
        let is_key = |text: &str| {
            text.len() == ROUTING_KEY_CHARS && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !is_key(routing_key.reveal()) {
            let advice = "the PagerDuty routing key must be an integration key of 32 characters";
            return Err(SinkError::Secret { advice });
        }
        Ok(Self {
            endpoint: HttpEndpoint::new(&url.into(), settings, &[&routing_key])?,
            routing_key,
        })
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
        wording: &Wording,
    ) -> Result<(), SendError> {
        // PagerDuty knows already what it has reported itself.
        if message.event.kind.via() == Some(Via::PagerDuty) {
            return Ok(());
        }
        let body = pager_duty_body(&message.event, message.class, &self.routing_key, wording);
        let body = body.to_string().into_bytes();
        let key = &message.event.key;
        self.endpoint.post(key, &[], body, now_us).await
    }
}

/// Returns the body: `resolve` for an event that ends its episode, `acknowledge` for an acknowledgement,
/// `trigger` for any other. `PagerDuty` has no action that takes an acknowledgement back; the `trigger`
/// adds to the alert's log that somebody did. The
/// episode is the `dedup_key`, so that all events of an episode belong to one `PagerDuty` alert.
pub fn pager_duty_body(
    event: &Event,
    class: SinkClass,
    routing_key: &Secret,
    wording: &Wording,
) -> Value {
    let action = match event.kind {
        EventKind::Acknowledged { .. } => "acknowledge",
        _ if event.kind.is_end() => "resolve",
        _ => "trigger",
    };
    let source = match &event.policy {
        Some(policy) => format!("{}/{policy}", event.participant),
        None => event.participant.clone(),
    };
    let mut payload = json!({
        "summary": cut(&wording.title(event), SUMMARY_MAX),
        "source": source,
        "severity": severity(event, class),
        "timestamp": rfc3339(event.at_us),
        "group": event.participant,
        "class": class_of(event),
        "custom_details": details(event, wording),
    });
    if let Some(policy) = &event.policy {
        payload["component"] = policy.as_str().into();
    }
    let mut body = json!({
        "routing_key": routing_key.reveal(),
        "event_action": action,
        "dedup_key": dedup_key(&event.episode),
        "client": "balde monitor",
        "payload": payload,
    });
    let mut links = Vec::new();
    if let Some(link) = wording.link(event) {
        links.push(json!({ "href": link, "text": "runbook" }));
    }
    if let Some(link) = wording.dashboard(event) {
        links.push(json!({ "href": link, "text": wording.dashboard_word() }));
        body["client_url"] = link.into();
    }
    if !links.is_empty() {
        body["links"] = links.into();
    }
    body
}

/// Returns the severity of the class the event was routed as. Events that lower or end an alert have
/// the severity after the event.
fn severity(event: &Event, class: SinkClass) -> &'static str {
    let by_severity = match current_severity(event) {
        Severity::Normal => "info",
        Severity::Warning => "warning",
        Severity::Critical => "error",
        Severity::Exhausted => "critical",
    };
    let is_lowered = matches!(event.kind, EventKind::Lowered { .. });
    match class {
        _ if is_lowered || by_severity == "info" => by_severity,
        SinkClass::PageUrgent => "critical",
        SinkClass::Page => "error",
        _ => by_severity,
    }
}

/// Returns the `class` of the alert, which is the same for all events of an episode.
fn class_of(event: &Event) -> &'static str {
    match &event.kind {
        EventKind::Predicted { .. } | EventKind::ForecastOver { .. } => "forecast",
        EventKind::Stale { .. } | EventKind::StillStale { .. } | EventKind::Fresh { .. } => {
            "no data"
        }
        EventKind::Changed(_) => "limit change",
        EventKind::StorageFailed { .. }
        | EventKind::StorageStillFailing { .. }
        | EventKind::StorageRecovered { .. } => "monitor storage",
        EventKind::Test { .. } | EventKind::TestOver { .. } => "test",
        _ => "bucket level",
    }
}

/// Returns the `dedup_key` of an episode: the episode, or its SHA-256 if that is too long.
pub fn dedup_key(episode: &str) -> String {
    short_key(episode, DEDUP_KEY_MAX)
}

fn details(event: &Event, wording: &Wording) -> Value {
    let mut details = json!({
        "text": wording.description(event),
        "runbook": wording.runbook(event),
        "key": event.key,
        "episode": event.episode,
        "kind": event.kind.label(),
        "participant": event.participant,
        "policy": event.policy,
        "severity": event.severity,
        "tokens_left": event.level,
        "capacity": event.capacity,
    });
    if let Some(us) = event.recovery_us {
        details["recovery_s"] = us.div_ceil(1_000_000).into();
    }
    match &event.kind {
        EventKind::Reminder { since_us } => details["since"] = rfc3339(*since_us).into(),
        EventKind::Predicted { empty_at_us, .. } => {
            details["empty_at"] = rfc3339(*empty_at_us).into();
        }
        EventKind::Stale { newest_us, .. }
        | EventKind::StillStale { newest_us, .. }
        | EventKind::Fresh { newest_us } => {
            details["no_data_since"] = rfc3339(*newest_us).into();
        }
        _ => {}
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::{ForecastResult, ResolveReason};
    use crate::sink::text::tests::{TEN_US, event, participant_event};

    const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";

    fn body(event: &Event, class: SinkClass) -> Value {
        pager_duty_body(event, class, &Secret::new(ROUTING_KEY), &Wording::default())
    }

    #[test]
    fn a_page_has_title_description_and_details() {
        let kind = EventKind::Raised {
            from: Severity::Warning,
            to: Severity::Critical,
        };
        assert_eq!(
            body(&event(kind, Severity::Critical, 3_600), SinkClass::Page),
            json!({
                "routing_key": ROUTING_KEY,
                "event_action": "trigger",
                "dedup_key": "12345678/ENTRIES_WRITE/7/level-2",
                "client": "balde monitor",
                "payload": {
                    "summary": "CRITICAL: ENTRIES_WRITE of 12345678, 3,600 of 36,000 tokens left \
                                (10 %)",
                    "source": "12345678/ENTRIES_WRITE",
                    "severity": "error",
                    "timestamp": "2026-11-15T10:00:00.000000Z",
                    "component": "ENTRIES_WRITE",
                    "group": "12345678",
                    "class": "bucket level",
                    "custom_details": {
                        "text": "Bucket ENTRIES_WRITE of participant 12345678 went from WARNING to \
                                 CRITICAL at 2026-11-15 10:00:00 UTC. 3,600 of 36,000 tokens are \
                                 left (10 %). Slow down the requests under this policy.",
                        "runbook": "docs/runbook.md#dictbucketcritical",
                        "key": "12345678/ENTRIES_WRITE/7/3/raised-CRITICAL",
                        "episode": "12345678/ENTRIES_WRITE/7/level-2",
                        "kind": "raised-CRITICAL",
                        "participant": "12345678",
                        "policy": "ENTRIES_WRITE",
                        "severity": "CRITICAL",
                        "tokens_left": 3_600,
                        "capacity": 36_000,
                    },
                },
            })
        );
    }

    #[test]
    fn an_episode_is_one_alert_that_is_raised_lowered_and_resolved() {
        use Severity::{Critical, Exhausted, Warning};
        use SinkClass::{Event as Topic, Page, PageUrgent};
        let raised = |to| EventKind::Raised { from: Warning, to };
        let lowered = |to| EventKind::Lowered {
            from: Exhausted,
            to,
        };
        let resolved = EventKind::Resolved {
            from: Warning,
            reason: ResolveReason::Recovered,
        };
        let newest_us = TEN_US;
        let over = EventKind::ForecastOver {
            result: ForecastResult::Averted,
        };
        for (event, class, action, severity) in [
            (
                event(raised(Critical), Critical, 1),
                Page,
                "trigger",
                "error",
            ),
            (
                event(raised(Exhausted), Exhausted, 0),
                PageUrgent,
                "trigger",
                "critical",
            ),
            (
                event(lowered(Critical), Exhausted, 1),
                PageUrgent,
                "trigger",
                "error",
            ),
            (
                event(lowered(Warning), Exhausted, 1),
                PageUrgent,
                "trigger",
                "warning",
            ),
            (event(resolved, Exhausted, 1), PageUrgent, "resolve", "info"),
            (event(over, Warning, 1), Page, "resolve", "info"),
            (event(raised(Warning), Warning, 1), Page, "trigger", "error"),
            (
                event(raised(Warning), Warning, 1),
                Topic,
                "trigger",
                "warning",
            ),
            (
                participant_event(EventKind::Stale {
                    newest_us,
                    reason: None,
                }),
                Page,
                "trigger",
                "error",
            ),
            (
                participant_event(EventKind::StillStale {
                    newest_us,
                    reason: None,
                }),
                Page,
                "trigger",
                "error",
            ),
            (
                participant_event(EventKind::Fresh { newest_us }),
                Page,
                "resolve",
                "info",
            ),
        ] {
            let body = body(&event, class);
            let label = event.kind.label();
            assert_eq!(body["event_action"], action, "{label}");
            assert_eq!(body["payload"]["severity"], severity, "{label}");
            assert_eq!(body["dedup_key"], event.episode, "{label}");
        }
    }

    #[test]
    fn long_summaries_are_cut_and_long_keys_are_hashed() {
        let mut long = event(EventKind::Reminder { since_us: 0 }, Severity::Critical, 1);
        long.participant = "ç".repeat(1_100);
        long.episode = "e".repeat(256);
        let first = body(&long, SinkClass::Page);
        let summary = first["payload"]["summary"].as_str().unwrap();
        assert_eq!(summary.chars().count(), SUMMARY_MAX);
        let dedup_key = first["dedup_key"].as_str().unwrap();
        assert!(dedup_key.starts_with("sha256-") && dedup_key.len() == 71);
        long.kind = EventKind::Resolved {
            from: Severity::Critical,
            reason: ResolveReason::Recovered,
        };
        assert_eq!(body(&long, SinkClass::Page)["dedup_key"], dedup_key);
        long.episode.pop();
        assert_eq!(body(&long, SinkClass::Page)["dedup_key"], long.episode);
    }

    #[test]
    fn a_malformed_routing_key_is_rejected_without_repeating_it() {
        for key in ["", "short", "0123456789abcdef 123456789abcdef"] {
            let error = PagerDuty::new(key, &HttpSettings::default()).unwrap_err();
            assert!(error.to_string().contains("32 characters"), "{error}");
            assert!(key.is_empty() || !error.to_string().contains(key));
        }
    }
}
