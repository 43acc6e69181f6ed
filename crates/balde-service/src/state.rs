//! The endpoint for operators: readiness and metrics, on a separate address.
//!
//! | Request | Response |
//! |--|--|
//! | `GET /healthz` | that it runs; without the token |
//! | `GET /readyz` | whether it is ready for requests, and why not; without the token |
//! | `GET /metrics` | metrics for Prometheus |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use balde::telemetry::{METRICS_CONTENT_TYPE, Metrics};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::RwLock;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use crate::access::{Access, Right, Rights};
use crate::decisions::Decisions;

/// The most connections at a time. A further one takes the place of the one that has been idle for the
/// longest time, so that a health check always gets an answer.
const CONNECTIONS_MAX: usize = 64;

/// Redis is asked at most this often, however many ask for readiness.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The longest wait for Redis.
const CHECK_MAX: Duration = Duration::from_secs(1);

/// What the endpoint reports on.
#[derive(Debug)]
pub(crate) struct StateEndpoint {
    token: RwLock<Access>,
    metrics: Metrics,
    decisions: Decisions,
    is_draining: AtomicBool,
    redis: Mutex<Option<(Instant, Option<String>)>>,
}

/// The token of the endpoint, as the only one that may read it.
fn access(token: &str) -> Access {
    let mut access = Access::new(Rights::NONE);
    access.add("state", token, Rights::NONE.with(Right::Admin));
    access
}

impl StateEndpoint {
    pub(crate) fn new(token: &str, metrics: Metrics, decisions: Decisions) -> Self {
        Self {
            token: RwLock::new(access(token)),
            metrics,
            decisions,
            is_draining: AtomicBool::new(false),
            redis: Mutex::default(),
        }
    }

    pub(crate) fn set_token(&self, token: &str) {
        *self.token.write() = access(token);
    }

    /// From now on the service is not ready: it is about to end.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Serves the endpoint until `shutdown` is true, on a thread of its own: a health check does not
    /// wait for decisions, however many they are.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: watch::Receiver<bool>,
    ) {
        let deciding = Handle::current();
        let respond = move |request| Arc::clone(&self).respond(request, deciding.clone());
        balde_net::serve_on_thread(listener, CONNECTIONS_MAX, shutdown, respond).await;
    }

    /// Redis is asked where decisions are made, because its connections belong to that runtime.
    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        deciding: Handle,
    ) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return answer(
                StatusCode::METHOD_NOT_ALLOWED,
                &json!({"error": "only GET"}),
            );
        }
        match request.uri().path() {
            "/healthz" => answer(StatusCode::OK, &json!({"status": "ok"})),
            "/readyz" => {
                let ready = deciding.spawn(async move { self.readiness().await });
                ready.await.unwrap_or_else(|_| {
                    let report =
                        json!({"status": "not ready", "reasons": ["the service is ending"]});
                    answer(StatusCode::SERVICE_UNAVAILABLE, &report)
                })
            }
            "/metrics" if !self.is_authorized(&request) => {
                let report = json!({"error": "a bearer token is required"});
                let mut response = answer(StatusCode::UNAUTHORIZED, &report);
                let challenge = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                response
            }
            "/metrics" => {
                let mut response =
                    Response::new(Full::new(self.metrics.encode_in_both_units().into()));
                let content_type = HeaderValue::from_static(METRICS_CONTENT_TYPE);
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                response
            }
            _ => answer(
                StatusCode::NOT_FOUND,
                &json!({"error": "there is no such endpoint"}),
            ),
        }
    }

    async fn readiness(&self) -> Response<Full<Bytes>> {
        let mut reasons = Vec::new();
        if self.is_draining.load(Ordering::Relaxed) {
            reasons.push("the service is shutting down".to_owned());
        }
        if let Some(problem) = self.redis_problem().await {
            reasons.push(format!("Redis is unavailable: {problem}"));
        }
        let (status, word) = if reasons.is_empty() {
            (StatusCode::OK, "ready")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready")
        };
        answer(status, &json!({"status": word, "reasons": reasons}))
    }

    /// What is wrong with Redis. Always `None` if all buckets are in memory.
    async fn redis_problem(&self) -> Option<String> {
        let store = self.decisions.redis()?;
        let mut last = self.redis.lock().await;
        if let Some((at, problem)) = &*last
            && at.elapsed() < AGE_MAX
        {
            return problem.clone();
        }
        let problem = match timeout(CHECK_MAX, store.keys_in_server()).await {
            Ok(Ok(_)) => None,
            Ok(Err(failure)) => Some(failure.to_string()),
            Err(_) => Some("no answer within 1 s".to_owned()),
        };
        *last = Some((Instant::now(), problem.clone()));
        problem
    }

    fn is_authorized(&self, request: &Request<Incoming>) -> bool {
        let given = request.headers().get(AUTHORIZATION);
        let given = given.and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"));
        given.is_some_and(|(_, token)| self.token.read().rights_of(token.trim()).is_some())
    }
}

fn answer(status: StatusCode, document: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(document.to_string().into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
