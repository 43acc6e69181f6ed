//! The layer that limits a service.

mod asked;
mod body;
mod future;
mod in_flight;
mod outcome;
mod plain;
mod question;
mod refusal;
mod rule;
mod rules;
mod service;

use std::sync::Arc;

use ::http::Response;
use bytes::Bytes;
use tower_layer::Layer;

use self::rules::Rules;
use super::headers::HeaderOptions;
use super::identity::Identity;
use super::problem::ProblemFormat;
use crate::multi::TOKEN_REQUESTS_MAX;
use crate::telemetry::LogThrottle;

pub use self::asked::Asked;
pub use self::body::ResponseBody;
pub use self::future::ResponseFuture;
pub use self::outcome::Outcome;
pub use self::refusal::{Cause, Refusal};
pub use self::rule::Rule;
pub use self::rules::WithoutKey;
pub use self::service::RateLimit;

/// Limits any HTTP service made of tower's parts: axum, plain hyper, tonic.
///
/// A request is let in when every limit has the tokens for it, all or nothing; the service is
/// called; and the request is settled once by its outcome, whatever that is. Refusals are answered
/// here with 429, or 503 where the limiter cannot ask its store and is told to refuse then, or 403
/// where the caller cannot be told apart. Callers of gRPC get the status that means the same.
///
/// ```
/// use axum::{Router, routing::get};
/// use balde::RateLimiter;
/// use balde::http::{RateLimitLayer, Rule};
///
/// let per_caller = RateLimiter::builder().name("per-caller").limit("10/s burst 20").build()?;
/// let overall = RateLimiter::builder().name("overall").limit("1000/s").build()?;
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(
///         RateLimitLayer::new(per_caller)
///             .and(Rule::shared(overall))
///             .exempt(|asked| asked.uri().path() == "/healthz"),
///     );
/// # drop(app);
/// # Ok::<(), balde::BuildError>(())
/// ```
///
/// The caller's address comes from axum's `ConnectInfo` (feature `axum`, and
/// `into_make_service_with_connect_info`), or from a
/// [`PeerAddr`](super::identity::PeerAddr) that somebody puts into the request.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    rules: Rules,
}

impl RateLimitLayer {
    /// A layer with one limit. A [`RateLimiter`](crate::RateLimiter) alone counts by caller.
    pub fn new(rule: impl Into<Rule>) -> Self {
        let headers = HeaderOptions::default();
        let none = Rules {
            list: Vec::new(),
            identity: Identity::default(),
            writer: headers.writer([]),
            is_priced: false,
            plain: None,
            headers,
            without_key: WithoutKey::default(),
            format: ProblemFormat::default(),
            exempt: None,
            on_refusal: None,
            keyless: Arc::new(LogThrottle::default()),
        };
        Self { rules: none }.and(rule)
    }

    /// One limit more. A request needs the tokens of all of them, or takes none.
    ///
    /// # Panics
    ///
    /// With more than [`TOKEN_REQUESTS_MAX`] limits: their number is written in the program.
    pub fn and(mut self, rule: impl Into<Rule>) -> Self {
        self.rules.list.push(rule.into());
        assert!(
            self.rules.list.len() <= TOKEN_REQUESTS_MAX,
            "a layer has at most {TOKEN_REQUESTS_MAX} limits"
        );
        self
    }

    /// How callers are told apart.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.rules.identity = identity;
        self
    }

    /// What becomes of requests without a usable key; refused, unless told otherwise.
    pub fn without_key(mut self, without_key: WithoutKey) -> Self {
        self.rules.without_key = without_key;
        self
    }

    /// Which requests are not limited at all.
    pub fn exempt(mut self, exempt: impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.rules.exempt = Some(Arc::new(exempt));
        self
    }

    /// Which header fields answers carry.
    pub fn headers(mut self, headers: HeaderOptions) -> Self {
        self.rules.headers = headers;
        self
    }

    /// How the bodies of refusals are written; as JSON, unless told otherwise.
    pub fn problem_format(mut self, format: ProblemFormat) -> Self {
        self.rules.format = format;
        self
    }

    /// Answers refusals, in place of the problem that they are otherwise told as. The fields that
    /// say how the caller stands are added to it.
    pub fn on_refusal<T: Into<Bytes>>(
        mut self,
        answer: impl Fn(&Refusal<'_>) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        let answer = move |refusal: &Refusal<'_>| answer(refusal).map(Into::into);
        self.rules.on_refusal = Some(Arc::new(answer));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        let mut rules = self.rules.clone();
        rules.make_ready();
        RateLimit::new(inner, Arc::new(rules))
    }
}
