//! The sections `[[sink]]`: where alerts are sent.

use std::time::Duration;

use balde_config::{Diagnostics, Located, Section};

use super::alerts::sink_classes;
use super::receivers::required;
use super::sink_config::{Connection, SinkConfig, SinkKind};
use super::{Resolver, receivers};
use crate::alert::SinkClass;
use crate::delivery::{SINK_NAME_MAX, SINKS_MAX};
use crate::sink::{PAGER_DUTY_URL, Secret};

#[derive(Clone, Copy)]
enum Kind {
    Log,
    Webhook,
    Slack,
    Teams,
    Email,
    PagerDuty,
    Opsgenie,
    Incident,
    Http,
    Kafka,
    Pulsar,
}

pub(super) fn read(
    root: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<SinkConfig> {
    let mut sinks = vec![SinkConfig::log()];
    for mut section in root.tables("sink", diagnostics) {
        let sink = read_one(&mut section, resolver, diagnostics);
        section.renamed(&[
            ("serves_as", "classes"),
            ("cert_file", "certificate"),
            ("key_file", "key"),
        ]);
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
        ("teams", Kind::Teams),
        ("email", Kind::Email),
        ("pagerduty", Kind::PagerDuty),
        ("opsgenie", Kind::Opsgenie),
        ("incident", Kind::Incident),
        ("http", Kind::Http),
        ("kafka", Kind::Kafka),
        ("pulsar", Kind::Pulsar),
    ];
    let kind = section.require("kind", diagnostics)?;
    let kind = kind.choice(&words, diagnostics)?.value;
    let classes = classes(section, kind, diagnostics);
    let timeouts = Duration::from_millis(1)..=Duration::from_secs(60);
    let connection = Connection {
        timeout: section
            .duration("timeout", timeouts, diagnostics)
            .map(|timeout| timeout.value),
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
        Kind::Teams => {
            let url = resolver.secret(section, ("url_env", "url_file"), diagnostics);
            required(section, "url_env", url, diagnostics).map(|url| SinkKind::Teams { url })
        }
        Kind::Email => receivers::email(section, &connection, resolver, diagnostics),
        Kind::Opsgenie => receivers::opsgenie(section, resolver, diagnostics),
        Kind::Http => receivers::http(section, resolver, diagnostics),
        Kind::Kafka => receivers::kafka(section, &connection, resolver, diagnostics),
        Kind::PagerDuty => {
            let key = resolver.secret(
                section,
                ("routing_key_env", "routing_key_file"),
                diagnostics,
            );
            let key = required(section, "routing_key_env", key, diagnostics);
            let url = section.string("url", diagnostics);
            let url = url.map_or(PAGER_DUTY_URL, |url| url.value);
            let keys = ("webhook_secret_env", "webhook_secret_file");
            let webhook_secret = resolver.secret(section, keys, diagnostics);
            key.map(|routing_key| SinkKind::PagerDuty {
                url: Secret::new(url),
                routing_key,
                webhook_secret: webhook_secret.map(Secret::new),
            })
        }
        Kind::Pulsar => pulsar(section, resolver, diagnostics),
    }?;
    let name = name.filter(|name| is_name(name, diagnostics))?;
    let sink = SinkConfig {
        name: name.value.to_owned(),
        classes,
        kind,
        connection,
    };
    Some((name, sink))
}

fn classes(section: &mut Section<'_>, kind: Kind, diagnostics: &mut Diagnostics) -> Vec<SinkClass> {
    if section.get("classes").is_none() {
        return match kind {
            Kind::Log => vec![SinkClass::Log],
            Kind::Webhook | Kind::Http | Kind::Kafka | Kind::Pulsar => vec![SinkClass::Event],
            Kind::Slack | Kind::Teams | Kind::Email => vec![SinkClass::Chat],
            Kind::PagerDuty | Kind::Opsgenie => vec![SinkClass::Page, SinkClass::PageUrgent],
            Kind::Incident => vec![SinkClass::Incident],
        };
    }
    let words = section.strings("classes", diagnostics);
    if words.is_empty() {
        let message = "`classes` is empty, so the sink would receive nothing";
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
