//! The throttler around an HTTP client, as a tower layer: every request waits for its tokens, and every
//! answer is read for what the other side says about its limits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use ::http::header::HOST;
use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use tower_layer::Layer;
use tower_service::Service;

use super::error::RunError;
use super::shared::Whom;
use super::signal::{Outcome, Report};
use super::throttler::{Throttler, permit};
use crate::http::headers::{RateLimitStatus, read};

/// The partition of requests that name no host.
const NO_HOST: &str = "no host";

type PartitionOf = Arc<dyn Fn(&Method, &Uri, &HeaderMap) -> String + Send + Sync>;
type OutcomeOf = Arc<dyn Fn(StatusCode) -> Outcome + Send + Sync>;

/// Puts a [`Throttler`] around a client: hyper's, or any other that takes an [`http::Request`] and
/// returns an [`http::Response`].
///
/// Requests of one host are one partition, unless told otherwise. What is read from an answer, best
/// first: `Retry-After`, then `RateLimit` and `X-RateLimit-*`, then the status. 429 and 503 push back,
/// 408 and 504 are timeouts, other 5xx are errors; everything else is a success. A request that is
/// dropped half way counts for nothing.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use balde::throttle::{ThrottleLayer, Throttler};
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let throttler = Throttler::new(1_000, 100)?;
/// // Somebody who is busy.
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
    /// One token for each request, one partition for each host.
    pub fn new(throttler: &Throttler) -> Self {
        Self {
            throttler: throttler.clone(),
            partition: Arc::new(host),
            outcome: Arc::new(outcome_of),
            tokens: 1,
            within: None,
        }
    }

    /// Which partition a request belongs to.
    pub fn partition(
        mut self,
        partition: impl Fn(&Method, &Uri, &HeaderMap) -> String + Send + Sync + 'static,
    ) -> Self {
        self.partition = Arc::new(partition);
        self
    }

    /// What a status says, where it is not what the layer takes it for.
    pub fn outcome(
        mut self,
        outcome: impl Fn(StatusCode) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        self.outcome = Arc::new(outcome);
        self
    }

    /// How many tokens a request takes.
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }

    /// How long a request may wait for its tokens before it fails with
    /// [`Refused::Deadline`](super::Refused::Deadline).
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

/// What [`ThrottleLayer`] makes of a client.
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
        // The one that is ready goes along; the copy will have to get ready.
        let copy = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, copy);
        let layer = self.layer.clone();
        Box::pin(async move {
            let name = (layer.partition)(request.method(), request.uri(), request.headers());
            let shared = layer.throttler.shared();
            let permit = permit(shared, Whom::Name(&name), layer.tokens, layer.within).await?;
            let result = inner.call(request).await;
            permit.report(match &result {
                Ok(response) => {
                    let now_us = shared.clock.now_us();
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

/// How a request ended, with what the answer says about limits. Of several limits the one with the
/// least left counts.
fn report(outcome: Outcome, reported: &RateLimitStatus) -> Report {
    let mut report = Report::from(outcome);
    if let Some(wait) = reported.retry_after
        && outcome != Outcome::Success
    {
        report = report.retry_after(wait);
    }
    let told = reported
        .limits
        .iter()
        .filter_map(|limit| limit.remaining.zip(limit.reset));
    // Of two with as little left, the one that takes longer.
    let least = told.min_by_key(|(remaining, reset)| (*remaining, std::cmp::Reverse(*reset)));
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

fn host(_method: &Method, uri: &Uri, headers: &HeaderMap) -> String {
    let in_header = || headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = uri.host().or_else(in_header).unwrap_or(NO_HOST);
    let mut host = host.to_ascii_lowercase();
    host.truncate(super::PARTITION_BYTES_MAX);
    host
}
