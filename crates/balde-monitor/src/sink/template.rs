//! Any HTTP API, with a body that is made from a template.

use std::fmt;

use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::config_error::SinkError;
use super::error::{SendError, SendErrorKind};
use super::event_json::event_json;
use super::http::{Call, HttpEndpoint, HttpSettings};
use super::secret::Secret;
use super::signature::{SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};
use super::text::{Wording, current_severity};
use crate::alert::OutboxMessage;
use crate::alert::{Event, EventKind, MONITOR};
use crate::severity::Severity;

/// The most headers of a request.
pub const HEADERS_MAX: usize = 32;

/// The longest body, in bytes.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// How many steps a template may take; an ordinary one takes some dozens.
const TEMPLATE_STEPS_MAX: u64 = 100_000;

const TEMPLATE: &str = "body";

/// The settings of a templated request.
#[derive(Clone)]
#[must_use = "settings do nothing until a sink is made with them"]
pub struct TemplateSettings {
    url: Secret,
    method: String,
    headers: Vec<(String, Secret)>,
    body: String,
    secret: Option<Secret>,
}

impl TemplateSettings {
    /// Posts a body that is made from a template in the language of Jinja.
    pub fn new(url: impl Into<Secret>, body: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            method: "POST".to_owned(),
            headers: Vec::new(),
            body: body.into(),
            secret: None,
        }
    }

    /// Sets the method: `POST`, `PUT` or `PATCH`. By default `POST`.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = method.into();
        self
    }

    /// Adds a header, in place of one of the same name. The content type is `application/json` by
    /// default.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Signs bodies with this secret, as [`Webhook`](crate::sink::Webhook) does. By default they are
    /// not signed.
    pub fn secret(mut self, secret: impl Into<Secret>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Returns true if bodies are JSON, in which values are inserted as JSON.
    fn is_json(&self) -> bool {
        let named = |(name, _): &&(String, Secret)| name.eq_ignore_ascii_case("content-type");
        let content_type = self.headers.iter().rfind(named);
        content_type.is_none_or(|(_, value)| value.reveal().to_ascii_lowercase().contains("json"))
    }
}

/// Sends a request that is made from a template for each event.
///
/// ```
/// use balde_monitor::sink::{HttpSettings, HttpTemplate, Sink, TemplateSettings};
///
/// let settings = TemplateSettings::new("https://api.example/notes", r#"{"note": {{ title }}}"#)
///     .header("authorization", "Bearer 0123456789");
/// let sink = Sink::Http(HttpTemplate::new(settings, &HttpSettings::default())?);
/// assert!(!format!("{sink:?}").contains("0123"));
///
/// // A name that does not exist, and a body that is not JSON, are found at the start.
/// for body in [r#"{"note": {{ titel }}}"#, r#"{"note": {{ title }}"#] {
///     let settings = TemplateSettings::new("https://api.example/notes", body);
///     assert!(HttpTemplate::new(settings, &HttpSettings::default()).is_err());
/// }
/// # Ok::<(), balde_monitor::sink::SinkError>(())
/// ```
pub struct HttpTemplate {
    endpoint: HttpEndpoint,
    method: Method,
    headers: Vec<(String, Secret)>,
    secret: Option<Secret>,
    templates: Box<Environment<'static>>,
}

impl HttpTemplate {
    /// Checks the settings, and renders the template with an event of each kind that has other
    /// fields.
    pub fn new(settings: TemplateSettings, http: &HttpSettings) -> Result<Self, SinkError> {
        let method = match settings.method.as_str() {
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            _ => {
                let advice = "the method must be POST, PUT or PATCH";
                return Err(SinkError::Setting { advice });
            }
        };
        check_headers(&settings.headers)?;
        if settings
            .secret
            .as_ref()
            .is_some_and(|it| it.reveal().is_empty())
        {
            let advice = "the secret to sign with is empty; remove it, or set 32 random bytes";
            return Err(SinkError::Secret { advice });
        }
        let mut secrets: Vec<&Secret> = settings.headers.iter().map(|(_, value)| value).collect();
        secrets.extend(&settings.secret);
        let (templates, is_json) = (templates(&settings)?, settings.is_json());
        let endpoint = HttpEndpoint::new(&settings.url, http, &secrets)?;
        let sink = Self {
            endpoint,
            method,
            templates: Box::new(templates),
            headers: settings.headers,
            secret: settings.secret,
        };
        sink.try_out(is_json)?;
        Ok(sink)
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let event = &message.event;
        let body = self.render(event, wording);
        let body = body.map_err(|reason| SendError::new(SendErrorKind::Rejected { reason }))?;
        let body = body.into_bytes();
        let timestamp_s = now_us / 1_000_000;
        let signature = self
            .secret
            .as_ref()
            .map(|secret| sign(secret, timestamp_s, &body));
        let url = self.endpoint.url().clone();
        let mut call = Call::json(url, &event.key, body).method(self.method.clone());
        for (name, value) in &self.headers {
            call = call.header(name, value.reveal());
        }
        if let Some(signature) = signature {
            call = call
                .header(TIMESTAMP_HEADER, &timestamp_s.to_string())
                .header(SIGNATURE_HEADER, &signature);
        }
        let reply = self.endpoint.call(call, now_us).await?;
        self.endpoint.checked(&reply)
    }

