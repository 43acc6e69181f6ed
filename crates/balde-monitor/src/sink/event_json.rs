//! The JSON of an event.

use serde::Serialize;

use super::text::{Wording, rfc3339};
use crate::alert::Event;

/// The fields of the event, its time as text, its title and its description.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    event: &'a Event,
    at: String,
    title: String,
    text: String,
    runbook: String,
    /// The bucket on the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    dashboard: Option<String>,
}

/// Returns the JSON of an event: the body of a webhook, the payload of a topic, and the `event` of an
/// incident.
pub fn event_json(event: &Event, wording: &Wording) -> serde_json::Value {
    let document = Document {
        event,
        at: rfc3339(event.at_us),
        title: wording.title(event),
        text: wording.description(event),
        runbook: wording.runbook(event),
        dashboard: wording.dashboard(event),
    };
    serde_json::to_value(document).expect("an event has only text keys and whole numbers")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::alert::EventKind;
    use crate::severity::Severity;
    use crate::sink::text::tests::event;

    #[test]
    fn the_json_has_the_fields_of_the_event_and_its_texts() {
        let kind = EventKind::Raised {
            from: Severity::Warning,
            to: Severity::Critical,
        };
        assert_eq!(
            event_json(&event(kind, Severity::Critical, 3_600), &Wording::default()),
            json!({
                "key": "12345678/ENTRIES_WRITE/7/3/raised-CRITICAL",
                "episode": "12345678/ENTRIES_WRITE/7/level-2",
                "participant": "12345678",
                "policy": "ENTRIES_WRITE",
                "at_us": 1_794_736_800_000_000_u64,
                "at": "2026-11-15T10:00:00.000000Z",
                "kind": { "type": "raised", "from": "WARNING", "to": "CRITICAL" },
                "severity": "CRITICAL",
                "level": 3_600,
                "capacity": 36_000,
                "recovery_us": null,
                "silenced_by": null,
                "title": "CRITICAL: ENTRIES_WRITE of 12345678, 3,600 of 36,000 tokens left (10 %)",
                "text": "Bucket ENTRIES_WRITE of participant 12345678 went from WARNING to CRITICAL \
                         at 2026-11-15 10:00:00 UTC. 3,600 of 36,000 tokens are left (10 %). Slow \
                         down the requests under this policy.",
                "runbook": "docs/runbook.md#dictbucketcritical",
            })
        );
    }
}
