//! Any kind of sink.

use super::error::SendError;
use super::incident::IncidentWebhook;
use super::log::LogSink;
use super::pager_duty::PagerDuty;
#[cfg(feature = "pulsar")]
use super::pulsar::PulsarTopic;
use super::slack::Slack;
use super::text::Wording;
use super::webhook::Webhook;
use crate::history::OutboxMessage;

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
    /// An incident management system.
    Incident(IncidentWebhook),
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
            Self::Incident(webhook) => webhook.deliver(message, now_us, wording).await,
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
            Self::Incident(_) => "incident",
            #[cfg(feature = "pulsar")]
            Self::Pulsar(_) => "pulsar",
        }
    }
}
