//! Apache Pulsar.

use std::fmt;
use std::time::Duration;

use balde_net::tls::install_crypto_provider;
use pulsar::error::{ConnectionError, ProducerError, ServiceDiscoveryError};
use pulsar::proto::ServerError;
use pulsar::routing_policy::RoutingPolicy;
use pulsar::{
    Authentication, ConnectionRetryOptions, OperationRetryOptions, Producer, ProducerOptions,
    Pulsar, TokioExecutor, producer,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::config_error::SinkError;
use super::error::{RESPONSE_CHARS_MAX, SendError, SendErrorKind};
use super::event_json::event_json;
use super::http::{TIMEOUT_DEFAULT, certificates, checked_timeout};
use super::secret::Secret;
use super::text::Wording;
use crate::alert::Event;
use crate::alert::OutboxMessage;

/// The longest name of a topic, in bytes.
const TOPIC_BYTES_MAX: usize = 512;

/// The settings of a topic.
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
    /// A topic, such as `persistent://public/default/balde-alerts`, at the broker of a `pulsar://`
    /// or `pulsar+ssl://` URL.
    pub fn new(url: impl Into<Secret>, topic: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            topic: topic.into(),
            token: None,
            ca_pem: None,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    /// Authenticates with a JSON web token. By default there is no authentication.
    pub fn token(mut self, token: impl Into<Secret>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Trusts these CA certificates (PEM) besides the well-known ones.
    pub fn ca_pem(mut self, pem: &[u8]) -> Self {
        self.ca_pem = Some(pem.to_vec());
        self
    }

    /// Sets the timeout of one attempt as a whole, including the connection. By default 10 seconds.
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

/// Produces events to a topic. A message is delivered when the broker has confirmed it.
pub struct PulsarTopic {
    settings: PulsarSettings,
    connection: Box<Mutex<Connection>>,
}

/// The connection, made when it is first needed and again after every failure. The generation makes
/// sure that of several messages that failed together only the first drops the connection.
#[derive(Default)]
struct Connection {
    producer: Option<Producer<TokioExecutor>>,
    generation: u64,
}

impl PulsarTopic {
    /// Checks the settings. The connection is made with the first message.
    pub fn new(settings: PulsarSettings) -> Result<Self, SinkError> {
        let url = settings.url.reveal();
        let broker = ["pulsar://", "pulsar+ssl://"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme));
        if broker.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            let advice = "the Pulsar URL must begin with pulsar:// or pulsar+ssl://";
            return Err(SinkError::Url { advice });
        }
        let topic = &settings.topic;
        if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX || topic.contains(char::is_whitespace)
        {
            let advice =
                "the topic must be a name such as persistent://public/default/balde-alerts";
            return Err(SinkError::Setting { advice });
        }
        if settings
            .token
            .as_ref()
            .is_some_and(|token| token.reveal().is_empty())
        {
            let advice = "the Pulsar token is empty; remove it or set one";
            return Err(SinkError::Secret { advice });
        }
        if let Some(pem) = &settings.ca_pem {
            certificates(pem)?;
        }
        checked_timeout(settings.timeout)?;
        install_crypto_provider();
        Ok(Self {
            settings,
            connection: Box::default(),
        })
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let mut generation = 0;
        // The client itself may wait without limit.
        let body = message_of(&message.event, wording);
        let sending = Box::pin(self.send(body, &mut generation));
        let sent = timeout(self.settings.timeout, sending).await;
        let error = match sent {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => self.send_error(&error),
            Err(_) => SendError::new(SendErrorKind::Timeout),
        };
        // If another attempt holds the connection, that one will notice the failure.
        if let Ok(mut connection) = self.connection.try_lock()
            && connection.generation == generation
        {
            connection.producer = None;
        }
        Err(error)
    }

    /// Sends and waits for the receipt. Other messages may be sent during the wait.
    async fn send(
        &self,
        message: producer::Message,
        generation: &mut u64,
    ) -> Result<(), pulsar::Error> {
        let receipt = {
            let mut connection = self.connection.lock().await;
            let mut producer = if let Some(producer) = connection.producer.take() {
                producer
            } else {
                let producer = Box::pin(self.connect()).await?;
                connection.generation += 1;
                producer
            };
            *generation = connection.generation;
            // Not put back after an error or a timeout, because its state is unknown then.
            let receipt = Box::pin(producer.send_non_blocking(message)).await?;
            connection.producer = Some(producer);
            receipt
        };
        receipt.await.map(drop)
    }

    async fn connect(&self) -> Result<Producer<TokioExecutor>, pulsar::Error> {
        let settings = &self.settings;
        // The client does not retry: the delivery worker does.
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
        // Without this policy the client ignores the partition keys of messages.
        let options = ProducerOptions {
            routing_policy: Some(RoutingPolicy::RoundRobin),
            ..ProducerOptions::default()
        };
        let producer = client.producer().with_topic(&settings.topic);
        Box::pin(producer.with_options(options).build()).await
    }

    fn send_error(&self, error: &pulsar::Error) -> SendError {
        let mut reason = error.to_string();
        let token = self.settings.token.as_ref().map(Secret::reveal);
        for secret in token.into_iter().chain([self.settings.url.reveal()]) {
            reason = reason.replace(secret, "***");
        }
        let reason = reason.chars().take(RESPONSE_CHARS_MAX).collect();
        SendError::new(if is_rejection(error) {
            SendErrorKind::Rejected { reason }
        } else {
            SendErrorKind::Unreachable { reason }
        })
    }
}

impl fmt::Debug for PulsarTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PulsarTopic").field(&self.settings).finish()
    }
}

/// Makes the message of an event. All events of a bucket have the same partition key, so that they
/// stay in order.
fn message_of(event: &Event, wording: &Wording) -> producer::Message {
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
        payload: event_json(event, wording).to_string().into_bytes(),
        properties: properties
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        partition_key: Some(partition_key),
        event_time: Some(event.at_us / 1_000),
        ..producer::Message::default()
    }
}

/// Returns true if the broker rejected the message and would reject it again.
fn is_rejection(error: &pulsar::Error) -> bool {
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
    fn a_message_has_the_json_of_the_event_and_its_bucket_as_partition_key() {
        let kind = EventKind::Reminder { since_us: TEN_US };
        let event = event(kind, Severity::Critical, 1);
        let message = message_of(&event, &Wording::default());
        let payload: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!(payload, event_json(&event, &Wording::default()));
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
        let stale = message_of(
            &participant_event(EventKind::Fresh { newest_us: 0 }),
            &Wording::default(),
        );
        assert_eq!(stale.partition_key.as_deref(), Some("12345678"));
    }

    #[test]
    fn invalid_settings_are_rejected_and_secrets_are_not_shown() {
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
    fn rejections_are_distinguished_from_unavailable_brokers() {
        let rejected = |code| {
            let error = ConnectionError::PulsarError(Some(code), None);
            is_rejection(&pulsar::Error::Producer(ProducerError::Connection(error)))
        };
        assert!(rejected(ServerError::AuthorizationError));
        assert!(!rejected(ServerError::ServiceNotReady));
        assert!(!is_rejection(&ConnectionError::Disconnected.into()));
    }
}
