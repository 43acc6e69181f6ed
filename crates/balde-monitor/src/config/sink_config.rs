//! A sink as the file describes it, from which the sink is built.

use std::fmt;
use std::time::Duration;

use crate::alert::SinkClass;
use crate::sink::{
    Email, EmailSettings, HttpSettings, HttpTemplate, IncidentWebhook, KafkaSettings, KafkaTopic,
    LogSink, Opsgenie, PagerDuty, Secret, Sink, SinkError, Slack, Teams, TemplateSettings, Webhook,
};
#[cfg(feature = "pulsar")]
use crate::sink::{PulsarSettings, PulsarTopic};

/// A sink of alerts.
#[derive(Clone, Debug)]
pub struct SinkConfig {
    /// The name under which undelivered messages are stored; a renamed sink is a new sink.
    pub name: String,
    /// The kinds of notification that the sink receives.
    pub classes: Vec<SinkClass>,
    /// The receiver.
    pub kind: SinkKind,
    pub(super) connection: Connection,
}

#[derive(Clone, Default)]
pub(super) struct Connection {
    pub(super) timeout: Option<Duration>,
    pub(super) ca: Option<Vec<u8>>,
    pub(super) proxy: Option<Secret>,
}

/// A receiver of alerts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SinkKind {
    /// The log.
    Log,
    /// An HTTP endpoint that receives signed JSON.
    Webhook {
        /// The URL of the endpoint.
        url: Secret,
        /// The key that bodies are signed with.
        secret: Secret,
    },
    /// A Slack channel.
    Slack {
        /// The URL of the incoming webhook.
        url: Secret,
    },
    /// A `PagerDuty` service.
    PagerDuty {
        /// The URL of the Events API.
        url: Secret,
        /// The integration key of the service.
        routing_key: Secret,
        /// The secret of a webhook subscription (V3), by which its requests are known.
        webhook_secret: Option<Secret>,
    },
    /// An Opsgenie integration.
    Opsgenie {
        /// The URL of the Alert API.
        url: Secret,
        /// The API key of the integration.
        api_key: Secret,
    },
    /// A channel or chat of Microsoft Teams.
    Teams {
        /// The URL of the workflow.
        url: Secret,
    },
    /// E-mail.
    Email(EmailSettings),
    /// An HTTP API that gets a body made from a template.
    Http(TemplateSettings),
    /// A topic of Apache Kafka.
    Kafka(KafkaSettings),
    /// An HTTP endpoint that opens and closes incidents.
    Incident {
        /// The URL of the endpoint.
        url: Secret,
        /// The key that bodies are signed with.
        secret: Secret,
    },
    /// A topic of Apache Pulsar.
    Pulsar {
        /// The URL of the broker.
        url: Secret,
        /// The topic.
        topic: String,
        /// The token that the broker requires.
        token: Option<Secret>,
    },
}

impl SinkConfig {
    /// The log, which every monitor has.
    pub fn log() -> Self {
        Self {
            name: "log".to_owned(),
            classes: vec![SinkClass::Log],
            kind: SinkKind::Log,
            connection: Connection::default(),
        }
    }

    /// The secret of the receiver's webhooks, which report what people do there.
    pub(crate) fn webhook_secret(&self) -> Option<&Secret> {
        match &self.kind {
            SinkKind::PagerDuty { webhook_secret, .. } => webhook_secret.as_ref(),
            _ => None,
        }
    }

    /// Builds the sink.
    pub fn build(&self) -> Result<Sink, SinkError> {
        let mut http = HttpSettings::default();
        if let Some(timeout) = self.connection.timeout {
            http = http.timeout(timeout);
        }
        if let Some(ca) = &self.connection.ca {
            http = http.ca_pem(ca);
        }
        if let Some(proxy) = &self.connection.proxy {
            http = http.proxy(proxy.clone());
        }
        Ok(match &self.kind {
            SinkKind::Log => Sink::Log(LogSink),
            SinkKind::Webhook { url, secret } => {
                Sink::Webhook(Webhook::new(url.clone(), secret.clone(), &http)?)
            }
            SinkKind::Slack { url } => Sink::Slack(Slack::new(url.clone(), &http)?),
            SinkKind::PagerDuty {
                url, routing_key, ..
            } => Sink::PagerDuty(PagerDuty::at(url.clone(), routing_key.clone(), &http)?),
            SinkKind::Opsgenie { url, api_key } => {
                Sink::Opsgenie(Opsgenie::at(url.clone(), api_key.clone(), &http)?)
            }
            SinkKind::Teams { url } => Sink::Teams(Teams::new(url.clone(), &http)?),
            SinkKind::Email(settings) => Sink::Email(Email::new(settings.clone())?),
            SinkKind::Http(settings) => Sink::Http(HttpTemplate::new(settings.clone(), &http)?),
            SinkKind::Kafka(settings) => Sink::Kafka(KafkaTopic::new(settings.clone())?),
            SinkKind::Incident { url, secret } => {
                Sink::Incident(IncidentWebhook::new(url.clone(), secret.clone(), &http)?)
            }
            #[cfg(feature = "pulsar")]
            SinkKind::Pulsar { url, topic, token } => {
                let mut settings = PulsarSettings::new(url.clone(), topic);
                if let Some(token) = token {
                    settings = settings.token(token.clone());
                }
                if let Some(ca) = &self.connection.ca {
                    settings = settings.ca_pem(ca);
                }
                if let Some(timeout) = self.connection.timeout {
                    settings = settings.timeout(timeout);
                }
                Sink::Pulsar(PulsarTopic::new(settings)?)
            }
            #[cfg(not(feature = "pulsar"))]
            SinkKind::Pulsar { .. } => {
                let advice = "this build does not include Pulsar; build it with --features pulsar";
                return Err(SinkError::Setting { advice });
            }
        })
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
