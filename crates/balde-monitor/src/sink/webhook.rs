//! Webhooks that get signed JSON.

use super::config_error::SinkError;
use super::error::SendError;
use super::event_json::event_json;
use super::http::{HttpEndpoint, HttpSettings};
use super::secret::Secret;
use super::signature::{SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};
use super::text::Wording;
use crate::alert::OutboxMessage;

/// Posts events as JSON with an HMAC signature.
///
/// ```
/// use balde_monitor::sink::{HttpSettings, Sink, Webhook};
///
/// let settings = HttpSettings::default();
/// let webhook = Webhook::new("https://alerts.example/hook", "32 random bytes", &settings)?;
/// let sink = Sink::Webhook(webhook);
/// assert!(Webhook::new("https://alerts.example/hook", "", &settings).is_err());
/// # Ok::<(), balde_monitor::sink::SinkError>(())
/// ```
#[derive(Debug)]
pub struct Webhook(SignedEndpoint);

impl Webhook {
    /// Posts to `url` and signs with `secret`.
    pub fn new(
        url: impl Into<Secret>,
        secret: impl Into<Secret>,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        SignedEndpoint::new(&url.into(), secret.into(), settings).map(Self)
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let body = event_json(&message.event, wording);
        self.0.post(&message.event.key, &body, now_us).await
    }
}

/// A URL that gets JSON with an HMAC signature.
#[derive(Debug)]
pub(super) struct SignedEndpoint {
    endpoint: HttpEndpoint,
    secret: Secret,
}

impl SignedEndpoint {
    pub(super) fn new(
        url: &Secret,
        secret: Secret,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        if secret.reveal().is_empty() {
            let advice = "a webhook needs a secret to sign with, such as 32 random bytes";
            return Err(SinkError::Secret { advice });
        }
        Ok(Self {
            endpoint: HttpEndpoint::new(url, settings, &[&secret])?,
            secret,
        })
    }

    pub(super) async fn post(
        &self,
        key: &str,
        body: &serde_json::Value,
        now_us: u64,
    ) -> Result<(), SendError> {
        let body = body.to_string().into_bytes();
        let timestamp_s = now_us / 1_000_000;
        let headers = [
            (TIMESTAMP_HEADER, timestamp_s.to_string()),
            (SIGNATURE_HEADER, sign(&self.secret, timestamp_s, &body)),
        ];
        self.endpoint.post(key, &headers, body, now_us).await
    }
}
