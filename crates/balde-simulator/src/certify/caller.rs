//! Sends the requests of a conversation to one address.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use balde_dict::wire::{Element, Signer, XML_BYTES_MAX};
use balde_net::tls::install_crypto_provider;
use reqwest::{Certificate, Identity, Method, Url};

use super::CertifyError;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The published addresses, and those of checkKeys beside them.
const NP_HOSTS: [(&str, &str); 2] = [
    (
        "dict-h.pi.rsfn.net.br:16522",
        "dict-np-h.pi.rsfn.net.br:16532",
    ),
    ("dict.pi.rsfn.net.br:16422", "dict-np.pi.rsfn.net.br:16432"),
];

/// Sends requests to one DICT.
pub struct Caller {
    url: String,
    np_url: String,
    http: reqwest::Client,
    signer: Option<Arc<dyn Signer>>,
}

/// A request with all values filled in.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) headers: BTreeMap<&'static str, String>,
    pub(super) body: Option<String>,
    pub(super) is_on_np: bool,
}

/// An answer, and its document if it has one.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: String,
    pub(super) root: Option<Element>,
}

impl Caller {
    /// Creates a caller of an address such as `https://dict-h.pi.rsfn.net.br:16522/api/v2/`. `identity`
    /// is a client certificate with its key and `authorities` are trusted instead of the system's, all
    /// as PEM.
    pub fn new(
        url: &str,
        identity: Option<(&[u8], &[u8])>,
        authorities: Option<&[u8]>,
    ) -> Result<Self, CertifyError> {
        install_crypto_provider();
        let invalid = || CertifyError::Url {
            url: url.to_owned(),
        };
        let parsed: Url = url.parse().map_err(|_| invalid())?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(invalid());
        }
        let tls = |reason: &str| CertifyError::Tls {
            reason: reason.to_owned(),
        };
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT);
        if let Some((certificate, key)) = identity {
            let pem = [certificate, b"\n", key].concat();
            let identity = Identity::from_pem(&pem);
            let identity = identity.map_err(|_| tls("the client certificate or its key"))?;
            http = http.identity(identity);
        }
        if let Some(pem) = authorities {
            let authorities = Certificate::from_pem_bundle(pem);
            let authorities = authorities.map_err(|_| tls("the certificate authorities"))?;
            http = http.tls_certs_only(authorities);
        }
        let url = url.trim_end_matches('/').to_owned();
        let mut np_url = url.replacen("/api/", "/api-np/", 1);
        for (host, np_host) in NP_HOSTS {
            np_url = np_url.replacen(host, np_host, 1);
        }
        Ok(Self {
            url,
            np_url,
            http: http.build().map_err(|error| tls(&error.to_string()))?,
            signer: None,
        })
    }

    /// Signs writes. By default, their signature is empty.
    #[must_use]
    pub fn signer(mut self, signer: Arc<dyn Signer>) -> Self {
        self.signer = Some(signer);
        self
    }

    /// The address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns true if the address is on this machine.
    pub fn is_loopback(&self) -> bool {
        let parsed: Option<Url> = self.url.parse().ok();
        parsed.is_some_and(|url| match url.host_str() {
            Some("localhost") => true,
            Some(host) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let address: Result<std::net::IpAddr, _> = host.parse();
                address.is_ok_and(|address| address.is_loopback())
            }
            None => false,
        })
    }

    /// Sends a request. The error says why there was no answer.
    pub(super) async fn send(&self, request: &Request) -> Result<Answer, String> {
        let base = if request.is_on_np {
            &self.np_url
        } else {
            &self.url
        };
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|e| e.to_string())?;
        let mut builder = self.http.request(method, format!("{base}{}", request.path));
        builder = builder.header("Accept", "application/xml, application/problem+xml");
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if let Some(body) = &request.body {
            let body = match &self.signer {
                Some(signer) if !request.is_on_np => signer
                    .sign(body.clone())
                    .map_err(|error| error.to_string())?,
                _ => body.clone(),
            };
            builder = builder.header("Content-Type", "application/xml").body(body);
        }
        let mut response = builder.send().await.map_err(|error| innermost(&error))?;
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type");
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| innermost(&error))? {
            if body.len() + chunk.len() > XML_BYTES_MAX {
                return Err("the answer is too long".to_owned());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer {
            status,
            content_type,
            root: Element::read(&body).ok(),
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

impl Request {
    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{} {}\n", self.method, self.path);
        for (name, value) in &self.headers {
            let _never_fails = writeln!(text, "{name}: {value}");
        }
        if let Some(body) = &self.body {
            text.push('\n');
            text.push_str(body);
        }
        text
    }
}

impl Answer {
    pub(super) fn to_text(&self) -> String {
        format!("{} {}\n\n{}", self.status, self.content_type, self.body)
    }
}

fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
