//! One POST to one receiver, and what its answer means.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use balde::http::headers;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Certificate, Response, Url};

use crate::http_client::{install_crypto_provider, root_cause};
use crate::sink::error::ANSWER_CHARS_MAX;
use crate::sink::{Secret, SendError, SendErrorKind, SinkError};

/// How long a receiver may take to answer, unless told otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The longest that a receiver may be given.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(120);

/// The most bytes of an answer that are read. What is beyond is of no interest to anybody.
pub const ANSWER_BYTES_MAX: usize = 16 * 1_024;

/// How long the rest of a good answer is waited for, so that its connection can be used again.
const DRAIN_WITHIN: Duration = Duration::from_secs(1);

/// Parts of an address that are shorter than this are not taken for secrets.
const SECRET_CHARS_MIN: usize = 8;

/// The field by which receivers discard repetitions.
const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// How a receiver is reached over HTTP.
#[derive(Clone)]
#[must_use = "settings do nothing until a sink is made with them"]
pub struct HttpSettings {
    timeout: Duration,
    ca_pem: Option<Vec<u8>>,
    proxy: Option<Secret>,
}

impl HttpSettings {
    /// How long one attempt may take in all; [`TIMEOUT_DEFAULT`] unless told otherwise, at most
    /// [`TIMEOUT_MAX`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whom to trust, and nobody else: certificates as PEM. The system's unless told otherwise.
    pub fn ca_pem(mut self, pem: &[u8]) -> Self {
        self.ca_pem = Some(pem.to_vec());
        self
    }

    /// An HTTP proxy on the way. None unless told so; the environment is not asked.
    pub fn proxy(mut self, url: impl Into<Secret>) -> Self {
        self.proxy = Some(url.into());
        self
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT_DEFAULT,
            ca_pem: None,
            proxy: None,
        }
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// An address that takes POSTs.
pub(crate) struct Receiver {
    http: reqwest::Client,
    url: Url,
    /// What must not be shown, should an answer repeat it.
    secrets: Vec<String>,
}

impl Receiver {
    pub(crate) fn new(
        url: &Secret,
        settings: &HttpSettings,
        further_secrets: &[&Secret],
    ) -> Result<Self, SinkError> {
        const ADVICE: &str = "the address must be a whole http:// or https:// URL";
        let url = Url::parse(url.reveal()).map_err(|_| SinkError::Url { advice: ADVICE })?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(SinkError::Url { advice: ADVICE });
        }
        let mut secrets = secrets_of(&url);
        secrets.extend(further_secrets.iter().map(|one| one.reveal().to_owned()));
        // The longest first, so that what is part of another does not spoil it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Ok(Self {
            http: client(settings)?,
            url,
            secrets,
        })
    }

    /// Posts JSON. `key` is the event's, the same with every attempt.
    pub(crate) async fn post(
        &self,
        key: &str,
        fields: &[(&'static str, String)],
        body: Vec<u8>,
        now_us: u64,
    ) -> Result<(), SendError> {
        let mut request = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(IDEMPOTENCY_HEADER, header_text(key));
        for (name, value) in fields {
            request = request.header(*name, value);
        }
        let sent = request.body(body).send().await;
        let response = sent.map_err(|error| self.unreachable(error))?;
        let status = response.status();
        if status.is_success() {
            // It was accepted; whatever else the answer says cannot undo that.
            let _not_of_interest = tokio::time::timeout(DRAIN_WITHIN, read(response)).await;
            return Ok(());
        }
        let wait = retry_after(response.headers(), now_us)
            .filter(|_| matches!(status.as_u16(), 429 | 503));
        let answer = self.shown(&read(response).await);
        let status = status.as_u16();
        Err(SendError::new(SendErrorKind::Status { status, answer }).retry_after_at_most(wait))
    }

    fn unreachable(&self, error: reqwest::Error) -> SendError {
        if error.is_timeout() {
            return SendError::new(SendErrorKind::Timeout);
        }
        let why = self.shown(root_cause(&error.without_url()).as_bytes());
        SendError::new(SendErrorKind::Unreachable { why })
    }

    /// Some text of somebody else's, fit for a log.
    fn shown(&self, text: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(text).into_owned();
        for secret in &self.secrets {
            text = text.replace(secret, "***");
        }
        let words = text.split(|c: char| c.is_whitespace() || c.is_control());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ").chars().take(ANSWER_CHARS_MAX).collect()
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may be a secret as a whole; its host is none.
        f.debug_struct("Receiver")
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

/// Whether certificates can be read, before anybody needs them.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<Certificate>, SinkError> {
    let unreadable = || SinkError::Tls {
        why: "the CA cannot be read as PEM".to_owned(),
    };
    let certificates = Certificate::from_pem_bundle(pem).map_err(|_| unreadable())?;
    if certificates.is_empty() {
        return Err(unreadable());
    }
    Ok(certificates)
}

pub(crate) fn checked_timeout(timeout: Duration) -> Result<Duration, SinkError> {
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        let advice = "the timeout of a sink must be more than zero and at most two minutes";
        return Err(SinkError::Setting { advice });
    }
    Ok(timeout)
}

fn client(settings: &HttpSettings) -> Result<reqwest::Client, SinkError> {
    install_crypto_provider();
    let timeout = checked_timeout(settings.timeout)?;
    let mut http = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("balde-monitor/", env!("CARGO_PKG_VERSION")))
        .timeout(timeout);
    if let Some(pem) = &settings.ca_pem {
        http = http.tls_certs_only(certificates(pem)?);
    }
    if let Some(proxy) = &settings.proxy {
        let advice = "the proxy must be a whole http:// or https:// URL";
        let proxy = reqwest::Proxy::all(proxy.reveal()).map_err(|_| SinkError::Url { advice })?;
        http = http.proxy(proxy);
    }
    http.build().map_err(|_| SinkError::Tls {
        why: "the certificates cannot be used".to_owned(),
    })
}

