//! Whoever keeps incidents: opened, updated and closed by the events of an episode.

use serde_json::{Value, json};

use crate::alert::{Event, Kind};
use crate::history::Letter;
use crate::sink::webhook::SignedPost;
use crate::sink::words::{headline, present_severity, rfc3339, sentence};
use crate::sink::{Failure, HttpSettings, Secret, SinkError, document};

/// Posts incidents as JSON, signed as [`Webhook`](crate::sink::Webhook) does.
#[derive(Debug)]
pub struct IncidentHook(SignedPost);

impl IncidentHook {
    /// Posts to `url`, signed with `secret`.
    pub fn new(
        url: impl Into<Secret>,
        secret: impl Into<Secret>,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        SignedPost::new(&url.into(), secret.into(), settings).map(Self)
    }

    pub(crate) async fn deliver(&self, letter: &Letter, now_us: u64) -> Result<(), Failure> {
        let body = incident_body(&letter.event);
        self.0.post(&letter.event.key, &body, now_us).await
    }
}

/// What an event does to its incident, which has the episode as its id, and the entry it adds to
/// the timeline.
///
/// Which events come is a matter of routes and silences, so the first that a receiver sees of an
/// episode may be any. Whatever is not `closed` opens an incident that is not open yet.
pub fn incident_body(event: &Event) -> Value {
    let (action, status) = match &event.kind {
        Kind::Raised { .. } | Kind::Predicted { .. } | Kind::Stale { .. } | Kind::Changed(_) => {
            ("opened", "open")
        }
        Kind::Resolved { .. } | Kind::ForecastOver { .. } | Kind::Fresh { .. } => {
            ("closed", "closed")
        }
        Kind::Lowered { .. } | Kind::Reminder { .. } | Kind::StillStale { .. } => {
            ("updated", "open")
        }
    };
    json!({
        "action": action,
        "incident": {
            "id": event.episode,
            "status": status,
            "title": headline(event),
            "participant": event.participant,
            "policy": event.policy,
            "severity": event.severity,
            "present_severity": present_severity(event),
        },
        "entry": {
            "id": event.key,
            "at": rfc3339(event.at_us),
            "text": sentence(event),
        },
        "event": document(event),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::Why;
    use crate::severity::Severity;
    use crate::sink::words::tests::event;

    #[test]
    fn an_incident_is_opened_updated_and_closed_under_one_id() {
        use Severity::{Critical, Exhausted};
        let opened = event(
            Kind::Raised {
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
                    "present_severity": "EXHAUSTED",
                },
                "entry": {
                    "id": "12345678/ENTRIES_WRITE/7/3/raised-EXHAUSTED",
                    "at": "2026-11-15T10:00:00.000000Z",
                    "text": "ENTRIES_WRITE of participant 12345678 went from CRITICAL to EXHAUSTED \
                             at 2026-11-15 10:00:00 UTC. 0 of 36,000 (0 %) tokens are left.",
                },
                "event": document(&opened),
            })
        );
        let lowered = Kind::Lowered {
            from: Exhausted,
            to: Critical,
        };
        let lowered = incident_body(&event(lowered, Exhausted, 2_000));
        let resolved = Kind::Resolved {
            from: Critical,
            why: Why::Recovered,
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
            assert_eq!(body["incident"]["present_severity"], present);
        }
    }
}
