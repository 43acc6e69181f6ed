//! How a client is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde::{Clock, Limit, RateLimiter};
use reqwest::{Certificate, Identity, Url};

use super::error::ClientBuildError;
use super::{Client, Inner, RetryPolicy};
use crate::tls::install_crypto_provider;
use crate::wire::{Unverified, Verifier, is_ispb};

/// How long an answer may take unless told otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The most attempts of one call.
pub const ATTEMPTS_MAX: u32 = 10;

/// What DICT's own tables give the two operations.
const LIST_LIMIT: &str = "6/min burst 20";
const READ_LIMIT: &str = "60/min burst 200";

/// Collects what a [`Client`] needs. Only the base URL and the participant have no default.
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

    /// Who this client is under mutual TLS: a certificate chain and its key, both as PEM.
    pub fn identity_pem(mut self, chain: &[u8], key: &[u8]) -> Self {
        self.identity = Some([chain, b"\n", key].concat());
        self
    }

    /// Whom to trust: certificates as PEM. The system's unless told otherwise.
    pub fn ca_pem(mut self, pem: &[u8]) -> Self {
        self.ca = Some(pem.to_vec());
        self
    }

    /// How long one attempt may take; ten seconds unless told otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How often a call that fails for a passing reason is tried; three times unless told otherwise,
    /// at most [`ATTEMPTS_MAX`].
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// How long to wait before the second attempt; each further wait is twice the one before, up to
    /// thirty seconds, less a random part. Half a second unless told otherwise.
    pub fn backoff(mut self, first: Duration) -> Self {
        self.retry.backoff_first = first;
        self
    }

    /// The longest that a call waits in all, for its own bucket, for a Retry-After or between
    /// attempts; one minute unless told otherwise. A call that would have to wait longer fails at
    /// once and says how long.
    pub fn wait_max(mut self, wait_max: Duration) -> Self {
        self.retry.wait_max = wait_max;
        self
    }

    /// What this client holds itself to in listBucketStates until DICT says otherwise; six a minute
    /// and a burst of 20 unless told otherwise.
    pub fn list_limit(mut self, text: &str) -> Self {
        self.list_limit = limit(text);
        self
    }

    /// The same for getBucketState; sixty a minute and a burst of 200 unless told otherwise.
    pub fn read_limit(mut self, text: &str) -> Self {
        self.read_limit = limit(text);
        self
    }

    /// The clock of its own buckets.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Who checks the signatures of answers. Nobody, unless told otherwise.
    pub fn verifier(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.verifier = verifier;
        self
    }

    /// The client, or what is wrong. Whether DICT is there does not matter yet.
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
                advice: "a limit cannot be kept",
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
        advice: "a limit is written as `6/min burst 20`",
    })
}

fn tls(what: &str) -> ClientBuildError {
    ClientBuildError::Tls {
        why: format!("{what} cannot be read as PEM"),
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are not for logs.
        f.debug_struct("ClientBuilder")
            .field("participant", &self.participant)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
