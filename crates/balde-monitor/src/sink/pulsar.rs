//! A topic of Apache Pulsar.

use std::fmt;
use std::time::Duration;

use pulsar::error::{ConnectionError, ProducerError, ServiceDiscoveryError};
use pulsar::proto::ServerError;
use pulsar::routing_policy::RoutingPolicy;
use pulsar::{
    Authentication, ConnectionRetryOptions, OperationRetryOptions, Producer, ProducerOptions,
    Pulsar, TokioExecutor, producer,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::alert::Event;
use crate::history::OutboxMessage;
use crate::http_client::install_crypto_provider;
use crate::sink::error::ANSWER_CHARS_MAX;
use crate::sink::http::{TIMEOUT_DEFAULT, certificates, checked_timeout};
use crate::sink::{Secret, SendError, SendErrorKind, SinkError, event_json};

/// The longest name of a topic, in bytes.
const TOPIC_BYTES_MAX: usize = 512;

/// Which topic of which broker.
#[derive(Clone)]
#[must_use = "settings do nothing until a sink is made with them"]
pub struct PulsarSettings {
    url: Secret,
    topic: String,
    token: Option<Secret>,
    ca_pem: Option<Vec<u8>>,
    timeout: Duration,
}

impl PulsarSettings {
    /// The topic, such as `persistent://public/default/balde-alerts`, at the broker of a
    /// `pulsar://` or `pulsar+ssl://` URL.
    pub fn new(url: impl Into<Secret>, topic: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            topic: topic.into(),
            token: None,
            ca_pem: None,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    /// Who this is: a JSON web token. Nobody in particular unless told so.
    pub fn token(mut self, token: impl Into<Secret>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Whom to trust besides the well-known authorities: certificates as PEM.
    pub fn ca_pem(mut self, pem: &[u8]) -> Self {
        self.ca_pem = Some(pem.to_vec());
        self
    }

    /// How long one attempt may take in all, connecting included; ten seconds unless told otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl fmt::Debug for PulsarSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PulsarSettings")
            .field("topic", &self.topic)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Produces events to a topic, each delivered when the broker has confirmed it.
pub struct PulsarTopic {
    settings: PulsarSettings,
    line: Box<Mutex<Line>>,
}

/// The connection, made when it is first needed and again after every failure. Counted, so that of
/// several messages that failed together only the first gives it up.
#[derive(Default)]
struct Line {
    producer: Option<Producer<TokioExecutor>>,
    made: u64,
}

impl PulsarTopic {
    /// The sink, or what is wrong. Whether the broker is there does not matter yet.
    pub fn new(settings: PulsarSettings) -> Result<Self, SinkError> {
        let url = settings.url.reveal();
        let broker = ["pulsar://", "pulsar+ssl://"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme));
        if broker.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            let advice = "Pulsar's address must be a pulsar:// or pulsar+ssl:// URL";
            return Err(SinkError::Url { advice });
        }
        let topic = &settings.topic;
        if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX || topic.contains(char::is_whitespace)
        {
            let advice = "a topic is called, for example, persistent://public/default/balde-alerts";
            return Err(SinkError::Setting { advice });
        }
        if settings
            .token
            .as_ref()
            .is_some_and(|token| token.reveal().is_empty())
        {
            let advice = "Pulsar's token is empty; leave it out or give one";
            return Err(SinkError::Secret { advice });
        }
        if let Some(pem) = &settings.ca_pem {
            certificates(pem)?;
        }
        checked_timeout(settings.timeout)?;
        install_crypto_provider();
        Ok(Self {
            settings,
            line: Box::default(),
        })
    }

    pub(crate) async fn deliver(&self, message: &OutboxMessage) -> Result<(), SendError> {
        let mut made = 0;
        // The client's own backoff is without end; this is what keeps it to ours.
        let sending = Box::pin(self.send(&message.event, &mut made));
        let sent = timeout(self.settings.timeout, sending).await;
        let failure = match sent {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => self.failure(&error),
            Err(_) => SendError::new(SendErrorKind::Timeout),
        };
        // Whoever holds it now will find out by themselves.
        if let Ok(mut line) = self.line.try_lock()
            && line.made == made
        {
            line.producer = None;
        }
        Err(failure)
    }

    /// Sends and waits for the receipt; others may send while this one waits.
    async fn send(&self, event: &Event, made: &mut u64) -> Result<(), pulsar::Error> {
        let receipt = {
            let mut line = self.line.lock().await;
            let mut producer = if let Some(producer) = line.producer.take() {
                producer
            } else {
                let producer = Box::pin(self.connect()).await?;
                line.made += 1;
                producer
            };
            *made = line.made;
            // Not put back if this fails or is given up: nobody knows what state it is in then.
            let receipt = Box::pin(producer.send_non_blocking(message(event))).await?;
            line.producer = Some(producer);
            receipt
        };
        receipt.await.map(drop)
    }

    async fn connect(&self) -> Result<Producer<TokioExecutor>, pulsar::Error> {
        let settings = &self.settings;
        // Failures are told at once: waiting and trying again is the worker's work.
        let mut builder = Pulsar::builder(settings.url.reveal(), TokioExecutor)
            .with_connection_retry_options(ConnectionRetryOptions {
                max_retries: 0,
                connection_timeout: settings.timeout,
                ..ConnectionRetryOptions::default()
            })
            .with_operation_retry_options(OperationRetryOptions {
                operation_timeout: settings.timeout,
                retry_delay: Duration::from_millis(100),
                max_retries: Some(0),
            });
        if let Some(token) = &settings.token {
            builder = builder.with_auth(Authentication {
                name: "token".to_owned(),
                data: token.reveal().as_bytes().to_vec(),
            });
        }
        if let Some(pem) = &settings.ca_pem {
            builder = builder.with_certificate_chain(pem.clone());
        }
        let client = builder.build().await?;
        // Without this policy the client goes round the partitions whatever a message's key is.
        let options = ProducerOptions {
            routing_policy: Some(RoutingPolicy::RoundRobin),
            ..ProducerOptions::default()
        };
        let producer = client.producer().with_topic(&settings.topic);
        Box::pin(producer.with_options(options).build()).await
    }

    fn failure(&self, error: &pulsar::Error) -> SendError {
        let mut why = error.to_string();
        let token = self.settings.token.as_ref().map(Secret::reveal);
        for secret in token.into_iter().chain([self.settings.url.reveal()]) {
            why = why.replace(secret, "***");
        }
        let why = why.chars().take(ANSWER_CHARS_MAX).collect();
        SendError::new(if is_refusal(error) {
            SendErrorKind::Rejected { why }
        } else {
            SendErrorKind::Unreachable { why }
        })
    }
}

impl fmt::Debug for PulsarTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PulsarTopic").field(&self.settings).finish()
    }
}

