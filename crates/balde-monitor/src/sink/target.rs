//! Any kind of sink.

use super::email::Email;
use super::error::SendError;
use super::incident::IncidentWebhook;
use super::kafka::KafkaTopic;
use super::log::LogSink;
use super::opsgenie::Opsgenie;
use super::pager_duty::PagerDuty;
#[cfg(feature = "pulsar")]
use super::pulsar::PulsarTopic;
use super::slack::Slack;
use super::teams::Teams;
use super::template::HttpTemplate;
use super::text::Wording;
use super::webhook::Webhook;
use crate::alert::OutboxMessage;

/// A receiver of alerts.
#[derive(Debug)]
#[non_exhaustive]
pub enum Sink {
    /// The log of this process.
    Log(LogSink),
    /// A webhook that gets signed JSON.
    Webhook(Webhook),
    /// A Slack channel.
    Slack(Slack),
    /// A `PagerDuty` service.
    PagerDuty(PagerDuty),
    /// An Opsgenie integration.
    Opsgenie(Opsgenie),
    /// A channel or chat of Microsoft Teams.
    Teams(Teams),
    /// E-mail.
    Email(Email),
    /// An incident management system.
    Incident(IncidentWebhook),
    /// Any HTTP API, with a body made from a template.
    Http(HttpTemplate),
    /// A topic of Apache Kafka.
    Kafka(KafkaTopic),
    /// A topic of Apache Pulsar.
    #[cfg(feature = "pulsar")]
    Pulsar(PulsarTopic),
}

impl Sink {
    /// Makes one attempt to deliver a message. The caller decides whether to retry.
    pub async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
        wording: &Wording,
    ) -> Result<(), SendError> {
        match self {
            Self::Log(LogSink) => {
                LogSink::deliver(message, wording);
                Ok(())
            }
            Self::Webhook(webhook) => webhook.deliver(message, now_us, wording).await,
            Self::Slack(slack) => slack.deliver(message, now_us, wording).await,
            Self::PagerDuty(pager) => pager.deliver(message, now_us, wording).await,
            Self::Opsgenie(opsgenie) => opsgenie.deliver(message, now_us, wording).await,
            Self::Teams(teams) => teams.deliver(message, now_us, wording).await,
            Self::Email(email) => email.deliver(message, wording).await,
            Self::Incident(webhook) => webhook.deliver(message, now_us, wording).await,
            Self::Http(template) => template.deliver(message, now_us, wording).await,
            Self::Kafka(topic) => topic.deliver(message, wording).await,
            #[cfg(feature = "pulsar")]
            Self::Pulsar(topic) => topic.deliver(message, wording).await,
        }
    }

    /// Returns the kind of the sink, for labels and messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Log(_) => "log",
            Self::Webhook(_) => "webhook",
            Self::Slack(_) => "slack",
            Self::PagerDuty(_) => "pagerduty",
            Self::Opsgenie(_) => "opsgenie",
            Self::Teams(_) => "teams",
            Self::Email(_) => "email",
            Self::Incident(_) => "incident",
            Self::Http(_) => "http",
            Self::Kafka(_) => "kafka",
            #[cfg(feature = "pulsar")]
            Self::Pulsar(_) => "pulsar",
        }
    }
}
