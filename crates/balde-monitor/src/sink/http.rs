//! HTTP requests to a receiver.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use balde::http::headers;
use balde_net::tls::install_crypto_provider;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Certificate, Method, Response, Url};

use super::config_error::SinkError;
use super::error::{RESPONSE_CHARS_MAX, SendError, SendErrorKind};
use super::secret::Secret;
use crate::http_client::root_cause;

/// The default timeout of an attempt.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The longest timeout of an attempt.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(120);

/// The most bytes of a response body that are read.
pub const RESPONSE_BYTES_MAX: usize = 16 * 1_024;

/// How long the body of a successful response is read, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Parts of a URL that are shorter than this are not treated as secrets.
const SECRET_CHARS_MIN: usize = 8;

/// The header by which receivers discard duplicates.
const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// The settings of HTTP requests.
#[derive(Clone)]
#[must_use = "settings do nothing until a sink is made with them"]
pub struct HttpSettings {
    timeout: Duration,
    ca_pem: Option<Vec<u8>>,
    proxy: Option<Secret>,
}

impl HttpSettings {
    /// Sets the timeout of one attempt as a whole. By default [`TIMEOUT_DEFAULT`], at most
    /// [`TIMEOUT_MAX`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Trusts only these CA certificates (PEM). By default those of the system are trusted.
    pub fn ca_pem(mut self, pem: &[u8]) -> Self {
        self.ca_pem = Some(pem.to_vec());
        self
    }

    /// Sends requests through an HTTP proxy. By default there is none; environment variables are
    /// ignored.
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

/// One request.
pub(super) struct Call {
    method: Method,
    url: Url,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    /// Posts JSON. `key` becomes the Idempotency-Key.
    pub(super) fn json(url: Url, key: &str, body: Vec<u8>) -> Self {
        let call = Self {
            method: Method::POST,
            url,
            headers: Vec::new(),
            body,
        };
        call.header(CONTENT_TYPE.as_str(), "application/json")
            .header(IDEMPOTENCY_HEADER, &header_text(key))
    }

    pub(super) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets a header, in place of one of the same name.
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// What a receiver responded. The body of a success is not kept.
pub(super) struct Reply {
    pub(super) status: u16,
    retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    pub(super) const fn is_success(&self) -> bool {
        matches!(self.status, 200..300)
    }
}

/// A URL that accepts requests.
pub(super) struct HttpEndpoint {
    http: reqwest::Client,
    url: Url,
    /// Texts to mask in responses and errors.
    secrets: Vec<String>,
}

impl HttpEndpoint {
    pub(super) fn new(
        url: &Secret,
        settings: &HttpSettings,
        further_secrets: &[&Secret],
    ) -> Result<Self, SinkError> {
        const ADVICE: &str = "the URL must be complete and begin with http:// or https://";
        let url = Url::parse(url.reveal()).map_err(|_| SinkError::Url { advice: ADVICE })?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(SinkError::Url { advice: ADVICE });
        }
        let mut secrets = secrets_of(&url);
        secrets.extend(further_secrets.iter().map(|one| one.reveal().to_owned()));
        // The longest first, so that masking a part of another secret does not leave the rest.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Ok(Self {
            http: client(settings)?,
            url,
            secrets,
        })
    }

    /// The URL that the endpoint was made with.
    pub(super) const fn url(&self) -> &Url {
        &self.url
    }

    /// Posts JSON. `key` becomes the Idempotency-Key.
    pub(super) async fn post(
        &self,
        key: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
        now_us: u64,
    ) -> Result<(), SendError> {
        let mut call = Call::json(self.url.clone(), key, body);
        for (name, value) in headers {
            call = call.header(name, value);
        }
        let reply = self.call(call, now_us).await?;
        self.checked(&reply)
    }

    /// Makes one request, and reads the response.
    pub(super) async fn call(&self, call: Call, now_us: u64) -> Result<Reply, SendError> {
        let mut request = self.http.request(call.method, call.url);
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        let sent = request.body(call.body).send().await;
        let response = sent.map_err(|error| self.unreachable(error))?;
        let status = response.status();
        if status.is_success() {
            // The message was accepted, whatever the body is.
            let _ignored = tokio::time::timeout(DRAIN_TIMEOUT, read(response)).await;
            return Ok(Reply {
                status: status.as_u16(),
                retry_after: None,
                body: Vec::new(),
            });
        }
        let wait = retry_after(response.headers(), now_us)
            .filter(|_| matches!(status.as_u16(), 429 | 503));
        Ok(Reply {
            status: status.as_u16(),
            retry_after: wait,
            body: read(response).await,
        })
    }

    /// Returns an error for a reply that is not a success, with its body.
    pub(super) fn checked(&self, reply: &Reply) -> Result<(), SendError> {
        if reply.is_success() {
            return Ok(());
        }
        Err(self.refused(reply, &reply.body))
    }

    /// The error for a reply that is not a success, with a text about it.
    pub(super) fn refused(&self, reply: &Reply, text: &[u8]) -> SendError {
        let (status, body) = (reply.status, self.masked(text));
        SendError::new(SendErrorKind::Status { status, body }).with_retry_after(reply.retry_after)
    }

    fn unreachable(&self, error: reqwest::Error) -> SendError {
        if error.is_timeout() {
            return SendError::new(SendErrorKind::Timeout);
        }
        let reason = self.masked(root_cause(&error.without_url()).as_bytes());
        SendError::new(SendErrorKind::Unreachable { reason })
    }

    /// Masks secrets in a text from outside, and shortens it for a log.
    fn masked(&self, text: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(text).into_owned();
        for secret in &self.secrets {
            text = text.replace(secret, "***");
        }
        let words = text.split(|c: char| c.is_whitespace() || c.is_control());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ").chars().take(RESPONSE_CHARS_MAX).collect()
    }
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may be a secret; its host is not.
        f.debug_struct("HttpEndpoint")
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

