//! A client for DICT's bucket states, which limits its own calls so that it never empties a bucket.

mod builder;
mod error;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde::{Backoff, Limit, RateLimiter};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::RETRY_AFTER;
use reqwest::{Response, Url};

pub use builder::{ATTEMPTS_MAX, ClientBuilder};
pub use error::{ClientBuildError, ClientError};

use crate::wire::{BucketState, BucketStates, Problem, Verifier, XML_BYTES_MAX};

/// The longest wait between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The longest Retry-After that is respected.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The characters of a path segment that are escaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');

/// The only key of this client's local buckets.
const LOCAL_KEY: &str = "own";

/// A client for listBucketStates and getBucketState. Clones share connections and buckets.
///
/// Before each attempt, including retries, the client takes a token from a local bucket. The local
/// bucket has the published limit until DICT's responses state another. So monitoring never empties
/// the buckets that it monitors.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use balde_dict::client::Client;
///
/// let client = Client::builder("https://dict-h.pi.rsfn.net.br:16522/api/v2/", "12345678")
///     .identity_pem(&std::fs::read("client.pem")?, &std::fs::read("client.key")?)
///     .build()?;
/// for state in client.list_bucket_states().await?.policies {
///     println!("{} {}", state.name, state.available_tokens);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: reqwest::Client,
    base: Url,
    participant: String,
    list: RateLimiter,
    read: RateLimiter,
    attempts: u32,
    retry: RetryPolicy,
    verifier: Arc<dyn Verifier>,
}

/// How calls are retried.
#[derive(Clone, Copy, Debug)]
struct RetryPolicy {
    backoff_first: Duration,
    wait_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff_first: Duration::from_millis(500),
            wait_max: Duration::from_secs(60),
        }
    }
}

impl Client {
    /// Builds a client of a participant.
    pub fn builder(base_url: &str, participant: &str) -> ClientBuilder {
        ClientBuilder::new(base_url, participant)
    }

    /// Calls listBucketStates: the states of all the participant's buckets.
    pub async fn list_bucket_states(&self) -> Result<BucketStates, ClientError> {
        self.call(&self.0.list, "policies/").await
    }

    /// Calls getBucketState: the state of one policy's bucket.
    pub async fn get_bucket_state(&self, policy: &str) -> Result<BucketStates, ClientError> {
        // The name is one segment of the path, whatever characters it contains.
        let name = utf8_percent_encode(policy, SEGMENT);
        let path = format!("policies/{name}");
        self.call(&self.0.read, &path).await
    }

    async fn call(&self, own: &RateLimiter, path: &str) -> Result<BucketStates, ClientError> {
        let mut waited = Duration::ZERO;
        let mut attempt = 1;
        loop {
            self.take(own, &mut waited).await?;
            let error = match self.attempt(path).await {
                Ok(states) => {
                    self.apply_states(&states).await;
                    return Ok(states);
                }
                Err(error) => error,
            };
            if matches!(error, ClientError::RateLimited { .. }) {
                // Another client uses the same bucket.
                let _memory_cannot_fail = own.set_level(LOCAL_KEY, 0).await;
            }
            if !error.is_transient() || attempt == self.0.attempts {
                return Err(error);
            }
            let wait = error.retry_after().unwrap_or_else(|| self.backoff(attempt));
            if waited + wait > self.0.retry.wait_max {
                return Err(error);
            }
            waited += wait;
            attempt += 1;
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes a token from a local bucket, and waits for it within `wait_max`.
    async fn take(&self, own: &RateLimiter, waited: &mut Duration) -> Result<(), ClientError> {
        loop {
            let decision = own.check(LOCAL_KEY).await;
            if decision.is_allowed() {
                return Ok(());
            }
            let retry_after = decision.retry_after().unwrap_or(RETRY_AFTER_MAX);
            if *waited + retry_after > self.0.retry.wait_max {
                return Err(ClientError::LocalLimit { retry_after });
            }
            *waited += retry_after;
            tokio::time::sleep(retry_after).await;
        }
    }

    async fn attempt(&self, path: &str) -> Result<BucketStates, ClientError> {
        let url = self
            .0
            .base
            .join(path)
            .map_err(|_| ClientError::Unreachable {
                reason: "the URL of the request is invalid".to_owned(),
            })?;
        let request = self
            .0
            .http
            .get(url)
            .header("PI-RequestingParticipant", &self.0.participant)
            .header("Accept", "application/xml, application/problem+xml");
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        let status = response.status().as_u16();
        let retry_after = retry_after(&response);
        let body = read_body(response).await?;
        if status == 200 {
            self.0
                .verifier
                .verify(&body)
                .map_err(ClientError::Signature)?;
            return BucketStates::read(&body).map_err(ClientError::InvalidResponse);
        }
        let problem = Problem::read(&body).ok();
        Err(match status {
            403 => ClientError::Forbidden(problem),
            429 => ClientError::RateLimited { retry_after },
            503 => ClientError::Unavailable {
                retry_after,
                problem,
            },
            _ => ClientError::Status { status, problem },
        })
    }

    /// Sets the local buckets to the limits that DICT states, and to its levels if those are lower.
    async fn apply_states(&self, states: &BucketStates) {
        for (own, name) in [
            (&self.0.list, "POLICIES_LIST"),
            (&self.0.read, "POLICIES_READ"),
        ] {
            let Some(state) = states.policies.iter().find(|state| state.name == name) else {
                continue;
            };
            if let Some(limit) = limit_of(state)
                && limit != own.limit()
            {
                let _any_limit_is_accepted = own.set_limit(limit);
            }
            let level = own
                .peek(LOCAL_KEY)
                .await
                .map_or(0, |decision| decision.level());
            if state.available_tokens < level {
                let _memory_cannot_fail = own.set_level(LOCAL_KEY, state.available_tokens).await;
            }
        }
    }

    fn backoff(&self, attempt: u32) -> Duration {
        let first = self.0.retry.backoff_first.min(BACKOFF_MAX);
        let backoff = Backoff::new(first, BACKOFF_MAX);
        let longest = backoff.map_or(first, |backoff| backoff.delay(attempt - 1));
        // Jitter, so that clients that failed together do not retry together.
        longest.saturating_sub(longest * fastrand::u32(0..=500) / 1_000)
    }
}

/// The limit that a bucket state describes, if its numbers are valid.
fn limit_of(state: &BucketState) -> Option<Limit> {
    let capacity = u64::try_from(state.capacity).ok()?;
    let refill = u64::try_from(state.refill_tokens).ok()?;
    let period = u64::try_from(state.refill_period_sec).ok()?;
    Limit::bucket_of(capacity, refill, Duration::from_secs(period)).ok()
}

fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = value.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= XML_BYTES_MAX => body.extend(chunk),
            Ok(Some(_)) => return Err(ClientError::TooLong),
            Ok(None) => return Ok(body),
            Err(error) if error.is_timeout() => return Err(ClientError::Timeout),
            Err(_) => return Err(ClientError::Truncated),
        }
    }
}

fn unreachable(error: &reqwest::Error) -> ClientError {
    if error.is_timeout() {
        return ClientError::Timeout;
    }
    // The innermost cause is the most specific one, and contains no address.
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    ClientError::Unreachable {
        reason: cause.to_string(),
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("participant", &self.0.participant)
            .finish_non_exhaustive()
    }
}
