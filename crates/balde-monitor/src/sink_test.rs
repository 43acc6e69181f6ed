//! A test alert through a sink of a configuration.

use std::time::Duration;

use crate::alert::OutboxMessage;
use crate::alert::{Event, EventKind, MONITOR, SinkClass};
use crate::config::Config;
use crate::severity::Severity;
use crate::sink::{SendError, Sink, SinkError};
use crate::time_source::TimeSource;

/// What was sent in a test.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkTest {
    /// The kind of the sink, such as `pagerduty`.
    pub kind: &'static str,
    /// The key of the first message, by which the receiver has it.
    pub key: String,
    /// How many messages were sent: a second one closes the alert at receivers that keep alerts open.
    pub messages: usize,
    /// How long the receiver took.
    pub took: Duration,
}

/// Why a test failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkTestError {
    /// The configuration has no sink of this name.
    #[error("there is no sink {name}; the file has: {names}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of the sinks in the file.
        names: String,
    },
    /// The sink cannot be built from its settings.
    #[error("the sink cannot be built: {0}")]
    Settings(#[source] SinkError),
    /// The receiver did not accept the message.
    #[error("{0}")]
    Send(#[source] SendError),
}

/// Sends a marked test alert through the sink `name` at once, without database, retries and routes.
/// Receivers that keep alerts open until they are closed (`PagerDuty`, Opsgenie and incidents) get a
/// second message that closes it. The severity is NORMAL, so that nobody is woken up.
pub async fn test_sink(
    config: &Config,
    name: &str,
    time: &TimeSource,
) -> Result<SinkTest, SinkTestError> {
    let sink_config = config.sinks.iter().find(|sink| sink.name == name);
    let Some(sink_config) = sink_config else {
        let names: Vec<&str> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
        return Err(SinkTestError::Unknown {
            name: name.to_owned(),
            names: names.join(", "),
        });
    };
    let sink = sink_config.build().map_err(SinkTestError::Settings)?;
    let class = sink_config.classes.first().copied();
    let started_us = time.now_us();
    let mut kinds = vec![EventKind::Test {
        sink: name.to_owned(),
    }];
    if keeps_alerts_open(&sink) {
        kinds.push(EventKind::TestOver {
            sink: name.to_owned(),
        });
    }
    let messages: Vec<OutboxMessage> = kinds
        .into_iter()
        .map(|kind| message(name, class.unwrap_or(SinkClass::Event), kind, started_us))
        .collect();
    for message in &messages {
        let sent = sink.deliver(message, time.now_us(), &config.wording).await;
        sent.map_err(SinkTestError::Send)?;
    }
    Ok(SinkTest {
        kind: sink.kind(),
        key: messages[0].event.key.clone(),
        messages: messages.len(),
        took: Duration::from_micros(time.now_us().saturating_sub(started_us)),
    })
}

const fn keeps_alerts_open(sink: &Sink) -> bool {
    matches!(
        sink,
        Sink::PagerDuty(_) | Sink::Opsgenie(_) | Sink::Incident(_)
    )
}

fn message(sink: &str, class: SinkClass, kind: EventKind, at_us: u64) -> OutboxMessage {
    let episode = format!("{MONITOR}/test/{sink}/{at_us}");
    OutboxMessage {
        id: 0,
        sink: sink.to_owned(),
        class,
        event: Event {
            key: format!("{episode}/{}", kind.label()),
            episode,
            participant: MONITOR.to_owned(),
            policy: None,
            at_us,
            kind,
            severity: Severity::Normal,
            level: None,
            capacity: None,
            recovery_us: None,
            silenced_by: None,
        },
        attempts: 0,
    }
}
