//! Sinks: the receivers of alerts, such as the log, webhooks, e-mail, Slack and `PagerDuty`.
//!
//! A sink makes one attempt to deliver one message. It does not retry and does not access the database;
//! [`delivery`](crate::delivery) does that. The body of every format is a pure function of the event.
//!
//! Secrets, such as the URL of an incoming webhook, never appear in errors, logs or `Debug` output.

mod config_error;
mod email;
mod error;
mod event_json;
mod hex;
mod http;
mod incident;
mod kafka;
mod log;
mod opsgenie;
mod pager_duty;
#[cfg(feature = "pulsar")]
mod pulsar;
mod secret;
mod shorten;
mod signature;
mod slack;
mod target;
mod teams;
mod template;
mod text;
mod webhook;

pub use config_error::SinkError;
pub use email::{Email, EmailSettings, RECIPIENTS_MAX, email_text};
pub use error::{RESPONSE_CHARS_MAX, RETRY_AFTER_MAX, SendError, SendErrorKind};
pub use event_json::event_json;
pub use http::{HttpSettings, RESPONSE_BYTES_MAX, TIMEOUT_DEFAULT, TIMEOUT_MAX};
pub use incident::{IncidentWebhook, incident_body};
pub use kafka::{KafkaSettings, KafkaTopic, SaslMechanism};
pub use log::LogSink;
pub use opsgenie::{OPSGENIE_URL, Opsgenie, opsgenie_action, opsgenie_action_body, opsgenie_body};
pub use pager_duty::{
    DEDUP_KEY_MAX, PAGER_DUTY_URL, PagerDuty, SUMMARY_MAX, dedup_key, pager_duty_body,
};
#[cfg(feature = "pulsar")]
pub use pulsar::{PulsarSettings, PulsarTopic};
pub use secret::Secret;
pub use signature::{SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};
pub use slack::{Slack, slack_body};
pub use target::Sink;
pub use teams::{Teams, teams_body};
pub use template::{BODY_BYTES_MAX, HEADERS_MAX, HttpTemplate, TemplateSettings, template_values};
#[cfg(test)]
pub(crate) use text::tests as test_events;
pub use text::{Language, Wording, current_severity, description, format_time, title};
pub use webhook::Webhook;
