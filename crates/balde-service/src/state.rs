//! The endpoint for operators: readiness, metrics, and a page that shows them live, on a separate address.
//!
//! | Request | Response |
//! |--|--|
//! | `GET /healthz` | that it runs; without the token |
//! | `GET /readyz` | whether it is ready for requests, and why not; without the token |
//! | `GET /metrics` | metrics for Prometheus |
//! | `GET /limits` | what the page shows beside metrics, as JSON |
//! | `GET /`, `GET /console/…` | the page and its files, which hold no data; without the token |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use balde::telemetry::{METRICS_CONTENT_TYPE, Metrics, process_key_hash};
use balde_console::{HTML, SCRIPT, SHARED};
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
use crate::config::StateConfig;
use crate::decisions::{Decisions, TopKey};
use crate::http::limit_state;

/// The most connections at a time. A further one takes the place of the one that has been idle for the
/// longest time, so that a health check always gets an answer.
const CONNECTIONS_MAX: usize = 64;

/// Redis is asked at most this often, however many ask for readiness.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The longest wait for Redis.
const CHECK_MAX: Duration = Duration::from_secs(1);

/// How many keys the page shows.
const TOP_KEYS_MAX: usize = 20;

/// What the endpoint reports on.
#[derive(Debug)]
pub(crate) struct StateEndpoint {
    token: RwLock<Access>,
    has_plain_keys: AtomicBool,
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
    pub(crate) fn new(config: &StateConfig, metrics: Metrics, decisions: Decisions) -> Self {
        Self {
            token: RwLock::new(access(&config.token)),
            has_plain_keys: AtomicBool::new(config.has_plain_keys),
            metrics,
            decisions,
            is_draining: AtomicBool::new(false),
            redis: Mutex::default(),
        }
    }

    /// Uses another token, and shows keys as the changed file says.
    pub(crate) fn replace(&self, config: &StateConfig) {
        *self.token.write() = access(&config.token);
        let has_plain_keys = config.has_plain_keys;
        self.has_plain_keys.store(has_plain_keys, Ordering::Relaxed);
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
        let mut response = self.answer_to(&request, &deciding).await;
        balde_console::secure(response.headers_mut());
        response
    }

    async fn answer_to(
        self: Arc<Self>,
        request: &Request<Incoming>,
        deciding: &Handle,
    ) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return answer(
                StatusCode::METHOD_NOT_ALLOWED,
                &json!({"error": "only GET"}),
            );
        }
        let ending = |_| {
            let report = json!({"status": "not ready", "reasons": ["the service is ending"]});
            answer(StatusCode::SERVICE_UNAVAILABLE, &report)
        };
        match request.uri().path() {
            "/" => page_file(HTML, include_str!("../console/limits.html")),
            "/console/limits.js" => page_file(SCRIPT, include_str!("../console/limits.js")),
            "/healthz" => answer(StatusCode::OK, &json!({"status": "ok"})),
            "/readyz" => {
                let ready = deciding.spawn(async move { self.readiness().await });
                ready.await.unwrap_or_else(ending)
            }
            "/metrics" | "/limits" if !self.is_authorized(request) => {
                let report = json!({"error": "a bearer token is required"});
                let mut response = answer(StatusCode::UNAUTHORIZED, &report);
                let challenge = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                response
            }
            "/limits" => {
                let limits = deciding.spawn(async move { self.limits().await });
                limits.await.unwrap_or_else(ending)
            }
            "/metrics" => {
                let mut response =
                    Response::new(Full::new(self.metrics.encode_in_both_units().into()));
                let content_type = HeaderValue::from_static(METRICS_CONTENT_TYPE);
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                response
            }
            path => {
                let name = path.strip_prefix("/console/").unwrap_or_default();
                if let Some(file) = SHARED.iter().find(|file| file.name == name) {
                    return page_file(file.kind, file.text);
                }
                let report = json!({"error": "there is no such endpoint"});
                answer(StatusCode::NOT_FOUND, &report)
            }
        }
    }

    /// What the page shows and metrics do not have.
    async fn limits(&self) -> Response<Full<Bytes>> {
        let redis = match (self.decisions.redis(), self.redis_problem().await) {
            (None, _) => json!({"state": "unused", "problem": null}),
            (Some(_), None) => json!({"state": "available", "problem": null}),
            (Some(_), Some(problem)) => json!({"state": "unavailable", "problem": problem}),
        };
        let has_plain_keys = self.has_plain_keys.load(Ordering::Relaxed);
        let top_key = |top: &TopKey| {
            let key = if has_plain_keys {
                String::from_utf8_lossy(&top.key).into_owned()
            } else {
                process_key_hash(&top.key)
            };
            json!({"limit": top.limit, "key": key, "asked": top.asked, "refused": top.refused})
        };
        let top_keys = self.decisions.top_keys(TOP_KEYS_MAX);
        let limits = self.decisions.limits();
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "is_draining": self.is_draining.load(Ordering::Relaxed),
            "redis": redis,
            "limits": limits.iter().map(limit_state).collect::<Vec<_>>(),
            "has_plain_keys": has_plain_keys,
            "top_keys": top_keys.iter().map(top_key).collect::<Vec<_>>(),
        });
        answer(StatusCode::OK, &report)
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

fn page_file(kind: &'static str, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    balde_console::page_headers(response.headers_mut(), kind);
    response
}

fn answer(status: StatusCode, document: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(document.to_string().into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