/// The event as a message. All events of a bucket have one key, so they stay in order in one
/// partition.
fn message(event: &Event) -> producer::Message {
    let partition_key = match &event.policy {
        Some(policy) => format!("{}/{policy}", event.participant),
        None => event.participant.clone(),
    };
    let properties = [
        ("key", event.key.clone()),
        ("episode", event.episode.clone()),
        ("kind", event.kind.label()),
        ("severity", event.severity.to_string()),
    ];
    producer::Message {
        payload: event_json(event).to_string().into_bytes(),
        properties: properties
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        partition_key: Some(partition_key),
        event_time: Some(event.at_us / 1_000),
        ..producer::Message::default()
    }
}

/// Whether the broker is there and will not have it, now or later.
fn is_refusal(error: &pulsar::Error) -> bool {
    let code = match error {
        pulsar::Error::Authentication(_) => return true,
        pulsar::Error::Connection(error)
        | pulsar::Error::Producer(ProducerError::Connection(error))
        | pulsar::Error::ServiceDiscovery(ServiceDiscoveryError::Connection(error)) => {
            match error {
                ConnectionError::Authentication(_) => return true,
                ConnectionError::PulsarError(code, _) => *code,
                _ => None,
            }
        }
        pulsar::Error::ServiceDiscovery(ServiceDiscoveryError::Query(code, _)) => *code,
        _ => None,
    };
    matches!(
        code,
        Some(
            ServerError::AuthenticationError
                | ServerError::AuthorizationError
                | ServerError::InvalidTopicName
                | ServerError::TopicNotFound
                | ServerError::TopicTerminatedError
                | ServerError::IncompatibleSchema
                | ServerError::NotAllowedError
                | ServerError::UnsupportedVersionError
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::EventKind;
    use crate::severity::Severity;
    use crate::sink::text::tests::{TEN_US, event, participant_event};

    #[test]
    fn a_message_carries_the_document_and_is_kept_in_order_by_its_bucket() {
        let kind = EventKind::Reminder { since_us: TEN_US };
        let event = event(kind, Severity::Critical, 1);
        let message = message(&event);
        let payload: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!(payload, event_json(&event));
        assert_eq!(
            message.partition_key.as_deref(),
            Some("12345678/ENTRIES_WRITE")
        );
        assert_eq!(message.event_time, Some(TEN_US / 1_000));
        for (name, value) in [
            ("key", "12345678/ENTRIES_WRITE/7/3/reminder"),
            ("episode", "12345678/ENTRIES_WRITE/7/level-2"),
            ("kind", "reminder"),
            ("severity", "CRITICAL"),
        ] {
            assert_eq!(message.properties[name], value);
        }
        assert_eq!(message.properties.len(), 4);
        let stale = super::message(&participant_event(EventKind::Fresh { newest_us: 0 }));
        assert_eq!(stale.partition_key.as_deref(), Some("12345678"));
    }

    #[test]
    fn settings_that_cannot_work_are_refused_and_shown_without_secrets() {
        let good = || PulsarSettings::new("pulsar://broker:6650", "balde").token("secret-token");
        assert!(!format!("{:?}", PulsarTopic::new(good()).unwrap()).contains("secret"));
        for (settings, expected) in [
            (
                PulsarSettings::new("http://broker:6650", "balde"),
                "pulsar://",
            ),
            (PulsarSettings::new("pulsar://", "balde"), "pulsar://"),
            (PulsarSettings::new("pulsar://broker:6650", ""), "topic"),
            (good().token(""), "token is empty"),
            (good().ca_pem(b"no certificate"), "PEM"),
            (good().timeout(Duration::ZERO), "timeout"),
        ] {
            let error = PulsarTopic::new(settings).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_broker_that_refuses_is_told_from_one_that_is_away() {
        let refused = |code| {
            let error = ConnectionError::PulsarError(Some(code), None);
            is_refusal(&pulsar::Error::Producer(ProducerError::Connection(error)))
        };
        assert!(refused(ServerError::AuthorizationError));
        assert!(!refused(ServerError::ServiceNotReady));
        assert!(!is_refusal(&ConnectionError::Disconnected.into()));
    }
}
