//! The keys of single kinds of sinks: e-mail, Opsgenie, Kafka and HTTP with a template.

use balde_config::{Diagnostics, Section};

use super::Resolver;
use super::sink_config::{Connection, SinkKind};
use crate::sink::{
    EmailSettings, KafkaSettings, OPSGENIE_URL, SaslMechanism, Secret, TemplateSettings,
};

/// The longest file with a template.
const TEMPLATE_BYTES_MAX: usize = 256 * 1024;

pub(super) fn opsgenie(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<SinkKind> {
    let keys = ("api_key_env", "api_key_file");
    let key = resolver.secret(section, keys, diagnostics);
    let url = section.string("url", diagnostics);
    let url = url.map_or(OPSGENIE_URL, |url| url.value);
    required(section, "api_key_env", key, diagnostics).map(|api_key| SinkKind::Opsgenie {
        url: Secret::new(url),
        api_key,
    })
}

pub(super) fn email(
    section: &mut Section<'_>,
    connection: &Connection,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<SinkKind> {
    let url = section.require("url", diagnostics);
    let url = url.and_then(|url| url.string(diagnostics));
    let from = section.require("from", diagnostics);
    let from = from.and_then(|from| from.string(diagnostics));
    let to = section.require("to", diagnostics);
    let to = to.map(|to| to.strings(diagnostics));
    let starttls = section.boolean("starttls", diagnostics);
    let credentials = credentials(section, resolver, diagnostics);
    without_proxy(section, diagnostics);
    let to = to?.iter().map(|to| to.value.to_owned()).collect();
    let mut settings = EmailSettings::new(url?.value, from?.value, to);
    if let Some((user, password)) = credentials {
        settings = settings.credentials(user, password);
    }
    if starttls.is_some_and(|starttls| !starttls.value) {
        settings = settings.without_tls();
    }
    if let Some(ca) = &connection.ca {
        settings = settings.ca_pem(ca);
    }
    if let Some(timeout) = connection.timeout {
        settings = settings.timeout(timeout);
    }
    Some(SinkKind::Email(settings))
}

pub(super) fn kafka(
    section: &mut Section<'_>,
    connection: &Connection,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<SinkKind> {
    let mechanisms = [
        ("plain", SaslMechanism::Plain),
        ("scram-sha-256", SaslMechanism::ScramSha256),
        ("scram-sha-512", SaslMechanism::ScramSha512),
    ];
    let url = section.require("url", diagnostics);
    let url = url.and_then(|url| url.string(diagnostics));
    let topic = section.require("topic", diagnostics);
    let topic = topic.and_then(|topic| topic.string(diagnostics));
    let mechanism = section.choice("sasl", &mechanisms, diagnostics);
    let credentials = credentials(section, resolver, diagnostics);
    let chain = resolver.bytes(section, "certificate", diagnostics);
    let key = resolver.bytes(section, "key", diagnostics);
    for (one, other) in [("certificate", "key"), ("key", "certificate")] {
        if section.contains(one) && !section.contains(other) {
            let message = format!("`{one}` needs `{other}`: they are used together");
            diagnostics.at(section.span(), message);
        }
    }
    if section.contains("sasl") != section.contains("user") {
        let message = "`sasl` and `user` are used together: write both or neither";
        diagnostics.at(section.span(), message);
    }
    without_proxy(section, diagnostics);
    let mut settings = KafkaSettings::new(url?.value, topic?.value);
    if let (Some(mechanism), Some((user, password))) = (mechanism, credentials) {
        settings = settings.sasl(mechanism.value, user, password);
    }
    if let Some((chain, key)) = chain.zip(key) {
        settings = settings.identity_pem(&chain, &key);
    }
    if let Some(ca) = &connection.ca {
        settings = settings.ca_pem(ca);
    }
    if let Some(timeout) = connection.timeout {
        settings = settings.timeout(timeout);
    }
    Some(SinkKind::Kafka(settings))
}

pub(super) fn http(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<SinkKind> {
    let url = resolver.string_or_secret(section, ("url", "url_env", "url_file"), diagnostics);
    let url = required(section, "url", url, diagnostics);
    let body = template(section, resolver, diagnostics);
    let method = section.string("method", diagnostics);
    let headers = headers(section, resolver, diagnostics);
    let secret = resolver.secret(section, ("secret_env", "secret_file"), diagnostics);
    let mut settings = TemplateSettings::new(url?, body?);
    if let Some(method) = method {
        settings = settings.method(method.value);
    }
    for (name, value) in headers {
        settings = settings.header(name, value);
    }
    if let Some(secret) = secret {
        settings = settings.secret(secret);
    }
    Some(SinkKind::Http(settings))
}

/// The template: in the file itself, or in a file of its own.
fn template(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    let body = section.string("body", diagnostics);
    let file = section.string("body_file", diagnostics);
    match (body, file) {
        (Some(body), None) => Some(body.value.to_owned()),
        (None, Some(file)) => match std::fs::read_to_string(resolver.path(file.value)) {
            Ok(text) if text.len() <= TEMPLATE_BYTES_MAX => Some(text),
            Ok(_) => {
                let message = format!("the file has more than {TEMPLATE_BYTES_MAX} bytes");
                diagnostics.at(file.span, message);
                None
            }
            Err(error) => {
                diagnostics.at(file.span, format!("cannot read the file: {error}"));
                None
            }
        },
        (Some(_), Some(file)) => {
            diagnostics.at(file.span, "write either `body` or `body_file`, not both");
            None
        }
        (None, None) => {
            let message = "this kind of sink needs `body` or `body_file`, the template";
            diagnostics.at(section.span(), message);
            None
        }
    }
}

/// Headers whose values are in the file, and headers whose values are in environment variables.
fn headers(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<(String, Secret)> {
    let mut headers = Vec::new();
    for value in entries(section.table("headers", diagnostics)) {
        if let Some(text) = value.string(diagnostics) {
            headers.push((value.key().to_owned(), Secret::new(text.value)));
        }
    }
    for value in entries(section.table("headers_env", diagnostics)) {
        let Some(variable) = value.string(diagnostics) else {
            continue;
        };
        if let Some(secret) = resolver.variable(&variable, diagnostics) {
            headers.push((value.key().to_owned(), Secret::new(secret)));
        }
    }
    headers
}

fn entries(table: Option<Section<'_>>) -> Vec<balde_config::Value<'_>> {
    table.map(|table| table.entries()).unwrap_or_default()
}

/// `user` and its password, which belong together.
fn credentials(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<(String, Secret)> {
    let user = section.string("user", diagnostics);
    let password = resolver.secret(section, ("password_env", "password_file"), diagnostics);
    let has_password = section.contains("password_env") || section.contains("password_file");
    if user.is_some() != has_password {
        let message = "`user` and `password_env` or `password_file` are used together";
        diagnostics.at(section.span(), message);
    }
    Some((user?.value.to_owned(), Secret::new(password?)))
}

fn without_proxy(section: &Section<'_>, diagnostics: &mut Diagnostics) {
    if ["proxy", "proxy_env", "proxy_file"]
        .iter()
        .any(|key| section.contains(key))
    {
        let message = "`proxy` is for sinks that are reached by HTTP; this kind is not";
        diagnostics.at(section.span(), message);
    }
}

/// The value as a secret; a key that is not in the file at all is reported.
pub(super) fn required(
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
