//! A tower layer that limits an HTTP service.

mod admission;
mod bucket_request;
mod config;
mod in_flight;
mod limit_rule;

use std::sync::Arc;

use ::http::Response;
use bytes::Bytes;
use tower_layer::Layer;

use super::headers::HeaderOptions;
use super::identity::Identity;
use super::pipeline::{LayerOptions, RateLimit, Refusal, RequestParts};
use super::problem::ProblemFormat;
use crate::multi::TOKEN_REQUESTS_MAX;

pub use self::config::{LimitRules, OnMissingKey};
pub use self::limit_rule::LimitRule;

/// A tower layer that limits an HTTP service: axum, tonic, or plain hyper.
///
/// For each request the layer takes tokens from the buckets of all its limits, all or nothing, and
/// then calls the inner service. When the request ends, the layer settles it exactly once by its
/// [`Outcome`](super::Outcome). Responses carry rate-limit header fields.
///
/// A refused request never reaches the inner service. The layer answers it with a problem document:
///
/// | Status | gRPC status | Cause |
/// |--|--|--|
/// | 429 | `RESOURCE_EXHAUSTED` | a bucket has too few tokens |
/// | 503 | `UNAVAILABLE` | the store is unavailable, and the limiter denies in that case |
/// | 403 | `PERMISSION_DENIED` | the request has no usable key |
/// | 500 | `INTERNAL` | the service does not provide the peer's address |
///
/// ```
/// use axum::{Router, routing::get};
/// use balde::RateLimiter;
/// use balde::http::{LimitRule, RateLimitLayer};
///
/// let per_caller = RateLimiter::builder().name("per-caller").limit("10/s burst 20").build()?;
/// let overall = RateLimiter::builder().name("overall").limit("1000/s").build()?;
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(
///         RateLimitLayer::new(per_caller)
///             .and(LimitRule::global(overall))
///             .exempt(|request| request.uri().path() == "/healthz"),
///     );
/// # drop(app);
/// # Ok::<(), balde::BuildError>(())
/// ```
///
/// The layer takes the client's address from axum's `ConnectInfo` (feature `axum`; serve the app with
/// `balde::http::serve`) or from a [`PeerAddr`](super::identity::PeerAddr) in the request's extensions. See [`Identity`] for proxies, API keys and user ids.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    config: LimitRules,
}

impl RateLimitLayer {
    /// Creates a layer with one limit. A bare [`RateLimiter`](crate::RateLimiter) limits each caller
    /// separately, as [`LimitRule::per_caller`] does.
    pub fn new(rule: impl Into<LimitRule>) -> Self {
        let headers = HeaderOptions::default();
        let config = LimitRules {
            rules: Vec::new(),
            options: LayerOptions::default(),
            writer: headers.writer([]),
            is_priced: false,
            is_in_memory: false,
            takes_one_of_caller: false,
            headers,
            on_missing_key: OnMissingKey::default(),
        };
        Self { config }.and(rule)
    }

    /// Adds a limit. A request takes the tokens of all limits or of none.
    ///
    /// # Panics
    ///
    /// Panics if there are more than [`TOKEN_REQUESTS_MAX`] limits.
    pub fn and(mut self, rule: impl Into<LimitRule>) -> Self {
        self.config.rules.push(rule.into());
        assert!(
            self.config.rules.len() <= TOKEN_REQUESTS_MAX,
            "a layer can have at most {TOKEN_REQUESTS_MAX} limits"
        );
        self
    }

    /// Sets how clients are identified. The default trusts no proxy and uses the peer's address.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.config.options.set_identity(identity);
        self
    }

    /// Sets what happens to requests without a usable key. By default they are refused.
    pub fn on_missing_key(mut self, on_missing_key: OnMissingKey) -> Self {
        self.config.on_missing_key = on_missing_key;
        self
    }

    /// Forwards requests for which `exempt` returns true without checking any limit.
    pub fn exempt(
        mut self,
        exempt: impl Fn(&RequestParts<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.config.options.set_exempt(exempt);
        self
    }

    /// Sets which rate-limit header fields responses carry. By default all of them.
    pub fn headers(mut self, headers: HeaderOptions) -> Self {
        self.config.headers = headers;
        self
    }

    /// Sets the format of the problem documents in refusals. The default is JSON.
    pub fn problem_format(mut self, format: ProblemFormat) -> Self {
        self.config.options.set_problem_format(format);
        self
    }

    /// Builds the response of a refusal, instead of the default problem document. The layer adds the
    /// rate-limit header fields to it.
    pub fn on_refusal<T: Into<Bytes>>(
        mut self,
        on_refusal: impl Fn(&Refusal<'_>) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        self.config.options.set_on_refusal(on_refusal);
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S, LimitRules>;

    fn layer(&self, inner: S) -> RateLimit<S, LimitRules> {
        let mut config = self.config.clone();
        config.prepare();
        RateLimit::new(inner, Arc::new(config))
    }
}