    fn render(&self, event: &Event, wording: &Wording) -> Result<String, String> {
        let failed = |error: minijinja::Error| format!("the template cannot be rendered: {error}");
        let template = self.templates.get_template(TEMPLATE).map_err(failed)?;
        let body = template
            .render(template_values(event, wording))
            .map_err(failed)?;
        if body.len() > BODY_BYTES_MAX {
            return Err(format!(
                "the template makes more than {BODY_BYTES_MAX} bytes"
            ));
        }
        Ok(body)
    }

    /// Finds what is wrong with the template before the first alert does.
    fn try_out(&self, is_json: bool) -> Result<(), SinkError> {
        for event in examples() {
            let rendered = self.render(&event, &Wording::default());
            let body = rendered.map_err(|reason| SinkError::Template { reason })?;
            if is_json && let Err(error) = serde_json::from_str::<Value>(&body) {
                let reason = format!(
                    "the template does not make JSON ({error}); write values without quotation \
                     marks, or set another content-type among the headers"
                );
                return Err(SinkError::Template { reason });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for HttpTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTemplate")
            .field("endpoint", &self.endpoint)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TemplateSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemplateSettings")
            .field("method", &self.method)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

/// Returns what a template may use: the JSON of the event, and `current_severity`, `label` and
/// `is_over`.
pub fn template_values(event: &Event, wording: &Wording) -> Value {
    let mut values = event_json(event, wording);
    values["current_severity"] = json!(current_severity(event));
    values["label"] = event.kind.label().into();
    values["is_over"] = event.kind.is_end().into();
    values
}

fn templates(settings: &TemplateSettings) -> Result<Environment<'static>, SinkError> {
    let mut templates = Environment::new();
    let escape = if settings.is_json() {
        AutoEscape::Json
    } else {
        AutoEscape::None
    };
    templates.set_auto_escape_callback(move |_| escape);
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.set_fuel(Some(TEMPLATE_STEPS_MAX));
    let added = templates.add_template_owned(TEMPLATE, settings.body.clone());
    added.map_err(|error| SinkError::Template {
        reason: format!("the template cannot be read: {error}"),
    })?;
    Ok(templates)
}

fn check_headers(headers: &[(String, Secret)]) -> Result<(), SinkError> {
    if headers.len() > HEADERS_MAX {
        let advice = "a request has at most 32 headers";
        return Err(SinkError::Setting { advice });
    }
    for (name, value) in headers {
        if HeaderName::try_from(name).is_err() || HeaderValue::from_str(value.reveal()).is_err() {
            let advice = "the name or value of a header has characters that HTTP does not allow";
            return Err(SinkError::Setting { advice });
        }
    }
    Ok(())
}

/// An event of a bucket, and one without policy, level and capacity.
fn examples() -> [Event; 2] {
    let event = |kind: EventKind, policy: Option<&str>| Event {
        key: format!("{MONITOR}/example"),
        episode: format!("{MONITOR}/example"),
        participant: "12345678".to_owned(),
        policy: policy.map(str::to_owned),
        at_us: 0,
        kind,
        severity: Severity::Critical,
        level: policy.map(|_| 3_600),
        capacity: policy.map(|_| 36_000),
        recovery_us: None,
        silenced_by: None,
    };
    let raised = EventKind::Raised {
        from: Severity::Normal,
        to: Severity::Critical,
    };
    [
        event(raised, Some("ENTRIES_WRITE")),
        event(EventKind::Fresh { newest_us: 0 }, None),
    ]
}
