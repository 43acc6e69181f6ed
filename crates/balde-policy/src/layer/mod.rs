//! A tower layer that enforces a profile.

mod future;
mod no_key;
mod service;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use balde::Decision;
use balde::http::headers::write_retry_after;
use balde::http::{CachedHeaders, HeaderOptions, Identity, IdentityError, Problem, ProblemFormat};
use http::{Extensions, HeaderMap, Response};
use tower_layer::Layer;

use self::no_key::{NoKey, NoKeyLog};

pub use future::ResponseFuture;
pub use service::PolicyService;

use crate::engine::{AdmitError, Engine};
use crate::path::PathRules;

/// Finds a participant in the headers and extensions of a request.
type FindParticipant = dyn Fn(&HeaderMap, &Extensions) -> Option<String> + Send + Sync;

/// Enforces the profile of an [`Engine`] in front of any tower service for HTTP.
///
/// A request is admitted by every policy that applies to it, or answered with a problem document:
/// 429 if a bucket has too few tokens, 503 if the store is unavailable and the policy's `on-failure`
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
    config: Config,
}

/// What a layer and its services share.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) engine: Engine,
    pub(crate) identity: Identity,
    headers: Arc<CachedHeaders>,
    format: ProblemFormat,
    pub(crate) participant: Option<Arc<FindParticipant>>,
    pub(crate) path_rules: PathRules,
    /// Shared by all services of one layer.
    no_key_log: Arc<NoKeyLog>,
}

impl PolicyLayer {
    /// Creates a layer that enforces the profile of an engine.
    pub fn new(engine: Engine) -> Self {
        Self {
            config: Config {
                engine,
                identity: Identity::default(),
                headers: Arc::new(CachedHeaders::new(HeaderOptions::default())),
                format: ProblemFormat::default(),
                participant: None,
                path_rules: PathRules::default(),
                no_key_log: Arc::new(NoKeyLog::default()),
            },
        }
    }

    /// Sets how clients are identified, for the key part `user`.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.config.identity = identity;
        self
    }

    /// Sets the function that finds the key part `participant`. Do not derive it from anything that
    /// clients can set freely: they could choose their own bucket.
    pub fn participant(
        mut self,
        find: impl Fn(&HeaderMap, &Extensions) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.config.participant = Some(Arc::new(find));
        self
    }

    /// Sets which spellings of paths are accepted; others are answered with 400.
    ///
    /// The service behind the layer gets the path as it was received. So keep
    /// [`DotSegments::Refuse`](crate::DotSegments::Refuse), the default, unless the service resolves dot
    /// segments itself.
    pub fn path_rules(mut self, rules: PathRules) -> Self {
        self.config.path_rules = rules;
        self
    }

    /// Sets which rate-limit header fields responses carry.
    pub fn headers(mut self, headers: HeaderOptions) -> Self {
        self.config.headers = Arc::new(CachedHeaders::new(headers));
        self
    }

    /// Sets the format of the bodies of refusals; JSON by default.
    pub fn problem_format(mut self, format: ProblemFormat) -> Self {
        self.config.format = format;
        self
    }
}

impl<S> Layer<S> for PolicyLayer {
    type Service = PolicyService<S>;

    fn layer(&self, inner: S) -> PolicyService<S> {
        PolicyService::new(inner, Arc::new(self.config.clone()))
    }
}

impl Config {
    /// Writes the header fields for these decisions.
    pub(crate) fn write_headers<'a>(
        &self,
        headers: &mut HeaderMap,
        decisions: impl Iterator<Item = (&'a str, &'a Decision)>,
    ) {
        let decisions: Vec<(&str, &Decision)> = decisions.collect();
        if !decisions.is_empty() {
            self.headers.write(headers, &decisions, SystemTime::now());
        }
    }

    /// The response to a request that was not admitted. `user` is why the request has no user, if it
    /// has none.
    pub(crate) fn refuse(
        &self,
        error: &AdmitError,
        user: Option<IdentityError>,
        request: &HeaderMap,
    ) -> Response<String> {
        let (problem, wait) = match error {
            AdmitError::Refused(refusal) => {
                let wait = refusal.retry_after();
                let policy = refusal.policy().name();
                (Problem::quota_exceeded([policy], wait), wait)
            }
            AdmitError::Unavailable(unavailable) => {
                let wait = unavailable.retry_after();
                (Problem::unavailable([unavailable.policy()], wait), wait)
            }
            AdmitError::Path(error) => (Problem::bad_request(error.to_string()), None),
            AdmitError::NoBucket(error) => {
                let no_key = NoKey::new(error, user);
                self.no_key_log.write(&no_key);
                (no_key.problem(), None)
            }
        };
        let mut response = problem.to_response(request, self.format);
        if let AdmitError::Refused(refusal) = error {
            self.write_headers(response.headers_mut(), refusal.decisions());
        }
        if let Some(wait) = wait {
            write_retry_after(response.headers_mut(), wait);
        }
        response
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
