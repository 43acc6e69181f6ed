//! Microsoft Teams, through a webhook of the Workflows app.

use serde_json::{Value, json};

use super::config_error::SinkError;
use super::error::SendError;
use super::http::{HttpEndpoint, HttpSettings};
use super::secret::Secret;
use super::shorten::cut;
use super::text::{Wording, current_severity, fields};
use crate::alert::Event;
use crate::alert::OutboxMessage;
use crate::severity::Severity;

/// The most characters of a title. Teams rejects messages of more than 28 KB.
const TITLE_MAX: usize = 500;
const TEXT_MAX: usize = 3_000;
const FIELD_MAX: usize = 300;

/// Posts adaptive cards to the channel or chat of a workflow. The URL of the workflow is the secret.
///
/// ```
/// use balde_monitor::sink::{HttpSettings, Sink, Teams};
///
/// let url = "https://prod-1.example.logic.azure.com/workflows/x/triggers/manual/paths/invoke?sig=XXXX";
/// let sink = Sink::Teams(Teams::new(url, &HttpSettings::default())?);
/// assert!(!format!("{sink:?}").contains("XXXX"));
/// # Ok::<(), balde_monitor::sink::SinkError>(())
/// ```
#[derive(Debug)]
pub struct Teams(HttpEndpoint);

impl Teams {
    /// Posts to the workflow at `url`.
    pub fn new(url: impl Into<Secret>, settings: &HttpSettings) -> Result<Self, SinkError> {
        HttpEndpoint::new(&url.into(), settings, &[]).map(Self)
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let body = teams_body(&message.event, wording).to_string().into_bytes();
        self.0.post(&message.event.key, &[], body, now_us).await
    }
}

/// Returns the body: a message with one adaptive card. Its texts are text runs, in which Teams does
/// not interpret Markdown: the names of policies have underscores.
pub fn teams_body(event: &Event, wording: &Wording) -> Value {
    let title = cut(&wording.title(event), TITLE_MAX);
    let mut rows = vec![
        json!({
            "type": "RichTextBlock",
            "inlines": [{
                "type": "TextRun",
                "text": title,
                "weight": "bolder",
                "size": "medium",
                "color": color(event),
            }],
        }),
        paragraph(&[run(&cut(&wording.description(event), TEXT_MAX))]),
    ];
    for (name, value) in fields(event, wording) {
        let mut name = run(&format!("{name}: "));
        name["weight"] = "bolder".into();
        rows.push(paragraph(&[name, run(&cut(&value, FIELD_MAX))]));
    }
    let mut key = run(&cut(&event.key, FIELD_MAX));
    key["size"] = "small".into();
    key["isSubtle"] = true.into();
    rows.push(paragraph(&[key]));
    let mut card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": { "width": "Full" },
        "body": rows,
    });
    let open =
        |title: &str, url: String| json!({ "type": "Action.OpenUrl", "title": title, "url": url });
    let mut actions = Vec::new();
    if let Some(link) = wording.link(event) {
        actions.push(open("Runbook", link));
    }
    if let Some(link) = wording.dashboard(event) {
        actions.push(open(wording.dashboard_word(), link));
    }
    if !actions.is_empty() {
        card["actions"] = actions.into();
    }
    json!({
        "type": "message",
        "summary": title,
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": card,
        }],
    })
}

fn paragraph(inlines: &[Value]) -> Value {
    json!({ "type": "RichTextBlock", "inlines": inlines, "spacing": "small" })
}

fn run(text: &str) -> Value {
    json!({ "type": "TextRun", "text": text })
}

fn color(event: &Event) -> &'static str {
    match current_severity(event) {
        Severity::Normal => "good",
        Severity::Warning => "warning",
        Severity::Critical | Severity::Exhausted => "attention",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::EventKind;
    use crate::sink::text::tests::{TEN_US, event};

    #[test]
    fn a_card_has_a_title_a_description_fields_and_the_runbook() {
        let kind = EventKind::Reminder { since_us: TEN_US };
        let event = event(kind, Severity::Critical, 3_600);
        let wording = Wording::default().runbook_url("https://wiki.example/runbook");
        let body = teams_body(&event, &wording);
        let card = &body["attachments"][0]["content"];
        let text = |row: usize, run: usize| card["body"][row]["inlines"][run]["text"].clone();
        assert_eq!(text(0, 0), body["summary"]);
        assert_eq!(
            text(0, 0),
            "STILL CRITICAL: ENTRIES_WRITE of 12345678, 3,600 of 36,000 tokens left (10 %)"
        );
        assert_eq!(card["body"][0]["inlines"][0]["color"], "attention");
        assert_eq!(
            (text(2, 0), text(2, 1)),
            ("Participant: ".into(), "12345678".into())
        );
        assert_eq!(text(8, 0), "12345678/ENTRIES_WRITE/7/3/reminder");
        assert_eq!(
            card["actions"][0]["url"],
            "https://wiki.example/runbook#dictbucketcritical"
        );
    }
}
