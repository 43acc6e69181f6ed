//! Apache Kafka.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde_net::tls::{self, Identity};
use ring::digest;
use rskafka::BackoffConfig;
use rskafka::chrono::{DateTime, Utc};
use rskafka::client::error::{Error as KafkaError, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::config_error::SinkError;
use super::error::{RESPONSE_CHARS_MAX, SendError, SendErrorKind};
use super::event_json::event_json;
use super::http::{TIMEOUT_DEFAULT, checked_timeout};
use super::secret::Secret;
use super::text::Wording;
use crate::alert::Event;
use crate::alert::OutboxMessage;

/// The longest name of a topic; Kafka's own maximum.
const TOPIC_CHARS_MAX: usize = 249;

/// The most brokers of a URL.
const BROKERS_MAX: usize = 32;

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SaslMechanism {
    /// The password itself, inside TLS.
    Plain,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

/// The settings of a topic.
#[derive(Clone)]
#[must_use = "settings do nothing until a sink is made with them"]
pub struct KafkaSettings {
    url: String,
    topic: String,
    sasl: Option<(SaslMechanism, String, Secret)>,
    ca_pem: Option<Vec<u8>>,
    identity: Option<Identity>,
    timeout: Duration,
}

impl KafkaSettings {
    /// A topic at the brokers of a URL: `kafka://host:9092,host:9092`, or `kafka+ssl://` with TLS. The
    /// topic must exist.
    pub fn new(url: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            topic: topic.into(),
            sasl: None,
            ca_pem: None,
            identity: None,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    /// Signs in with a name and a password. By default there is no authentication.
    pub fn sasl(
        mut self,
        mechanism: SaslMechanism,
        user: impl Into<String>,
        password: impl Into<Secret>,
    ) -> Self {
        self.sasl = Some((mechanism, user.into(), password.into()));
        self
    }

    /// Trusts only these CA certificates (PEM). By default those of the system are trusted.
    pub fn ca_pem(mut self, pem: &[u8]) -> Self {
        self.ca_pem = Some(pem.to_vec());
        self
    }

    /// Presents a certificate (PEM) to the brokers, with its key.
    pub fn identity_pem(mut self, chain_pem: &[u8], key_pem: &[u8]) -> Self {
        self.identity = Some((chain_pem.to_vec(), key_pem.to_vec()));
        self
    }

    /// Sets the timeout of one attempt as a whole, including the connection. By default 10 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSettings")
            .field("url", &self.url)
            .field("topic", &self.topic)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Produces events to a topic. A message is delivered when all replicas in sync have it.
pub struct KafkaTopic {
    settings: KafkaSettings,
    brokers: Vec<String>,
    tls: Option<Arc<rustls::ClientConfig>>,
    connection: Mutex<Option<Arc<Connection>>>,
}

/// A connection to the cluster, made when it is first needed and again after every failure.
struct Connection {
    client: Client,
    partitions: Vec<i32>,
    writers: Mutex<BTreeMap<i32, Arc<PartitionClient>>>,
}

impl KafkaTopic {
    /// Checks the settings. The connection is made with the first message.
    pub fn new(settings: KafkaSettings) -> Result<Self, SinkError> {
        let (brokers, is_tls) = brokers(&settings.url)?;
        let is_character = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let topic = &settings.topic;
        if topic.is_empty() || topic.len() > TOPIC_CHARS_MAX || !topic.chars().all(is_character) {
            let advice = "the topic must be 1 to 249 letters, digits, `.`, `_` or `-`";
            return Err(SinkError::Setting { advice });
        }
        if let Some((mechanism, user, password)) = &settings.sasl {
            if user.is_empty() || password.reveal().is_empty() {
                let advice = "the user and the password of Kafka must not be empty";
                return Err(SinkError::Secret { advice });
            }
            if *mechanism == SaslMechanism::Plain && !is_tls {
                let advice = "a password is not sent without TLS; use kafka+ssl://, or one of the \
                              mechanisms scram-sha-256 and scram-sha-512";
                return Err(SinkError::Setting { advice });
            }
        }
        if !is_tls && (settings.ca_pem.is_some() || settings.identity.is_some()) {
            let advice = "certificates need a URL that begins with kafka+ssl://";
            return Err(SinkError::Setting { advice });
        }
        checked_timeout(settings.timeout)?;
        let tls = if is_tls {
            let ca_pem = settings.ca_pem.as_deref();
            let tls = tls::client(ca_pem, settings.identity.as_ref(), &[]);
            Some(tls.map_err(|error| SinkError::Tls {
                reason: error.to_string(),
            })?)
        } else {
            None
        };
        Ok(Self {
            settings,
            brokers,
            tls,
            connection: Mutex::default(),
        })
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let mut used = None;
        let sending = Box::pin(self.send(&message.event, wording, &mut used));
        let error = match timeout(self.settings.timeout, sending).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => SendError::new(SendErrorKind::Timeout),
        };
        // Of several messages that failed together only the first drops the connection. If another
        // attempt is connecting, it will notice the failure itself.
        if let Ok(mut connection) = self.connection.try_lock()
            && let (Some(current), Some(used)) = (connection.as_ref(), &used)
            && Arc::ptr_eq(current, used)
        {
            *connection = None;
        }
        Err(error)
    }

    async fn send(
        &self,
        event: &Event,
        wording: &Wording,
        used: &mut Option<Arc<Connection>>,
    ) -> Result<(), SendError> {
        let connection = {
            let mut connection = self.connection.lock().await;
            match connection.as_ref() {
                Some(connection) => Arc::clone(connection),
                None => Arc::clone(connection.insert(Arc::new(self.connect().await?))),
            }
        };
        *used = Some(Arc::clone(&connection));
        let key = bucket(event);
        let partition = connection.partitions[place(&key, connection.partitions.len())];
        let writer = {
            let mut writers = connection.writers.lock().await;
            if let Some(writer) = writers.get(&partition) {
                Arc::clone(writer)
            } else {
                let (topic, unknown) = (&self.settings.topic, UnknownTopicHandling::Error);
                let writer = connection
                    .client
                    .partition_client(topic, partition, unknown);
                let writer = writer.await.map_err(|error| self.send_error(&error))?;
                let writer = Arc::new(writer);
                writers.insert(partition, Arc::clone(&writer));
                writer
            }
        };
        let record = record_of(event, key, wording);
        let sent = writer
            .produce(vec![record], Compression::NoCompression)
            .await;
        sent.map(drop).map_err(|error| self.send_error(&error))
    }

    async fn connect(&self) -> Result<Connection, SendError> {
        let once = BackoffConfig {
            // The client does not retry: the delivery worker does.
            deadline: Some(Duration::ZERO),
            ..BackoffConfig::default()
        };
        let mut builder = ClientBuilder::new(self.brokers.clone())
            .client_id(concat!("balde-monitor/", env!("CARGO_PKG_VERSION")))
            .backoff_config(once);
        if let Some(tls) = &self.tls {
            builder = builder.tls_config(Arc::clone(tls));
        }
        if let Some((mechanism, user, password)) = &self.settings.sasl {
            let credentials = Credentials::new(user.clone(), password.reveal().to_owned());
            builder = builder.sasl_config(match mechanism {
                SaslMechanism::Plain => SaslConfig::Plain(credentials),
                SaslMechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
                SaslMechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
            });
        }
        let client = builder
            .build()
            .await
            .map_err(|error| self.send_error(&error))?;
        let topics = client
            .list_topics()
            .await
            .map_err(|error| self.send_error(&error))?;
        let topic = topics
            .into_iter()
            .find(|topic| topic.name == self.settings.topic);
        let partitions = topic.map(|topic| topic.partitions.into_iter().collect());
        let partitions: Vec<i32> = partitions.unwrap_or_default();
        if partitions.is_empty() {
            let reason = format!(
                "the topic {} does not exist, or the user may not see it; create it",
                self.settings.topic
            );
            return Err(SendError::new(SendErrorKind::Rejected { reason }));
        }
        Ok(Connection {
            client,
            partitions,
            writers: Mutex::default(),
        })
    }

    fn send_error(&self, error: &KafkaError) -> SendError {
        let mut reason = error.to_string();
        if let Some((_, _, password)) = &self.settings.sasl {
            reason = reason.replace(password.reveal(), "***");
        }
        let is_rejection = is_rejection(error, &reason);
        let reason = reason.chars().take(RESPONSE_CHARS_MAX).collect();
        SendError::new(if is_rejection {
            SendErrorKind::Rejected { reason }
        } else {
            SendErrorKind::Unreachable { reason }
        })
    }
}

impl fmt::Debug for KafkaTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KafkaTopic").field(&self.settings).finish()
    }
}

/// Returns the brokers of a URL, and whether they speak TLS.
fn brokers(url: &str) -> Result<(Vec<String>, bool), SinkError> {
    let advice = "the Kafka URL must be kafka://host:9092 or kafka+ssl://host:9093; several brokers \
                  are separated by commas";
    let (brokers, is_tls) = match url.split_once("://") {
        Some(("kafka", brokers)) => (brokers, false),
        Some(("kafka+ssl", brokers)) => (brokers, true),
        _ => return Err(SinkError::Url { advice }),
    };
    let is_broker = |broker: &str| {
        let parts = broker.rsplit_once(':');
        parts.is_some_and(|(host, port)| {
            let is_host = !host.is_empty() && !host.contains(['/', '@', ' ']);
            is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
        })
    };
    let brokers: Vec<String> = brokers
        .split(',')
        .map(|one| one.trim().to_owned())
        .collect();
    if brokers.len() > BROKERS_MAX || !brokers.iter().all(|broker| is_broker(broker)) {
        return Err(SinkError::Url { advice });
    }
    Ok((brokers, is_tls))
}

/// All events of a bucket have the same key, and so the same partition, in which they stay in order.
fn bucket(event: &Event) -> String {
    match &event.policy {
        Some(policy) => format!("{}/{policy}", event.participant),
        None => event.participant.clone(),
    }
}

fn place(key: &str, partitions: usize) -> usize {
    let digest = digest::digest(&digest::SHA256, key.as_bytes());
    let bytes = digest.as_ref().iter().take(4);
    let number = bytes.fold(0_usize, |number, byte| (number << 8) | usize::from(*byte));
    number % partitions
}

fn record_of(event: &Event, key: String, wording: &Wording) -> Record {
    let headers = [
        ("key", event.key.clone()),
        ("episode", event.episode.clone()),
        ("kind", event.kind.label()),
        ("severity", event.severity.to_string()),
    ];
    let at_ms = i64::try_from(event.at_us / 1_000).unwrap_or(i64::MAX);
    Record {
        key: Some(key.into_bytes()),
        value: Some(event_json(event, wording).to_string().into_bytes()),
        headers: headers
            .map(|(name, value)| (name.to_owned(), value.into_bytes()))
            .into(),
        timestamp: DateTime::from_timestamp_millis(at_ms).unwrap_or(DateTime::<Utc>::MAX_UTC),
    }
}

/// Returns true if the brokers rejected the message and would reject it again. The client wraps the
/// errors of connections in a way in which only their text can be seen.
fn is_rejection(error: &KafkaError, text: &str) -> bool {
    if let KafkaError::ServerError { protocol_error, .. } = error {
        return matches!(
            protocol_error,
            ProtocolError::UnknownTopicOrPartition
                | ProtocolError::MessageTooLarge
                | ProtocolError::InvalidTopicException
                | ProtocolError::TopicAuthorizationFailed
                | ProtocolError::ClusterAuthorizationFailed
                | ProtocolError::InvalidRecord
        );
    }
    let lasting = [
        "SaslAuthenticationFailed",
        "UnsupportedSaslMechanism",
        "unsupported sasl",
    ];
    lasting.iter().any(|lasting| text.contains(lasting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_brokers_and_whether_they_speak_tls() {
        let (found, is_tls) = brokers("kafka+ssl://a.example:9093, [::1]:9093").unwrap();
        assert_eq!(
            (found.as_slice(), is_tls),
            (
                &["a.example:9093".to_owned(), "[::1]:9093".to_owned()][..],
                true
            )
        );
        assert!(!brokers("kafka://a:9092").unwrap().1);
        for wrong in [
            "a:9092",
            "http://a:9092",
            "kafka://",
            "kafka://a",
            "kafka://a:0",
            "kafka://u@a:1",
            "kafka://a:1,",
        ] {
            assert!(brokers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn invalid_settings_are_rejected_and_passwords_are_not_shown() {
        let good = || KafkaSettings::new("kafka://broker:9092", "balde");
        let scram =
            |settings: KafkaSettings| settings.sasl(SaslMechanism::ScramSha512, "balde", "hunter2");
        let topic = KafkaTopic::new(scram(good())).unwrap();
        assert!(!format!("{topic:?}").contains("hunter2"));
        for (settings, expected) in [
            (
                KafkaSettings::new("kafka://broker:9092", "two words"),
                "topic",
            ),
            (
                good().sasl(SaslMechanism::Plain, "balde", "hunter2"),
                "without TLS",
            ),
            (
                good().sasl(SaslMechanism::ScramSha256, "balde", ""),
                "empty",
            ),
            (good().ca_pem(b"x"), "kafka+ssl://"),
            (
                KafkaSettings::new("kafka+ssl://broker:9093", "balde").ca_pem(b"x"),
                "PEM",
            ),
            (good().timeout(Duration::ZERO), "timeout"),
        ] {
            let error = KafkaTopic::new(settings).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_events_of_a_bucket_share_a_partition() {
        let places: std::collections::BTreeSet<usize> = (0..1_000)
            .map(|n| place(&format!("bucket {n}"), 12))
            .collect();
        assert_eq!(places.len(), 12, "all partitions are used");
        assert_eq!(place("a", 12), place("a", 12));
    }
}
