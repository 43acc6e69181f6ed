//! Where alerts go: one attempt to deliver one message, and what came of it.
//!
//! A sink knows its format and its receiver. It does not know the database, does not retry and does
//! not wait: that is [`delivery`](crate::delivery)'s work. Every format is a pure function from the
//! event to the body, so what a receiver gets for an event can be read in a test.
//!
//! Secrets (the address of an incoming webhook holds one) are in no message, log line or `Debug`.

mod error;
mod event_json;
mod http;
mod incident;
mod log;
mod pager_duty;
#[cfg(feature = "pulsar")]
mod pulsar;
mod secret;
mod signature;
mod slack;
mod text;
mod webhook;

pub use error::{ANSWER_CHARS_MAX, RETRY_AFTER_MAX, SendError, SendErrorKind};
pub use event_json::event_json;
pub use http::{ANSWER_BYTES_MAX, HttpSettings, TIMEOUT_DEFAULT, TIMEOUT_MAX};
pub use incident::{IncidentWebhook, incident_body};
pub use log::LogSink;
pub use pager_duty::{DEDUP_KEY_MAX, PAGER_DUTY_URL, PagerDuty, SUMMARY_MAX, pager_duty_body};
#[cfg(feature = "pulsar")]
pub use pulsar::{PulsarSettings, PulsarTopic};
pub use secret::Secret;
pub use signature::{SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};
pub use slack::{Slack, slack_body};
pub use text::{current_severity, description, format_time, title};
pub use webhook::Webhook;

use std::fmt;

use crate::history::OutboxMessage;

/// A place where alerts go.
#[derive(Debug)]
#[non_exhaustive]
pub enum Sink {
    /// The log.
    Log(LogSink),
    /// Any receiver of signed JSON.
    Webhook(Webhook),
    /// A Slack channel.
    Slack(Slack),
    /// A `PagerDuty` service.
    PagerDuty(PagerDuty),
    /// Whoever keeps incidents.
    Incident(IncidentWebhook),
    /// A topic of Apache Pulsar.
    #[cfg(feature = "pulsar")]
    Pulsar(PulsarTopic),
}

impl Sink {
    /// Delivers one message, once, at `now_us`. Whether to try again is for the caller to decide.
    pub async fn deliver(&self, message: &OutboxMessage, now_us: u64) -> Result<(), SendError> {
        match self {
            Self::Log(LogSink) => {
                LogSink::deliver(message);
                Ok(())
            }
            Self::Webhook(webhook) => webhook.deliver(message, now_us).await,
            Self::Slack(slack) => slack.deliver(message, now_us).await,
            Self::PagerDuty(pager) => pager.deliver(message, now_us).await,
            Self::Incident(hook) => hook.deliver(message, now_us).await,
            #[cfg(feature = "pulsar")]
            Self::Pulsar(topic) => topic.deliver(message).await,
        }
    }

    /// What kind of sink it is, for labels and messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Log(_) => "log",
            Self::Webhook(_) => "webhook",
            Self::Slack(_) => "slack",
            Self::PagerDuty(_) => "pagerduty",
            Self::Incident(_) => "incident",
            #[cfg(feature = "pulsar")]
            Self::Pulsar(_) => "pulsar",
        }
    }
}

/// Why a sink could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SinkError {
    /// An address is none, or not of a kind that this sink can use.
    Url {
        /// What it must be.
        advice: &'static str,
    },
    /// A secret is missing or cannot be one.
    Secret {
        /// Which, and what it must be.
        advice: &'static str,
    },
    /// A certificate cannot be read.
    Tls {
        /// What is wrong.
        why: String,
    },
    /// A timeout or a name that makes no sense.
    Setting {
        /// Which, and what it must be.
        advice: &'static str,
    },
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { advice } | Self::Secret { advice } | Self::Setting { advice } => {
                f.write_str(advice)
            }
            Self::Tls { why } => write!(f, "TLS cannot be set up: {why}"),
        }
    }
}

impl std::error::Error for SinkError {}
