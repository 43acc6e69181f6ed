//! Whoever keeps incidents: opened, updated and closed by the events of an episode.

use serde_json::{Value, json};

use crate::alert::{Event, EventKind};
use crate::history::OutboxMessage;
use crate::sink::text::{current_severity, description, rfc3339, title};
use crate::sink::webhook::SignedPost;
use crate::sink::{HttpSettings, Secret, SendError, SinkError, event_json};

/// Posts incidents as JSON, signed as [`Webhook`](crate::sink::Webhook) does.
#[derive(Debug)]
pub struct IncidentWebhook(SignedPost);

impl IncidentWebhook {
    /// Posts to `url`, signed with `secret`.
    pub fn new(
        url: impl Into<Secret>,
        secret: impl Into<Secret>,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        SignedPost::new(&url.into(), secret.into(), settings).map(Self)
    }

    pub(crate) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
    ) -> Result<(), SendError> {
        let body = incident_body(&message.event);
        self.0.post(&message.event.key, &body, now_us).await
    }
}

/// What an event does to its incident, which has the episode as its id, and the entry it adds to
/// the timeline.
///
/// Which events come is a matter of routes and silences, so the first that a receiver sees of an
/// episode may be any. Whatever is not `closed` opens an incident that is not open yet.
pub fn incident_body(event: &Event) -> Value {
    let (action, status) = match &event.kind {
        EventKind::Raised { .. }
        | EventKind::Predicted { .. }
        | EventKind::Stale { .. }
        | EventKind::Changed(_) => ("opened", "open"),
        EventKind::Resolved { .. } | EventKind::ForecastOver { .. } | EventKind::Fresh { .. } => {
            ("closed", "closed")
        }
        EventKind::Lowered { .. } | EventKind::Reminder { .. } | EventKind::StillStale { .. } => {
            ("updated", "open")
        }
    };
    json!({
        "action": action,
        "incident": {
            "id": event.episode,
            "status": status,
            "title": title(event),
            "participant": event.participant,
            "policy": event.policy,
            "severity": event.severity,
            "current_severity": current_severity(event),
        },
        "entry": {
            "id": event.key,
            "at": rfc3339(event.at_us),
            "text": description(event),
        },
        "event": event_json(event),
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
            incident_body(&opened),
            json!({
                "action": "opened",
                "incident": {
                    "id": "12345678/ENTRIES_WRITE/7/level-2",
                    "status": "open",
                    "title": "EXHAUSTED: 12345678 ENTRIES_WRITE, 0 of 36,000 (0 %) tokens left",
                    "participant": "12345678",
                    "policy": "ENTRIES_WRITE",
                    "severity": "EXHAUSTED",
                    "current_severity": "EXHAUSTED",
                },
                "entry": {
                    "id": "12345678/ENTRIES_WRITE/7/3/raised-EXHAUSTED",
                    "at": "2026-11-15T10:00:00.000000Z",
                    "text": "ENTRIES_WRITE of participant 12345678 went from CRITICAL to EXHAUSTED \
                             at 2026-11-15 10:00:00 UTC. 0 of 36,000 (0 %) tokens are left.",
                },
                "event": event_json(&opened),
            })
        );
        let lowered = EventKind::Lowered {
            from: Exhausted,
            to: Critical,
        };
        let lowered = incident_body(&event(lowered, Exhausted, 2_000));
        let resolved = EventKind::Resolved {
            from: Critical,
            reason: ResolveReason::Recovered,
        };
        let resolved = incident_body(&event(resolved, Exhausted, 30_000));
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
