//! Slack, through an incoming webhook.

use serde_json::{Value, json};

use super::config_error::SinkError;
use super::error::SendError;
use super::http::{HttpEndpoint, HttpSettings};
use super::secret::Secret;
use super::text::{Wording, fields};
use crate::alert::Event;
use crate::alert::OutboxMessage;

// Slack's documented maximum lengths, in characters.
const TEXT_MAX: usize = 3_000;
const HEADER_MAX: usize = 150;
const FIELD_MAX: usize = 2_000;

/// Posts messages to the channel of an incoming webhook. The URL of the webhook is the secret.
///
/// ```
/// use balde_monitor::sink::{HttpSettings, Sink, Slack};
///
/// let url = "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX";
/// let sink = Sink::Slack(Slack::new(url, &HttpSettings::default())?);
/// assert!(!format!("{sink:?}").contains("XXXX"));
/// # Ok::<(), balde_monitor::sink::SinkError>(())
/// ```
#[derive(Debug)]
pub struct Slack(HttpEndpoint);

impl Slack {
    /// Posts to the incoming webhook at `url`.
    pub fn new(url: impl Into<Secret>, settings: &HttpSettings) -> Result<Self, SinkError> {
        HttpEndpoint::new(&url.into(), settings, &[]).map(Self)
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let body = slack_body(&message.event, wording).to_string().into_bytes();
        self.0.post(&message.event.key, &[], body, now_us).await
    }
}

/// Returns the body of the message: the title as text for notifications, and blocks.
pub fn slack_body(event: &Event, wording: &Wording) -> Value {
    let fields: Vec<Value> = fields(event, wording)
        .into_iter()
        .map(|(name, value)| {
            let value = escaped(&value, FIELD_MAX - name.len() - 3);
            mrkdwn(&format!("*{name}*\n{value}"))
        })
        .collect();
    let mut context = vec![mrkdwn(&escaped(&event.key, FIELD_MAX))];
    if let Some(link) = wording.link(event) {
        context.push(mrkdwn(&format!("<{}|runbook>", escaped(&link, FIELD_MAX))));
    }
    if let Some(link) = wording.dashboard(event) {
        let name = wording.dashboard_word();
        context.push(mrkdwn(&format!("<{}|{name}>", escaped(&link, FIELD_MAX))));
    }
    json!({
        "text": escaped(&wording.title(event), TEXT_MAX),
        "blocks": [
            {
                "type": "header",
                "text": {
                    "type": "plain_text",
                    "text": escaped(&wording.title(event), HEADER_MAX),
                    "emoji": false,
                },
            },
            { "type": "section", "text": mrkdwn(&escaped(&wording.description(event), TEXT_MAX)) },
            { "type": "section", "fields": fields },
            { "type": "context", "elements": context },
        ],
    })
}

/// Returns a text object in which URLs and names do not become links and mentions.
fn mrkdwn(text: &str) -> Value {
    json!({ "type": "mrkdwn", "text": text, "verbatim": true })
}

/// Escapes the three characters that Slack interprets, and cuts the text between characters to the
/// maximum length. Slack does not document what it counts, so this counts UTF-16 code units.
fn escaped(text: &str, units_max: usize) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut units = 0;
    for c in text.chars() {
        let mut buffer = [0; 4];
        let piece = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            other => &*other.encode_utf8(&mut buffer),
        };
        let piece_units = piece.encode_utf16().count();
        // One unit is reserved for the ellipsis.
        if units + piece_units >= units_max {
            safe.push('…');
            break;
        }
        units += piece_units;
        safe.push_str(piece);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::EventKind;
    use crate::severity::Severity;
    use crate::sink::text::tests::{TEN_US, event};

    #[test]
    fn a_message_has_a_title_a_description_and_fields() {
        let since_us = TEN_US - 600_000_000;
        let event = event(EventKind::Reminder { since_us }, Severity::Critical, 3_600);
        let title = "STILL CRITICAL: ENTRIES_WRITE of 12345678, 3,600 of 36,000 tokens left (10 %)";
        let field = |text: &str| json!({ "type": "mrkdwn", "text": text, "verbatim": true });
        assert_eq!(
            slack_body(&event, &Wording::default()),
            json!({
                "text": title,
                "blocks": [
                    {
                        "type": "header",
                        "text": { "type": "plain_text", "text": title, "emoji": false },
                    },
                    {
                        "type": "section",
                        "text": field(
                            "Bucket ENTRIES_WRITE of participant 12345678 has been CRITICAL since \
                             2026-11-15 09:50:00 UTC. 3,600 of 36,000 tokens are left (10 %). Slow \
                             down the requests under this policy."
                        ),
                    },
                    {
                        "type": "section",
                        "fields": [
                            field("*Participant*\n12345678"),
                            field("*Policy*\nENTRIES_WRITE"),
                            field("*Severity*\nCRITICAL"),
                            field("*Tokens left*\n3,600 of 36,000 (10 %)"),
                            field("*Since*\n2026-11-15 09:50:00 UTC"),
                            field("*Time*\n2026-11-15 10:00:00 UTC"),
                        ],
                    },
                    {
                        "type": "context",
                        "elements": [field("12345678/ENTRIES_WRITE/7/3/reminder")],
                    },
                ],
            })
        );
    }

    #[test]
    fn names_cannot_mention_users_and_are_cut_between_characters() {
        assert_eq!(escaped("<!here> & co", 100), "&lt;!here&gt; &amp; co");
        assert_eq!(escaped("abcdef", 4), "abc…");
        assert_eq!(escaped("ab<", 6), "ab…");
        assert_eq!(escaped("😀😀😀", 6), "😀😀…");
        assert_eq!(escaped("", 6), "");
    }
}
