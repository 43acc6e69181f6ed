//! A tower layer that enforces a profile.

mod admission;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use balde::Decision;
use balde::http::headers::write_retry_after;
use balde::http::{
    CachedHeaders, HeaderOptions, Identity, IdentityError, LayerOptions, ProblemFormat, RateLimit,
    Refusal, RefusalCause, RequestParts,
};
use bytes::Bytes;
use http::{Extensions, HeaderMap, Response};
use tower_layer::Layer;

use crate::engine::{Engine, NoBucketError};
use crate::path::PathRules;

/// Finds a participant in the headers and extensions of a request.
type FindParticipant = dyn Fn(&HeaderMap, &Extensions) -> Option<String> + Send + Sync;

/// Enforces the profile of an [`Engine`] in front of any tower service for HTTP.
///
/// A request is admitted by every policy that applies to it, or answered with a problem document:
/// 429 if a bucket has too few tokens, 503 if the store is unavailable and the policy's `on_failure`
/// is `deny`, 403 if the request lacks a part of a bucket's key, 500 if it does because the service
/// does not provide the address of its peers (axum: serve the app with `balde::http::serve`), 400 if
/// servers read its path in different ways ([`PathRules`]). An admitted request is settled by the status of its response, or as abandoned if the client
/// disconnects.
///
/// The key part `user` is the client that [`Identity`] finds, and `participant` is what the function
/// given to [`participant`](PolicyLayer::participant) returns. Requests outside of the profile's base
/// paths are not limited.
///
/// ```
/// use axum::{Router, routing::get};
/// use balde_policy::{Engine, PolicyLayer, Profile};
///
/// let profile = Profile::parse(r#"
/// profile = "shop"
///
/// [[policy]]
/// name = "searches"
/// match = ["GET /search"]
/// scope = "user"
/// limit = "2/s burst 20"
/// "#)?;
/// let engine = Engine::builder(profile).build()?;
/// let app: Router = Router::new()
///     .route("/search", get(|| async { "nothing found" }))
///     .layer(PolicyLayer::new(engine));
/// # drop(app);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PolicyLayer {
    rules: PolicyRules,
}

/// The profile of a [`PolicyLayer`], which admits the requests of its services.
#[derive(Clone)]
pub struct PolicyRules {
    engine: Engine,
    options: LayerOptions,
    headers: Arc<CachedHeaders>,
    participant: Option<Arc<FindParticipant>>,
    path_rules: PathRules,
    started: Instant,
}

impl PolicyLayer {
    /// Creates a layer that enforces the profile of an engine.
    pub fn new(engine: Engine) -> Self {
        Self {
            rules: PolicyRules {
                engine,
                options: LayerOptions::default(),
                headers: Arc::new(CachedHeaders::new(HeaderOptions::default())),
                participant: None,
                path_rules: PathRules::default(),
                started: Instant::now(),
            },
        }
    }

    /// Sets how clients are identified, for the key part `user`.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.rules.options.set_identity(identity);
        self
    }

    /// Sets the function that finds the key part `participant`. Do not derive it from anything that
    /// clients can set freely: they could choose their own bucket.
    pub fn participant(
        mut self,
        find: impl Fn(&HeaderMap, &Extensions) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.rules.participant = Some(Arc::new(find));
        self
    }

    /// Sets which spellings of paths are accepted; others are answered with 400.
    ///
    /// The service behind the layer gets the path as it was received. So keep
    /// [`DotSegments::Refuse`](crate::DotSegments::Refuse), the default, unless the service resolves dot
    /// segments itself.
    pub fn path_rules(mut self, rules: PathRules) -> Self {
        self.rules.path_rules = rules;
        self
    }

    /// Sets which rate-limit header fields responses carry.
    pub fn headers(mut self, headers: HeaderOptions) -> Self {
        self.rules.headers = Arc::new(CachedHeaders::new(headers));
        self
    }

    /// Sets the format of the bodies of refusals; JSON by default.
    pub fn problem_format(mut self, format: ProblemFormat) -> Self {
        self.rules.options.set_problem_format(format);
        self
    }

    /// Forwards requests for which `exempt` returns true without checking any policy.
    pub fn exempt(
        mut self,
        exempt: impl Fn(&RequestParts<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.rules.options.set_exempt(exempt);
        self
    }

    /// Builds the response of a refusal, instead of the default problem document. The layer adds the
    /// rate-limit header fields to it.
    pub fn on_refusal<T: Into<Bytes>>(
        mut self,
        on_refusal: impl Fn(&Refusal<'_>) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        self.rules.options.set_on_refusal(on_refusal);
        self
    }
}

impl<S> Layer<S> for PolicyLayer {
    type Service = RateLimit<S, PolicyRules>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::new(self.rules.clone()))
    }
}

impl PolicyRules {
    /// Writes the header fields for these decisions.
    fn write_headers(&self, headers: &mut HeaderMap, decisions: &[(&str, &Decision)]) {
        if !decisions.is_empty() {
            self.headers.write(headers, decisions, SystemTime::now());
        }
    }

    fn log_missing_key(&self, refusal: &Refusal<'_>, error: &NoBucketError) {
        let now_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        if refusal.cause() == RefusalCause::MissingPeer {
            let options = &self.options;
            options.log_missing_key(refusal, &IdentityError::UnknownPeer, now_us);
        } else {
            self.options.log_missing_key(refusal, error, now_us);
        }
    }
}

/// Adds `Retry-After`, unless no wait helps.
fn add_retry_after(headers: &mut HeaderMap, wait: Option<Duration>) {
    if let Some(wait) = wait {
        write_retry_after(headers, wait);
    }
}

impl fmt::Debug for PolicyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyRules")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