/// The whole address, and every part of it that could be a token.
fn secrets_of(url: &Url) -> Vec<String> {
    let segments = url.path().split('/').map(str::to_owned);
    let values = url.query_pairs().map(|(_, value)| value.into_owned());
    let password = url.password().map(str::to_owned);
    let parts = segments.chain(values).chain(password);
    let mut secrets: Vec<String> = parts
        .filter(|part| part.chars().count() >= SECRET_CHARS_MIN)
        .collect();
    secrets.push(url.as_str().to_owned());
    if url.path().len() > SECRET_CHARS_MIN {
        secrets.push(url.path().to_owned());
    }
    secrets
}

/// Seconds or a date; a date counts from `now_us`.
fn retry_after(headers: &HeaderMap, now_us: u64) -> Option<Duration> {
    let now = UNIX_EPOCH + Duration::from_micros(now_us);
    headers::read(headers, now).retry_after
}

/// The first bytes of an answer, as far as they come.
async fn read(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = ANSWER_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == ANSWER_BYTES_MAX {
            break;
        }
    }
    body
}

/// A field's value is visible ASCII; everything else, and the percent sign, goes as `%xx`.
fn header_text(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            use std::fmt::Write;
            let _a_string_takes_everything = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(url: &str) -> Result<Receiver, SinkError> {
        Receiver::new(&Secret::new(url), &HttpSettings::default(), &[])
    }

    #[test]
    fn what_is_no_address_timeout_or_certificate_is_refused_without_repeating_it() {
        for url in [
            "",
            "hooks.example/x",
            "ftp://hooks.example/x",
            "http://",
            "file:///etc",
        ] {
            let error = receiver(url).unwrap_err();
            assert!(matches!(error, SinkError::Url { .. }), "{url}: {error}");
        }
        let url = Secret::new("https://hooks.example/x");
        for (settings, expected) in [
            (HttpSettings::default().timeout(Duration::ZERO), "timeout"),
            (
                HttpSettings::default().timeout(Duration::from_secs(121)),
                "two minutes",
            ),
            (HttpSettings::default().ca_pem(b"no certificate"), "PEM"),
            (HttpSettings::default().proxy(""), "proxy"),
        ] {
            let error = Receiver::new(&url, &settings, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_answer_that_repeats_a_secret_is_shown_without_it() {
        let url = "https://bob:password@hooks.example/services/T0000/XXXXXXXXXXXX?token=abcdefghij";
        let receiver = receiver(url).unwrap();
        let answer = format!(
            "no such hook:\r\n {url} (/services/T0000/XXXXXXXXXXXX) XXXXXXXXXXXX abcdefghij \
             password"
        );
        assert_eq!(
            receiver.shown(answer.as_bytes()),
            "no such hook: *** (***) *** *** ***"
        );
        assert!(!format!("{receiver:?}").contains("XXXX"));
        let long = receiver.shown(&[b'a'; 5_000]);
        assert_eq!(long.len(), ANSWER_CHARS_MAX);
    }

    #[test]
    fn a_key_of_any_letters_fits_into_a_field() {
        assert_eq!(header_text("1/A/7/0/raised"), "1/A/7/0/raised");
        assert_eq!(header_text("ção 100%"), "%C3%A7%C3%A3o%20100%25");
    }
}
