//! A tower layer for HTTP clients: each request waits for its tokens, and each response is read for what
//! the server says about its limits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use ::http::header::HOST;
use ::http::uri::Authority;
use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use balde::http::headers::{RateLimitStatus, read};
use tower_layer::Layer;
use tower_service::Service;

use crate::error::RunError;
use crate::inner::PartitionRef;
use crate::name::PARTITION_BYTES_MAX;
use crate::outcome::{Outcome, Report};
use crate::throttler::{Throttler, permit};

/// The partition of requests without a host.
const NO_HOST: &str = "no host";

type PartitionOf = Arc<dyn Fn(&Method, &Uri, &HeaderMap) -> String + Send + Sync>;
type OutcomeOf = Arc<dyn Fn(StatusCode) -> Outcome + Send + Sync>;

/// A tower layer that throttles a client: hyper's, or any other service that takes an [`http::Request`]
/// and returns an [`http::Response`].
///
/// By default each host is a partition, and each request takes one token. From a response the layer
/// reads `Retry-After`, `RateLimit` and `X-RateLimit-*`, and the status: 429 and 503 are
/// [`Outcome::Pushback`], 408 and 504 [`Outcome::Timeout`], other 5xx [`Outcome::Error`], all others
/// [`Outcome::Success`]. A request that is cancelled is [`Outcome::Unknown`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use balde_throttle::{ThrottleLayer, Throttler};
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let throttler = Throttler::new(1_000, 100)?;
/// // A server that is overloaded.
/// let client = service_fn(async |_: Request<()>| {
///     let busy = Response::builder().status(503).header("retry-after", "2");
///     Ok::<_, Infallible>(busy.body(()).expect("a response"))
/// });
/// let client = ServiceBuilder::new()
///     .layer(ThrottleLayer::new(&throttler))
///     .service(client);
///
/// client.oneshot(Request::get("http://api.example/items").body(())?).await?;
/// let stats = throttler.stats();
/// assert_eq!(stats[0].name(), "api.example");
/// assert_eq!(stats[0].pace().to_string(), "90/s burst 9");
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct ThrottleLayer {
    throttler: Throttler,
    partition: PartitionOf,
    outcome: OutcomeOf,
    tokens: u64,
    within: Option<Duration>,
}

impl ThrottleLayer {
    /// A layer with one token per request and one partition per host.
    pub fn new(throttler: &Throttler) -> Self {
        Self {
            throttler: throttler.clone(),
            partition: Arc::new(host),
            outcome: Arc::new(outcome_of),
            tokens: 1,
            within: None,
        }
    }

    /// Sets how the name of a request's partition is derived. The host by default.
    pub fn partition(
        mut self,
        partition: impl Fn(&Method, &Uri, &HeaderMap) -> String + Send + Sync + 'static,
    ) -> Self {
        self.partition = Arc::new(partition);
        self
    }

    /// Sets which outcome a status is.
    pub fn outcome(
        mut self,
        outcome: impl Fn(StatusCode) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        self.outcome = Arc::new(outcome);
        self
    }

    /// Sets how many tokens a request takes. One by default.
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets how long a request may wait for its tokens before it fails with
    /// [`Refusal::Deadline`](crate::Refusal::Deadline). Without a limit by default.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }
}

impl fmt::Debug for ThrottleLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleLayer")
            .field("throttler", &self.throttler)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = ThrottleService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ThrottleService {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service that [`ThrottleLayer`] wraps around a client.
#[derive(Clone, Debug)]
pub struct ThrottleService<S> {
    inner: S,
    layer: ThrottleLayer,
}

impl<S, B, R> Service<Request<B>> for ThrottleService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = RunError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(RunError::Failed)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `poll_ready` was called on this instance, so it handles the request. The clone replaces it.
        let clone = self.inner.clone();
        let mut service = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            let name = (layer.partition)(request.method(), request.uri(), request.headers());
            let inner = layer.throttler.inner();
            let partition = PartitionRef::Name(&name);
            let permit = permit(inner, partition, layer.tokens, layer.within).await?;
            let result = service.call(request).await;
            permit.report(match &result {
                Ok(response) => {
                    let now_us = inner.clock.now_us();
                    let now = SystemTime::UNIX_EPOCH + Duration::from_micros(now_us);
                    let outcome = (layer.outcome)(response.status());
                    report(outcome, &read(response.headers(), now))
                }
                Err(_) => Outcome::Error.into(),
            });
            result.map_err(RunError::Failed)
        })
    }
}

/// The report for a response: its outcome, and what it says about limits. Of several limits, the one
/// with the least remaining is used.
fn report(outcome: Outcome, reported: &RateLimitStatus) -> Report {
    let mut report = Report::from(outcome);
    if let Some(wait) = reported.retry_after
        && outcome != Outcome::Success
    {
        report = report.retry_after(wait);
    }
    let quotas = reported
        .limits
        .iter()
        .filter_map(|limit| limit.remaining.zip(limit.reset));
    // Of two with as little remaining, the one that resets later.
    let least = quotas.min_by_key(|(remaining, reset)| (*remaining, std::cmp::Reverse(*reset)));
    match least {
        Some((remaining, reset)) => report.remaining(remaining, reset),
        None => report,
    }
}

fn outcome_of(status: StatusCode) -> Outcome {
    match status.as_u16() {
        429 | 503 => Outcome::Pushback,
        408 | 504 => Outcome::Timeout,
        500..=599 => Outcome::Error,
        _ => Outcome::Success,
    }
}

/// The host of a request, in one spelling: lower case, without a port and without the dot at the end of
/// an absolute name. URLs may come from users, who must not get a partition for each spelling.
fn host(_method: &Method, uri: &Uri, headers: &HeaderMap) -> String {
    let in_header = || {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok())?;
        host.parse::<Authority>().ok()
    };
    let authority = uri.authority().cloned().or_else(in_header);
    let host = authority.as_ref().map(Authority::host);
    let host = host.map(|host| host.strip_suffix('.').unwrap_or(host));
    let host = host.filter(|host| !host.is_empty()).unwrap_or(NO_HOST);
    let mut host = host.to_ascii_lowercase();
    host.truncate(PARTITION_BYTES_MAX);
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        let of = |uri: &str, header: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(HOST, header.parse().unwrap());
            }
            host(&Method::GET, &uri.parse().unwrap(), &headers)
        };
        for (uri, header) in [
            ("http://api.example/", None),
            ("http://API.example:8080/", None),
            ("https://api.example./", Some("other.example")),
            ("http://user@api.example/", None),
            ("/items", Some("api.example")),
            ("/items", Some("Api.Example.:443")),
        ] {
            assert_eq!(of(uri, header), "api.example", "{uri} {header:?}");
        }
        assert_eq!(of("http://[::1]:80/", None), "[::1]");
        for (uri, header) in [("/items", None), ("/items", Some("a b")), ("/", Some("."))] {
            assert_eq!(of(uri, header), NO_HOST, "{uri} {header:?}");
        }
        assert_eq!(of(&format!("http://{}/", "a".repeat(200)), None).len(), 128);
    }
}
