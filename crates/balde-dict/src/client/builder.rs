//! Builds a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde::{Clock, Limit, RateLimiter};
use balde_net::tls::install_crypto_provider;
use reqwest::{Certificate, Identity, Url};

use super::error::ClientBuildError;
use super::{Client, Inner, RetryPolicy};
use crate::wire::{Unverified, Verifier, is_ispb};

/// The default timeout of one attempt.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The most attempts of a call.
pub const ATTEMPTS_MAX: u32 = 10;

/// The published limits of the two operations.
const LIST_LIMIT: &str = "6/min burst 20";
const READ_LIMIT: &str = "60/min burst 200";

/// Builds a [`Client`]. Only the base URL and the participant have no default.
#[must_use = "a builder does nothing until it is built"]
pub struct ClientBuilder {
    base_url: String,
    participant: String,
    identity: Option<Vec<u8>>,
    ca: Option<Vec<u8>>,
    timeout: Duration,
    attempts: u32,
    retry: RetryPolicy,
    list_limit: Result<Limit, ClientBuildError>,
    read_limit: Result<Limit, ClientBuildError>,
    clock: Option<Clock>,
    verifier: Arc<dyn Verifier>,
}

impl ClientBuilder {
    pub(super) fn new(base_url: &str, participant: &str) -> Self {
        Self {
            base_url: base_url.to_owned(),
            participant: participant.to_owned(),
            identity: None,
            ca: None,
            timeout: TIMEOUT_DEFAULT,
            attempts: 3,
            retry: RetryPolicy::default(),
            list_limit: limit(LIST_LIMIT),
            read_limit: limit(READ_LIMIT),
            clock: None,
            verifier: Arc::new(Unverified),
        }
    }

    /// Sets the client certificate for mutual TLS: a certificate chain and its key, both as PEM.
    pub fn identity_pem(mut self, chain: &[u8], key: &[u8]) -> Self {
        self.identity = Some([chain, b"\n", key].concat());
        self
    }

    /// Sets the trusted authorities: certificates as PEM. By default, the system's.
    pub fn ca_pem(mut self, pem: &[u8]) -> Self {
        self.ca = Some(pem.to_vec());
        self
    }

    /// Sets the timeout of one attempt. By default, ten seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many times a call is attempted if it fails with a transient error, at most
    /// [`ATTEMPTS_MAX`]. By default, three times.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the wait before the second attempt. By default, half a second. Each further wait is twice
    /// as long, up to thirty seconds, minus a random part.
    pub fn backoff(mut self, first: Duration) -> Self {
        self.retry.backoff_first = first;
        self
    }

    /// Sets the longest total wait of a call: for its local bucket, for Retry-After and between
    /// attempts. By default, one minute. A call that would have to wait longer fails at once.
    pub fn wait_max(mut self, wait_max: Duration) -> Self {
        self.retry.wait_max = wait_max;
        self
    }

    /// Sets the client's own limit of listBucketStates calls, until DICT states another. By default,
    /// `6/min burst 20`.
    pub fn list_limit(mut self, text: &str) -> Self {
        self.list_limit = limit(text);
        self
    }

    /// Sets the client's own limit of getBucketState calls, until DICT states another. By default,
    /// `60/min burst 200`.
    pub fn read_limit(mut self, text: &str) -> Self {
        self.read_limit = limit(text);
        self
    }

    /// Sets the clock of the client's local buckets.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the verifier of responses' signatures. By default, signatures are not checked.
    pub fn verifier(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.verifier = verifier;
        self
    }

    /// Builds the client. It connects with the first call.
    pub fn build(self) -> Result<Client, ClientBuildError> {
        if !is_ispb(&self.participant) {
            return Err(ClientBuildError::Participant);
        }
        if self.timeout.is_zero() {
            let advice = "the timeout must be more than zero";
            return Err(ClientBuildError::Setting { advice });
        }
        if !(1..=ATTEMPTS_MAX).contains(&self.attempts) {
            let advice = "the attempts must be 1 to 10";
            return Err(ClientBuildError::Setting { advice });
        }
        let mut base = self.base_url.clone();
        if !base.ends_with('/') {
            base.push('/');
        }
        let base = Url::parse(&base).map_err(|_| ClientBuildError::BaseUrl)?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(ClientBuildError::BaseUrl);
        }
        install_crypto_provider();
        let mut http = reqwest::Client::builder()
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .gzip(true)
            .timeout(self.timeout);
        if let Some(ca) = &self.ca {
            let certificates = Certificate::from_pem_bundle(ca).map_err(|_| tls("the CA"))?;
            if certificates.is_empty() {
                return Err(tls("the CA"));
            }
            http = http.tls_certs_only(certificates);
        }
        if let Some(identity) = &self.identity {
            let identity =
                Identity::from_pem(identity).map_err(|_| tls("the client's certificate or key"))?;
            http = http.identity(identity);
        }
        let http = http.build().map_err(|_| tls("the certificates"))?;
        let limiter = |name: &str, limit: Limit| {
            let mut builder = RateLimiter::builder().name(name).limit(limit).keys_max(1);
            if let Some(clock) = &self.clock {
                builder = builder.clock(clock.clone());
            }
            builder.build().map_err(|_| ClientBuildError::Setting {
                advice: "a limit is outside of the supported range",
            })
        };
        Ok(Client(Arc::new(Inner {
            http,
            base,
            list: limiter("POLICIES_LIST", self.list_limit?)?,
            read: limiter("POLICIES_READ", self.read_limit?)?,
            participant: self.participant,
            attempts: self.attempts,
            retry: self.retry,
            verifier: self.verifier,
        })))
    }
}

fn limit(text: &str) -> Result<Limit, ClientBuildError> {
    text.parse().map_err(|_| ClientBuildError::Setting {
        advice: "a limit must have the form `6/min burst 20`",
    })
}

fn tls(what: &str) -> ClientBuildError {
    ClientBuildError::Tls {
        reason: format!("{what} cannot be read as PEM"),
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Private keys must not be logged.
        f.debug_struct("ClientBuilder")
            .field("participant", &self.participant)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
