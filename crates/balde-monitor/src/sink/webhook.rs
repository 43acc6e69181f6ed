//! Any receiver of JSON, with a signature that it can check.

use crate::history::OutboxMessage;
use crate::sink::http::Receiver;
use crate::sink::{
    HttpSettings, SIGNATURE_HEADER, Secret, SendError, SinkError, TIMESTAMP_HEADER, event_json,
    sign,
};

/// Posts events as JSON, signed.
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
pub struct Webhook(SignedPost);

impl Webhook {
    /// Posts to `url`, signed with `secret`.
    pub fn new(
        url: impl Into<Secret>,
        secret: impl Into<Secret>,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        SignedPost::new(&url.into(), secret.into(), settings).map(Self)
    }

    pub(crate) async fn deliver(
        &self,
        message: &OutboxMessage,
        now_us: u64,
    ) -> Result<(), SendError> {
        let body = event_json(&message.event);
        self.0.post(&message.event.key, &body, now_us).await
    }
}

/// A POST of JSON whose receiver can tell whom it is from.
#[derive(Debug)]
pub(crate) struct SignedPost {
    receiver: Receiver,
    secret: Secret,
}

impl SignedPost {
    pub(crate) fn new(
        url: &Secret,
        secret: Secret,
        settings: &HttpSettings,
    ) -> Result<Self, SinkError> {
        if secret.reveal().is_empty() {
            let advice = "a webhook needs a secret to sign with; 32 random bytes are a good one";
            return Err(SinkError::Secret { advice });
        }
        Ok(Self {
            receiver: Receiver::new(url, settings, &[&secret])?,
            secret,
        })
    }

    pub(crate) async fn post(
        &self,
        key: &str,
        body: &serde_json::Value,
        now_us: u64,
    ) -> Result<(), SendError> {
        let body = body.to_string().into_bytes();
        let timestamp_s = now_us / 1_000_000;
        let fields = [
            (TIMESTAMP_HEADER, timestamp_s.to_string()),
            (SIGNATURE_HEADER, sign(&self.secret, timestamp_s, &body)),
        ];
        self.receiver.post(key, &fields, body, now_us).await
    }
}
