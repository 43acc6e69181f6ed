//! A gateway's state endpoint: the buckets of a participant as JSON.

use std::fmt;
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Certificate, Url};
use serde::{Deserialize, Serialize};

use super::SourceError;
use crate::http_client::{install_crypto_provider, root_cause};
use crate::sample::{BucketId, Poll, ReportedLimit, Sample, SampleError};

/// The longest answer that is read.
pub const STATES_BYTES_MAX: usize = 1 << 20;

/// The longest Retry-After that is believed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Asks a gateway for the states of a participant's buckets: `GET url?participant=ISPB`, with a
/// bearer token where one is set.
#[derive(Clone)]
pub struct GatewayClient {
    http: reqwest::Client,
    url: Url,
    token: Option<String>,
}

impl GatewayClient {
    /// A gateway whose state endpoint is `url`, and the token that it wants, if it wants one.
    ///
    /// `ca` are the authorities to trust, as PEM; the system's where there are none.
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
        Ok(Self { http, url, token })
    }

    pub(super) async fn fetch(&self, participant: &str) -> Result<States, SourceError> {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("participant", participant);
        let mut request = self.http.get(url).header("Accept", "application/json");
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut response = request.send().await.map_err(|error| unreachable(&error))?;
        let status = response.status().as_u16();
        if status != 200 {
            let told = response.headers().get(RETRY_AFTER);
            let seconds = told.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let retry_after = seconds.map(|s| Duration::from_secs(s).min(RETRY_AFTER_MAX));
            return Err(SourceError::Status {
                status,
                retry_after,
            });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| cut_off(&error))? {
            if body.len() + chunk.len() > STATES_BYTES_MAX {
                let why = format!("it is longer than {STATES_BYTES_MAX} bytes");
                return Err(SourceError::InvalidResponse { why });
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|error| SourceError::InvalidResponse {
            why: error.to_string(),
        })
    }
}

impl fmt::Debug for GatewayClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the token nor an address that may have one in it.
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

/// What a gateway tells. Fields that are not known are passed over.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct States {
    category: Option<String>,
    /// The gateway's clock when it answered.
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

/// Why a gateway cannot be asked at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GatewayClientError {
    /// The URL is none, or neither http nor https.
    Url,
    /// The authorities cannot be read as PEM.
    Ca,
}

impl fmt::Display for GatewayClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url => "the gateway's URL must be http:// or https://, with host and path",
            Self::Ca => "the CA cannot be read as PEM",
        })
    }
}

impl std::error::Error for GatewayClientError {}

fn cut_off(error: &reqwest::Error) -> SourceError {
    if error.is_timeout() {
        return unreachable(error);
    }
    SourceError::Truncated
}

fn unreachable(error: &reqwest::Error) -> SourceError {
    if error.is_timeout() {
        let why = "it did not answer in time".to_owned();
        return SourceError::Unreachable { why };
    }
    SourceError::Unreachable {
        why: root_cause(error),
    }
}
