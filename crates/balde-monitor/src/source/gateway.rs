//! A client for a gateway's state endpoint, which returns the buckets of a participant as JSON.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde_net::tls::install_crypto_provider;
use parking_lot::Mutex;
use reqwest::header::RETRY_AFTER;
use reqwest::{Certificate, Url};
use serde::{Deserialize, Serialize};

use super::SourceError;
use super::gateway_report::{GatewayReport, LastReport};
use crate::http_client::root_cause;
use crate::sample::{BucketId, Poll, ReportedLimit, Sample, SampleError};

/// The longest response that is read, in bytes.
const STATES_BYTES_MAX: usize = 1 << 20;

/// The longest error response that is read, in bytes.
const DETAIL_BYTES_MAX: u64 = 4_096;

/// The longest Retry-After that is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Fetches the bucket states of a participant from a gateway: `GET url?participant=ISPB`, with a
/// bearer token if one is set.
#[derive(Clone)]
pub struct GatewayClient {
    http: reqwest::Client,
    url: Url,
    token: Option<String>,
    /// What the gateway said last besides the levels. Clones share it.
    last: Arc<Mutex<LastReport>>,
}

impl GatewayClient {
    /// Creates a client for the state endpoint at `url`, with an optional bearer token.
    ///
    /// `ca` holds the certificate authorities to trust, as PEM; by default those of the system.
    pub fn new(
        url: &str,
        token: Option<String>,
        ca: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<Self, GatewayClientError> {
        let url = Url::parse(url).map_err(|_| GatewayClientError::Url)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(GatewayClientError::Url);
        }
        install_crypto_provider();
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(timeout);
        if let Some(ca) = ca {
            let authorities = Certificate::from_pem_bundle(ca).ok();
            let authorities = authorities.filter(|list| !list.is_empty());
            http = http.tls_certs_only(authorities.ok_or(GatewayClientError::Ca)?);
        }
        let http = http.build().map_err(|_| GatewayClientError::Ca)?;
        Ok(Self {
            http,
            url,
            token,
            last: Arc::default(),
        })
    }

    /// What the gateway said last besides the levels; `None` before its first response.
    pub fn report(&self) -> Option<GatewayReport> {
        self.last.lock().report().cloned()
    }

    /// How many requests of a policy the gateway had refused within the minutes that its report
    /// covers, each time that number changed. From memory: it begins with this process.
    pub fn refusals(&self, policy: &str) -> Vec<(u64, u64)> {
        self.last.lock().refusals(policy)
    }

    /// Reads the report again, without the levels.
    pub(crate) async fn refresh(
        &self,
        participant: &str,
        now_us: impl Fn() -> u64,
    ) -> Result<(), SourceError> {
        let (_, report) = self.fetch(participant).await?;
        self.record(report, now_us());
        Ok(())
    }

    /// Keeps what a response said besides the levels.
    pub(super) fn record(&self, report: Option<GatewayReport>, read_us: u64) {
        if let Some(report) = report {
            self.last.lock().record(report, read_us);
        }
    }

    /// Fetches the states, and what the gateway says besides. The latter is for people: if it cannot
    /// be read, the states still count.
    pub(super) async fn fetch(
        &self,
        participant: &str,
    ) -> Result<(States, Option<GatewayReport>), SourceError> {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("participant", participant);
        let mut request = self.http.get(url).header("Accept", "application/json");
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut response = request
            .send()
            .await
            .map_err(|error| request_error(&error))?;
        let status = response.status().as_u16();
        if status == 404 {
            let detail = error_detail(response).await;
            return Err(SourceError::UnknownParticipant { detail });
        }
        if status != 200 {
            let header = response.headers().get(RETRY_AFTER);
            let seconds = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let retry_after = seconds.map(|s| Duration::from_secs(s).min(RETRY_AFTER_MAX));
            return Err(SourceError::Status {
                status,
                retry_after,
            });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| body_error(&error))? {
            if body.len() + chunk.len() > STATES_BYTES_MAX {
                let why = format!("it is longer than {STATES_BYTES_MAX} bytes");
                return Err(SourceError::InvalidResponse { why });
            }
            body.extend_from_slice(&chunk);
        }
        let states =
            serde_json::from_slice(&body).map_err(|error| SourceError::InvalidResponse {
                why: error.to_string(),
            })?;
        Ok((states, serde_json::from_slice(&body).ok()))
    }
}

impl fmt::Debug for GatewayClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both the token and the URL may hold a secret.
        f.debug_struct("GatewayClient").finish_non_exhaustive()
    }
}

/// The gateway's response. Unknown fields are ignored.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct States {
    category: Option<String>,
    /// The gateway's time of the response.
    answered_us: Option<u64>,
    policies: Vec<State>,
}

#[derive(Debug, Deserialize, Serialize)]
struct State {
    policy: String,
    level: i64,
    capacity: u64,
    refill_tokens: u64,
    period_us: u64,
}

impl States {
    pub(super) fn poll(&self, participant: &str, taken_us: u64) -> Result<Poll, SampleError> {
        let sample = |state: &State| {
            let limit = ReportedLimit::new(state.capacity, state.refill_tokens, state.period_us)?;
            let bucket = BucketId::new(participant, &state.policy)?;
            let mut sample = Sample::new(bucket, limit, state.level, taken_us)?;
            if let Some(category) = &self.category {
                sample = sample.with_category(category)?;
            }
            match self.answered_us {
                Some(us) => sample.answered_at(us),
                None => Ok(sample),
            }
        };
        let samples: Result<Vec<Sample>, SampleError> = self.policies.iter().map(sample).collect();
        Poll::new(samples?)
    }
}

/// Why a [`GatewayClient`] could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayClientError {
    /// The URL is not valid, or its scheme is neither http nor https.
    #[error("the gateway's URL must be http:// or https://, with host and path")]
    Url,
    /// The certificate authorities are not valid PEM.
    #[error("the CA cannot be read as PEM")]
    Ca,
}

/// What an error response of a gateway says, as one line; `None` if it is not one of a balde gateway.
async fn error_detail(response: reqwest::Response) -> Option<String> {
    #[derive(Deserialize)]
    struct Body {
        error: String,
    }
    let is_short = response.content_length()? <= DETAIL_BYTES_MAX;
    let body = if is_short {
        response.bytes().await.ok()?
    } else {
        return None;
    };
    let Body { error } = serde_json::from_slice(&body).ok()?;
    let is_printable = !error.chars().any(char::is_control);
    is_printable.then_some(error)
}

fn body_error(error: &reqwest::Error) -> SourceError {
    if error.is_timeout() {
        return request_error(error);
    }
    SourceError::Truncated
}

fn request_error(error: &reqwest::Error) -> SourceError {
    if error.is_timeout() {
        let why = "it did not respond in time".to_owned();
        return SourceError::Unreachable { why };
    }
    SourceError::Unreachable {
        why: root_cause(error),
    }
}
