//! Incidents, which the events of an episode open, update and close.

use serde_json::{Value, json};

use super::config_error::SinkError;
use super::error::SendError;
use super::event_json::event_json;
use super::http::HttpSettings;
use super::secret::Secret;
use super::text::{Wording, current_severity, rfc3339};
use super::webhook::SignedEndpoint;
use crate::alert::OutboxMessage;
use crate::alert::{Event, EventKind};

/// Posts incidents as signed JSON, as [`Webhook`](crate::sink::Webhook) does.
#[derive(Debug)]
pub struct IncidentWebhook(SignedEndpoint);

impl IncidentWebhook {
    /// Posts to `url` and signs with `secret`.
    pub fn new(
        url: impl Into<Secret>,
        secret: impl Into<Secret>,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        SignedEndpoint::new(&url.into(), secret.into(), settings).map(Self)
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let body = incident_body(&message.event, wording);
        self.0.post(&message.event.key, &body, now_us).await
    }
}

/// Returns the body for an event: the action, the incident, and the entry for its timeline. The
/// episode is the id of the incident.
///
/// Routes and silences decide which events are sent, so the first event of an episode that a receiver
/// gets may be of any kind. Any action but `closed` opens an incident that is not open yet.
pub fn incident_body(event: &Event, wording: &Wording) -> Value {
    let (action, status) = match &event.kind {
        EventKind::Raised { .. }
        | EventKind::Predicted { .. }
        | EventKind::Stale { .. }
        | EventKind::StorageFailed { .. }
        | EventKind::Changed(_)
        | EventKind::Test { .. } => ("opened", "open"),
        EventKind::Resolved { .. }
        | EventKind::ForecastOver { .. }
        | EventKind::Closed { .. }
        | EventKind::Fresh { .. }
        | EventKind::StorageRecovered { .. }
        | EventKind::TestOver { .. } => ("closed", "closed"),
        EventKind::Lowered { .. }
        | EventKind::Reminder { .. }
        | EventKind::StillStale { .. }
        | EventKind::Acknowledged { .. }
        | EventKind::Unacknowledged { .. }
        | EventKind::Silenced { .. }
        | EventKind::SilenceEnded { .. }
        | EventKind::StorageStillFailing { .. } => ("updated", "open"),
    };
    json!({
        "action": action,
        "incident": {
            "id": event.episode,
            "status": status,
            "title": wording.title(event),
            "participant": event.participant,
            "policy": event.policy,
            "severity": event.severity,
            "current_severity": current_severity(event),
        },
        "entry": {
            "id": event.key,
            "at": rfc3339(event.at_us),
            "text": wording.description(event),
        },
        "event": event_json(event, wording),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::ResolveReason;
    use crate::severity::Severity;
    use crate::sink::text::tests::event;

    #[test]
    fn an_incident_is_opened_updated_and_closed_under_one_id() {
        use Severity::{Critical, Exhausted};
        let opened = event(
            EventKind::Raised {
                from: Critical,
                to: Exhausted,
            },
            Exhausted,
            0,
        );
        assert_eq!(
            incident_body(&opened, &Wording::default()),
            json!({
                "action": "opened",
                "incident": {
                    "id": "12345678/ENTRIES_WRITE/7/level-2",
                    "status": "open",
                    "title": "EXHAUSTED: ENTRIES_WRITE of 12345678, 0 of 36,000 tokens left (0 %)",
                    "participant": "12345678",
                    "policy": "ENTRIES_WRITE",
                    "severity": "EXHAUSTED",
                    "current_severity": "EXHAUSTED",
                },
                "entry": {
                    "id": "12345678/ENTRIES_WRITE/7/3/raised-EXHAUSTED",
                    "at": "2026-11-15T10:00:00.000000Z",
                    "text": "Bucket ENTRIES_WRITE of participant 12345678 went from CRITICAL to \
                             EXHAUSTED at 2026-11-15 10:00:00 UTC. 0 of 36,000 tokens are left \
                             (0 %). Requests under this policy are rejected until it refills. Stop \
                             those that can wait.",
                },
                "event": event_json(&opened, &Wording::default()),
            })
        );
        let lowered = EventKind::Lowered {
            from: Exhausted,
            to: Critical,
        };
        let lowered = incident_body(&event(lowered, Exhausted, 2_000), &Wording::default());
        let resolved = EventKind::Resolved {
            from: Critical,
            reason: ResolveReason::Recovered,
        };
        let resolved = incident_body(&event(resolved, Exhausted, 30_000), &Wording::default());
        for (body, action, status, present) in [
            (lowered, "updated", "open", "CRITICAL"),
            (resolved, "closed", "closed", "NORMAL"),
        ] {
            assert_eq!(body["action"], action);
            assert_eq!(body["incident"]["id"], "12345678/ENTRIES_WRITE/7/level-2");
            assert_eq!(body["incident"]["status"], status);
            assert_eq!(body["incident"]["severity"], "EXHAUSTED");
            assert_eq!(body["incident"]["current_severity"], present);
        }
    }
}
