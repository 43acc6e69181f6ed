//! Where alerts go.

use std::fmt;
use std::time::Duration;

use balde::options::{At, Faults, Section};

use super::Reader;
use super::alerts::class;
use crate::alert::SinkClass;
use crate::delivery::{SINK_NAME_MAX, SINKS_MAX};
use crate::sink::{
    HttpSettings, IncidentWebhook, LogSink, PAGER_DUTY_URL, PagerDuty, Secret, Sink, SinkError,
    Slack, Webhook,
};
#[cfg(feature = "pulsar")]
use crate::sink::{PulsarSettings, PulsarTopic};

/// One sink.
#[derive(Clone, Debug)]
pub struct SinkConfig {
    /// Its name: messages are kept for it under this, so another name is another sink.
    pub name: String,
    /// What it serves as.
    pub classes: Vec<SinkClass>,
    /// What it is.
    pub kind: SinkKind,
    http: Http,
}

#[derive(Clone, Default)]
struct Http {
    timeout: Option<Duration>,
    ca: Option<Vec<u8>>,
    proxy: Option<Secret>,
}

/// What a sink is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SinkKind {
    /// The log.
    Log,
    /// Any receiver of signed JSON.
    Webhook {
        /// Where it is.
        url: Secret,
        /// What bodies are signed with.
        secret: Secret,
    },
    /// A Slack channel.
    Slack {
        /// The incoming webhook's address.
        url: Secret,
    },
    /// A `PagerDuty` service.
    PagerDuty {
        /// Where its Events API is.
        url: Secret,
        /// Which service.
        routing_key: Secret,
    },
    /// Whoever keeps incidents.
    Incident {
        /// Where it is.
        url: Secret,
        /// What bodies are signed with.
        secret: Secret,
    },
    /// A topic of Apache Pulsar.
    Pulsar {
        /// The broker.
        url: Secret,
        /// The topic.
        topic: String,
        /// The token that the broker wants.
        token: Option<Secret>,
    },
}

#[derive(Clone, Copy)]
enum Kind {
    Log,
    Webhook,
    Slack,
    PagerDuty,
    Incident,
    Pulsar,
}

impl SinkConfig {
    /// The log, which is always there.
    pub fn log() -> Self {
        Self {
            name: "log".to_owned(),
            classes: vec![SinkClass::Log],
            kind: SinkKind::Log,
            http: Http::default(),
        }
    }

