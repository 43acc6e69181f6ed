//! A Slack channel, by its incoming webhook.

use serde_json::{Value, json};

use crate::alert::{Event, EventKind};
use crate::history::OutboxMessage;
use crate::sink::http::Receiver;
use crate::sink::text::{description, format_time, title, tokens};
use crate::sink::{HttpSettings, Secret, SendError, SinkError};

// What Slack publishes as limits of a message's parts, in characters.
const TEXT_MAX: usize = 3_000;
const HEADER_MAX: usize = 150;
const FIELD_MAX: usize = 2_000;

/// Posts messages to the channel of an incoming webhook, whose address is the secret.
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
pub struct Slack(Receiver);

impl Slack {
    /// Posts to the channel of `url`.
    pub fn new(url: impl Into<Secret>, settings: &HttpSettings) -> Result<Self, SinkError> {
        Receiver::new(&url.into(), settings, &[]).map(Self)
    }

    pub(crate) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
    ) -> Result<(), SendError> {
        let body = slack_body(&message.event).to_string().into_bytes();
        self.0.post(&message.event.key, &[], body, now_us).await
    }
}

/// The message: a text for notifications, and blocks for those who look.
pub fn slack_body(event: &Event) -> Value {
    let fields: Vec<Value> = fields(event)
        .into_iter()
        .map(|(name, value)| {
            let value = escaped(&value, FIELD_MAX - name.len() - 3);
            mrkdwn(&format!("*{name}*\n{value}"))
        })
        .collect();
    json!({
        "text": escaped(&title(event), TEXT_MAX),
        "blocks": [
            {
                "type": "header",
                "text": {
                    "type": "plain_text",
                    "text": escaped(&title(event), HEADER_MAX),
                    "emoji": false,
                },
            },
            { "type": "section", "text": mrkdwn(&escaped(&description(event), TEXT_MAX)) },
            { "type": "section", "fields": fields },
            { "type": "context", "elements": [mrkdwn(&escaped(&event.key, FIELD_MAX))] },
        ],
    })
}

/// What somebody on call looks for, at most eight things; Slack takes ten.
fn fields(event: &Event) -> Vec<(&'static str, String)> {
    let mut fields = vec![("Participant", event.participant.clone())];
    if let Some(policy) = &event.policy {
        fields.push(("Policy", policy.clone()));
    }
    fields.push(("Severity", event.severity.to_string()));
    if let Some(tokens) = tokens(event) {
        fields.push(("Tokens left", tokens));
    }
    match &event.kind {
        EventKind::Reminder { since_us } => fields.push(("Since", format_time(*since_us))),
        EventKind::Stale { newest_us } | EventKind::StillStale { newest_us } => {
            fields.push(("No data since", format_time(*newest_us)));
        }
        EventKind::Predicted { empty_at_us, .. } => {
            fields.push(("Empty at", format_time(*empty_at_us)))
        }
        _ => {}
    }
    fields.push(("Seen at", format_time(event.at_us)));
    fields
}

/// Text as it is: neither addresses nor names in it become links or mentions.
fn mrkdwn(text: &str) -> Value {
    json!({ "type": "mrkdwn", "text": text, "verbatim": true })
}

/// With the three characters replaced that Slack gives a meaning, and cut, between characters, to
/// what fits. Slack does not say what it counts; this counts the most that a character can be.
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
        // One is kept for the mark that something is missing.
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
    use crate::severity::Severity;
    use crate::sink::text::tests::{TEN_US, event};

    #[test]
    fn a_message_says_it_in_its_title_in_a_sentence_and_in_fields() {
        let since_us = TEN_US - 600_000_000;
        let event = event(EventKind::Reminder { since_us }, Severity::Critical, 3_600);
        let title = "STILL CRITICAL: 12345678 ENTRIES_WRITE, 3,600 of 36,000 (10 %) tokens left";
        let field = |text: &str| json!({ "type": "mrkdwn", "text": text, "verbatim": true });
        assert_eq!(
            slack_body(&event),
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
                            "ENTRIES_WRITE of participant 12345678 is CRITICAL since \
                             2026-11-15 09:50:00 UTC. 3,600 of 36,000 (10 %) tokens are left."
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
                            field("*Seen at*\n2026-11-15 10:00:00 UTC"),
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
    fn names_cannot_mention_anybody_and_are_cut_between_characters() {
        assert_eq!(escaped("<!here> & co", 100), "&lt;!here&gt; &amp; co");
        assert_eq!(escaped("abcdef", 4), "abc…");
        assert_eq!(escaped("ab<", 6), "ab…");
        assert_eq!(escaped("😀😀😀", 6), "😀😀…");
        assert_eq!(escaped("", 6), "");
    }
}