/// Parses PEM certificates.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<Certificate>, SinkError> {
    let unreadable = || SinkError::Tls {
        reason: "the CA certificates are not valid PEM".to_owned(),
    };
    let certificates = Certificate::from_pem_bundle(pem).map_err(|_| unreadable())?;
    if certificates.is_empty() {
        return Err(unreadable());
    }
    Ok(certificates)
}

pub(super) fn checked_timeout(timeout: Duration) -> Result<Duration, SinkError> {
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        let advice = "the timeout of a sink must be greater than zero and at most two minutes";
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
        let advice = "the proxy must be a complete URL that begins with http:// or https://";
        let proxy = reqwest::Proxy::all(proxy.reveal()).map_err(|_| SinkError::Url { advice })?;
        http = http.proxy(proxy);
    }
    http.build().map_err(|_| SinkError::Tls {
        reason: "the certificates cannot be used".to_owned(),
    })
}

/// Returns the URL and every part of it that could be a token.
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

/// Reads Retry-After, as seconds or as a date, which is relative to `now_us`.
fn retry_after(headers: &HeaderMap, now_us: u64) -> Option<Duration> {
    let now = UNIX_EPOCH + Duration::from_micros(now_us);
    headers::read(headers, now).retry_after
}

/// Reads the body up to [`RESPONSE_BYTES_MAX`], or until an error.
async fn read(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = RESPONSE_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == RESPONSE_BYTES_MAX {
            break;
        }
    }
    body
}

/// Encodes a text as a header value: bytes that are not visible ASCII, and `%`, become `%XX`.
fn header_text(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            use std::fmt::Write;
            let _infallible = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Result<HttpEndpoint, SinkError> {
        HttpEndpoint::new(&Secret::new(url), &HttpSettings::default(), &[])
    }

    #[test]
    fn invalid_settings_are_rejected_without_repeating_them() {
        for url in [
            "",
            "hooks.example/x",
            "ftp://hooks.example/x",
            "http://",
            "file:///etc",
        ] {
            let error = endpoint(url).unwrap_err();
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
            let error = HttpEndpoint::new(&url, &settings, &[])
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn secrets_in_a_response_are_masked() {
        let url = "https://bob:password@hooks.example/services/T0000/XXXXXXXXXXXX?token=abcdefghij";
        let endpoint = endpoint(url).unwrap();
        let body = format!(
            "no such hook:\r\n {url} (/services/T0000/XXXXXXXXXXXX) XXXXXXXXXXXX abcdefghij \
             password"
        );
        assert_eq!(
            endpoint.masked(body.as_bytes()),
            "no such hook: *** (***) *** *** ***"
        );
        assert!(!format!("{endpoint:?}").contains("XXXX"));
        let long = endpoint.masked(&[b'a'; 5_000]);
        assert_eq!(long.len(), RESPONSE_CHARS_MAX);
    }

    #[test]
    fn any_key_fits_into_a_header() {
        assert_eq!(header_text("1/A/7/0/raised"), "1/A/7/0/raised");
        assert_eq!(header_text("ção 100%"), "%C3%A7%C3%A3o%20100%25");
    }
}
