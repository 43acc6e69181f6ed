//! The sections `[[sink]]`: where alerts are sent.

use std::fmt;
use std::time::Duration;

use balde_config::{Diagnostics, Located, Section};

use super::Resolver;
use super::alerts::sink_classes;
use crate::alert::SinkClass;
use crate::delivery::{SINK_NAME_MAX, SINKS_MAX};
use crate::sink::{
    HttpSettings, IncidentWebhook, LogSink, PAGER_DUTY_URL, PagerDuty, Secret, Sink, SinkError,
    Slack, Webhook,
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
    http: Http,
}

#[derive(Clone, Default)]
struct Http {
    timeout: Option<Duration>,
    ca: Option<Vec<u8>>,
    proxy: Option<Secret>,
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
    },
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
    /// The log, which every monitor has.
    pub fn log() -> Self {
        Self {
            name: "log".to_owned(),
            classes: vec![SinkClass::Log],
            kind: SinkKind::Log,
            http: Http::default(),
        }
    }

    /// Builds the sink.
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
                let advice = "this build does not include Pulsar; build it with --features pulsar";
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

pub(super) fn read(
    root: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<SinkConfig> {
    let mut sinks = vec![SinkConfig::log()];
    for mut section in root.tables("sink", diagnostics) {
        let sink = read_one(&mut section, resolver, diagnostics);
        section.finish(diagnostics);
        let Some((name, sink)) = sink else {
            continue;
        };
        if sinks.iter().any(|known| known.name == sink.name) {
            let message = "there is a sink of this name already; `log` is built in";
            diagnostics.at(name.span, message);
            continue;
        }
        if sinks.len() == SINKS_MAX {
            diagnostics.at(name.span, format!("there are more than {SINKS_MAX} sinks"));
            break;
        }
        if let Err(error) = sink.build() {
            diagnostics.at(name.span, error.to_string());
        }
        sinks.push(sink);
    }
    sinks
}

fn read_one<'a>(
    section: &mut Section<'a>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<(Located<&'a str>, SinkConfig)> {
    let name = section.require("name", diagnostics);
    let name = name.and_then(|name| name.string(diagnostics));
    let words = [
        ("log", Kind::Log),
        ("webhook", Kind::Webhook),
        ("slack", Kind::Slack),
        ("pagerduty", Kind::PagerDuty),
        ("incident", Kind::Incident),
        ("pulsar", Kind::Pulsar),
    ];
    let kind = section.require("kind", diagnostics)?;
    let kind = kind.choice(&words, diagnostics)?.value;
    let classes = classes(section, kind, diagnostics);
    let http = Http {
        timeout: section
            .integer("timeout_ms", 1..=60_000, diagnostics)
            .map(|ms| Duration::from_millis(ms.value)),
        ca: resolver.bytes(section, "ca", diagnostics),
        proxy: resolver
            .string_or_secret(section, ("proxy", "proxy_env", "proxy_file"), diagnostics)
            .map(Secret::new),
    };
    let kind = match kind {
        Kind::Log => Some(SinkKind::Log),
        Kind::Webhook => signed(section, resolver, diagnostics)
            .map(|(url, secret)| SinkKind::Webhook { url, secret }),
        Kind::Incident => signed(section, resolver, diagnostics)
            .map(|(url, secret)| SinkKind::Incident { url, secret }),
        Kind::Slack => {
            let url = resolver.secret(section, ("url_env", "url_file"), diagnostics);
            required(section, "url_env", url, diagnostics).map(|url| SinkKind::Slack { url })
        }
        Kind::PagerDuty => {
            let key = resolver.secret(
                section,
                ("routing_key_env", "routing_key_file"),
                diagnostics,
            );
            let key = required(section, "routing_key_env", key, diagnostics);
            let url = section.string("url", diagnostics);
            let url = url.map_or(PAGER_DUTY_URL, |url| url.value);
            key.map(|routing_key| SinkKind::PagerDuty {
                url: Secret::new(url),
                routing_key,
            })
        }
        Kind::Pulsar => pulsar(section, resolver, diagnostics),
    }?;
    let name = name.filter(|name| is_name(name, diagnostics))?;
    let sink = SinkConfig {
        name: name.value.to_owned(),
        classes,
        kind,
        http,
    };
    Some((name, sink))
}

fn classes(section: &mut Section<'_>, kind: Kind, diagnostics: &mut Diagnostics) -> Vec<SinkClass> {
    if section.get("serves_as").is_none() {
        return match kind {
            Kind::Log => vec![SinkClass::Log],
            Kind::Webhook | Kind::Pulsar => vec![SinkClass::Event],
            Kind::Slack => vec![SinkClass::Chat],
            Kind::PagerDuty => vec![SinkClass::Page, SinkClass::PageUrgent],
            Kind::Incident => vec![SinkClass::Incident],
        };
    }
    let words = section.strings("serves_as", diagnostics);
    if words.is_empty() {
        let message = "`serves_as` is empty, so the sink would receive nothing";
        diagnostics.at(section.span(), message);
    }
    sink_classes(&words, diagnostics)
}

fn signed(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<(Secret, Secret)> {
    let url = resolver.string_or_secret(section, ("url", "url_env", "url_file"), diagnostics);
    let url = required(section, "url", url, diagnostics);
    let secret = resolver.secret(section, ("secret_env", "secret_file"), diagnostics);
    url.zip(required(section, "secret_env", secret, diagnostics))
}

fn pulsar(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<SinkKind> {
    let url = resolver.string_or_secret(section, ("url", "url_env", "url_file"), diagnostics);
    let url = required(section, "url", url, diagnostics);
    let topic = section.require("topic", diagnostics);
    let topic = topic.and_then(|topic| topic.string(diagnostics));
    let token = resolver.secret(section, ("token_env", "token_file"), diagnostics);
    Some(SinkKind::Pulsar {
        url: url?,
        topic: topic?.value.to_owned(),
        token: token.map(Secret::new),
    })
}

/// The value as a secret; a key that is not in the file at all is reported.
fn required(
    section: &mut Section<'_>,
    key: &'static str,
    value: Option<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Secret> {
    let base = key.trim_end_matches("_env");
    let is_there = ["", "_env", "_file"]
        .iter()
        .any(|suffix| section.contains(&format!("{base}{suffix}")));
    if value.is_none() && !is_there {
        let message = format!("this kind of sink needs `{key}` or `{base}_file`");
        diagnostics.at(section.span(), message);
    }
    value.map(Secret::new)
}

fn is_name(name: &Located<&str>, diagnostics: &mut Diagnostics) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name =
        (1..=SINK_NAME_MAX).contains(&name.value.len()) && name.value.bytes().all(is_fine);
    if !is_name {
        let message = format!("`name` must be 1 to {SINK_NAME_MAX} letters, digits, `-` or `_`");
        diagnostics.at(name.span, message);
    }
    is_name
}