    /// The sink itself.
    pub fn build(&self) -> Result<Sink, SinkError> {
        let mut http = HttpSettings::default();
        if let Some(timeout) = self.http.timeout {
            http = http.timeout(timeout);
        }
        if let Some(ca) = &self.http.ca {
            http = http.ca_pem(ca);
        }
        if let Some(proxy) = &self.http.proxy {
            http = http.proxy(proxy.clone());
        }
        Ok(match &self.kind {
            SinkKind::Log => Sink::Log(LogSink),
            SinkKind::Webhook { url, secret } => {
                Sink::Webhook(Webhook::new(url.clone(), secret.clone(), &http)?)
            }
            SinkKind::Slack { url } => Sink::Slack(Slack::new(url.clone(), &http)?),
            SinkKind::PagerDuty { url, routing_key } => {
                Sink::PagerDuty(PagerDuty::at(url.clone(), routing_key.clone(), &http)?)
            }
            SinkKind::Incident { url, secret } => {
                Sink::Incident(IncidentWebhook::new(url.clone(), secret.clone(), &http)?)
            }
            #[cfg(feature = "pulsar")]
            SinkKind::Pulsar { url, topic, token } => {
                let mut settings = PulsarSettings::new(url.clone(), topic);
                if let Some(token) = token {
                    settings = settings.token(token.clone());
                }
                if let Some(ca) = &self.http.ca {
                    settings = settings.ca_pem(ca);
                }
                if let Some(timeout) = self.http.timeout {
                    settings = settings.timeout(timeout);
                }
                Sink::Pulsar(PulsarTopic::new(settings)?)
            }
            #[cfg(not(feature = "pulsar"))]
            SinkKind::Pulsar { .. } => {
                let advice = "this balde was built without Pulsar; build it with --features pulsar";
                return Err(SinkError::Setting { advice });
            }
        })
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

pub(super) fn check(
    root: &mut Section<'_>,
    reader: &Reader<'_>,
    faults: &mut Faults<'_>,
) -> Vec<SinkConfig> {
    let mut sinks = vec![SinkConfig::log()];
    for mut section in root.list("sink", faults) {
        let sink = one(&mut section, reader, faults);
        let name = section.text("name", faults);
        let span = section.span();
        section.finish(faults);
        let Some(name) = name else {
            faults.at(span, "a sink needs a `name`");
            continue;
        };
        let Some(sink) = sink else {
            // What is wrong with it was told where it is.
            continue;
        };
        if sinks.iter().any(|known| known.name == sink.name) {
            let message = "a sink of this name is here already (log always is)";
            faults.at(Some(name.span), message);
            continue;
        }
        if sinks.len() == SINKS_MAX {
            faults.at(Some(name.span), format!("{SINKS_MAX} sinks are the most"));
            break;
        }
        if let Err(error) = sink.build() {
            faults.at(Some(name.span), error.to_string());
        }
        sinks.push(sink);
    }
    sinks
}

fn one(
    section: &mut Section<'_>,
    reader: &Reader<'_>,
    faults: &mut Faults<'_>,
) -> Option<SinkConfig> {
    let name = section.text("name", faults);
    let words = [
        ("log", Kind::Log),
        ("webhook", Kind::Webhook),
        ("slack", Kind::Slack),
        ("pagerduty", Kind::PagerDuty),
        ("incident", Kind::Incident),
        ("pulsar", Kind::Pulsar),
    ];
    if section.any("kind").is_none() {
        faults.at(section.span(), "a sink needs a `kind`");
    }
    let kind = section.word("kind", &words, faults)?.value;
    let classes = classes(section, kind, faults);
    let http = Http {
        timeout: section
            .number("timeout_ms", (1, 60_000), faults)
            .map(|ms| Duration::from_millis(ms.value)),
        ca: reader.bytes(section, "ca", faults),
        proxy: reader
            .text_or_secret(section, ("proxy", "proxy_env"), faults)
            .map(Secret::new),
    };
    let kind =
        match kind {
            Kind::Log => Some(SinkKind::Log),
            Kind::Webhook => signed(section, reader, faults)
                .map(|(url, secret)| SinkKind::Webhook { url, secret }),
            Kind::Incident => signed(section, reader, faults)
                .map(|(url, secret)| SinkKind::Incident { url, secret }),
            Kind::Slack => {
                let url = reader.secret(section, "url_env", faults);
                needed(section, "url_env", url, faults).map(|url| SinkKind::Slack { url })
            }
            Kind::PagerDuty => {
                let key = reader.secret(section, "routing_key_env", faults);
                let key = needed(section, "routing_key_env", key, faults);
                let url = section.text("url", faults);
                let url = url.map_or(PAGER_DUTY_URL, |url| url.value);
                key.map(|routing_key| SinkKind::PagerDuty {
                    url: Secret::new(url),
                    routing_key,
                })
            }
            Kind::Pulsar => pulsar(section, reader, faults),
        }?;
    let name = name.filter(|name| is_name(name, faults))?;
    Some(SinkConfig {
        name: name.value.to_owned(),
        classes,
        kind,
        http,
    })
}

fn classes(section: &mut Section<'_>, kind: Kind, faults: &mut Faults<'_>) -> Vec<SinkClass> {
    if section.any("serves_as").is_none() {
        return match kind {
            Kind::Log => vec![SinkClass::Log],
            Kind::Webhook | Kind::Pulsar => vec![SinkClass::Event],
            Kind::Slack => vec![SinkClass::Chat],
            Kind::PagerDuty => vec![SinkClass::Page, SinkClass::PageUrgent],
            Kind::Incident => vec![SinkClass::Incident],
        };
    }
    let mut classes = Vec::new();
    let words = section.texts("serves_as", faults);
    if words.is_empty() {
        faults.at(section.span(), "a sink that serves as nothing gets nothing");
    }
    for word in words {
        match class(word.value) {
            Some(class) => classes.push(class),
            None => faults.at(
                Some(word.span),
                "there are log, event, gauge, page, page_urgent, chat and incident",
            ),
        }
    }
    classes
}

fn signed(
    section: &mut Section<'_>,
    reader: &Reader<'_>,
    faults: &mut Faults<'_>,
) -> Option<(Secret, Secret)> {
    let url = reader.text_or_secret(section, ("url", "url_env"), faults);
    let url = needed(section, "url", url, faults);
    let secret = reader.secret(section, "secret_env", faults);
    url.zip(needed(section, "secret_env", secret, faults))
}

fn pulsar(
    section: &mut Section<'_>,
    reader: &Reader<'_>,
    faults: &mut Faults<'_>,
) -> Option<SinkKind> {
    let url = reader.text_or_secret(section, ("url", "url_env"), faults);
    let url = needed(section, "url", url, faults);
    let topic = section.text("topic", faults);
    if topic.is_none() {
        faults.at(section.span(), "a topic needs its name as `topic`");
    }
    let token = reader.secret(section, "token_env", faults);
    Some(SinkKind::Pulsar {
        url: url?,
        topic: topic?.value.to_owned(),
        token: token.map(Secret::new),
    })
}

/// The value as a secret; a fault when its key is not there at all.
fn needed(
    section: &mut Section<'_>,
    key: &'static str,
    value: Option<String>,
    faults: &mut Faults<'_>,
) -> Option<Secret> {
    let is_elsewhere = key == "url" && section.any("url_env").is_some();
    if value.is_none() && section.any(key).is_none() && !is_elsewhere {
        faults.at(section.span(), format!("this kind of sink needs `{key}`"));
    }
    value.map(Secret::new)
}

fn is_name(name: &At<&str>, faults: &mut Faults<'_>) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name =
        (1..=SINK_NAME_MAX).contains(&name.value.len()) && name.value.bytes().all(is_fine);
    if !is_name {
        let message = format!("a name is 1 to {SINK_NAME_MAX} letters, digits, - or _");
        faults.at(Some(name.span.clone()), message);
    }
    is_name
}
