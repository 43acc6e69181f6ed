//! The questions that proxies ask before they forward a request: nginx's `auth_request`, Caddy's
//! `forward_auth`, Traefik's `ForwardAuth`, and Envoy's `ext_authz` over HTTP.
//!
//! | Path | Asked by | Method and path of the original request | Refusal |
//! |--|--|--|--|
//! | `/nginx` | nginx | `X-Original-Method`, `X-Original-URI` | 403, which nginx turns into 429 |
//! | `/forward-auth` | Caddy, Traefik | `X-Forwarded-Method`, `X-Forwarded-Uri` | 429 |
//! | `/ext-authz` and below | Envoy | its own, and what follows | 429 |
//!
//! Who is no trusted proxy gets no answer to any of them, because it could ask in the name of others.

mod question;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use balde::http::headers::write_retry_after;
use balde::http::{CachedHeaders, Identity, PeerAddr, Problem, ProblemFormat};
use balde::telemetry::LogThrottle;
use balde::{Clock, Decision};
use balde_policy::{AdmitError, HttpHeaders, Request as PolicyRequest};
use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use parking_lot::RwLock;

use self::question::{Asker, Question};
use crate::config::ProxyConfig;
use crate::hyper_server;
use crate::listener::{Connection, Protocol};
use crate::metrics::{ProtocolMetrics, RequestResult};
use crate::policies::Policies;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct ProxyServer {
    policies: Policies,
    /// How clients are identified, and which fields answers have. A reload can change both.
    options: RwLock<Arc<ProxyOptions>>,
    metrics: Arc<ProtocolMetrics>,
    idle_timeout: Duration,
    untrusted: LogThrottle,
    clock: Clock,
}

#[derive(Debug)]
pub(crate) struct ProxyOptions {
    pub(crate) identity: Identity,
    pub(crate) fields: CachedHeaders,
}

type Answer = Response<Full<Bytes>>;

impl ProxyServer {
    pub(crate) fn new(
        config: &ProxyConfig,
        policies: Policies,
        options: ProxyOptions,
        metrics: Arc<ProtocolMetrics>,
    ) -> Self {
        Self {
            policies,
            options: RwLock::new(Arc::new(options)),
            metrics,
            idle_timeout: config.listener.idle_timeout,
            untrusted: LogThrottle::new(),
            clock: Clock::precise(),
        }
    }

    pub(crate) fn replace(&self, options: ProxyOptions) {
        *self.options.write() = Arc::new(options);
    }

    async fn respond(&self, request: &Request<Incoming>, peer: SocketAddr) -> Answer {
        let options = Arc::clone(&self.options.read());
        if !options.identity.trusts(peer.ip()) {
            return self.untrusted(peer);
        }
        let question = match Question::read(request.method(), request.uri(), request.headers()) {
            Ok(question) => question,
            Err(wrong) => {
                self.metrics.count(RequestResult::Invalid);
                return text(wrong.status, wrong.detail);
            }
        };
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddr(peer));
        let key = options.identity.key(request.headers(), &extensions).ok();
        let user = key
            .as_ref()
            .map(|key| String::from_utf8_lossy(key.as_ref()));
        let fields = HttpHeaders(request.headers());
        let mut asked = PolicyRequest::new(question.method, question.path, question.query);
        asked.headers = &fields;
        asked.user = user.as_deref();
        match self.policies.admit(&asked).await {
            None => {
                self.metrics.count(RequestResult::Allowed);
                text(StatusCode::OK, "")
            }
            Some(Ok(ticket)) => {
                self.metrics.count(RequestResult::Allowed);
                let mut answer = text(StatusCode::OK, "");
                let decisions: Vec<(&str, &Decision)> = ticket.decisions().collect();
                options.write(answer.headers_mut(), &decisions);
                Policies::settle(ticket).await;
                answer
            }
            Some(Err(error)) => {
                let answer = options.refusal(&error, request.headers(), question.asker);
                self.metrics.count(match error {
                    AdmitError::Refused(_) => RequestResult::Refused,
                    AdmitError::Unavailable(_) => RequestResult::Failed,
                    _ => RequestResult::Invalid,
                });
                answer
            }
        }
    }

    fn untrusted(&self, peer: SocketAddr) -> Answer {
        self.metrics.count(RequestResult::Invalid);
        if let Some(suppressed) = self.untrusted.allow(self.clock.now_us()) {
            tracing::warn!(
                event_type = "untrusted_proxy", suppressed, peer = %peer.ip(),
                "refused a question of an address that is not in trusted_proxies"
            );
        }
        text(
            StatusCode::FORBIDDEN,
            "this address is not in `trusted_proxies` of the service's file\n",
        )
    }
}

impl ProxyOptions {
    fn write(&self, headers: &mut HeaderMap, decisions: &[(&str, &Decision)]) {
        self.fields.write(headers, decisions, SystemTime::now());
    }

    /// The answer to a request that is not to be forwarded.
    fn refusal(&self, error: &AdmitError, request: &HeaderMap, asker: Asker) -> Answer {
        let (problem, wait) = match error {
            AdmitError::Refused(refusal) => {
                let wait = refusal.retry_after();
                (
                    Problem::quota_exceeded([refusal.policy().name()], wait),
                    wait,
                )
            }
            AdmitError::Unavailable(unavailable) => {
                let wait = unavailable.retry_after();
                (Problem::unavailable([unavailable.policy()], wait), wait)
            }
            _ => (Problem::missing_key(), None),
        };
        let mut answer = problem
            .to_response(request, ProblemFormat::default())
            .map(|body| Full::new(body.into()));
        if let AdmitError::Refused(refusal) = error {
            let decisions: Vec<_> = refusal.decisions().collect();
            self.write(answer.headers_mut(), &decisions);
        }
        if let Some(wait) = wait {
            write_retry_after(answer.headers_mut(), wait);
        }
        let status = answer.status();
        if asker == Asker::Nginx && status != StatusCode::FORBIDDEN {
            // Of all refusals nginx passes on 401 and 403 only; the file of the proxy restores this.
            let original = HeaderValue::from(status.as_u16());
            answer.headers_mut().insert("x-balde-status", original);
            *answer.status_mut() = StatusCode::FORBIDDEN;
        }
        answer
    }
}

impl Protocol for ProxyServer {
    async fn serve(self: Arc<Self>, connection: Connection) {
        let Connection {
            stream,
            peer,
            shutdown,
        } = connection;
        let service = service_fn(|request: Request<Incoming>| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.respond(&request, peer).await) }
        });
        hyper_server::serve(stream, service, self.idle_timeout, shutdown).await;
    }

    fn too_many(&self) -> &'static [u8] {
        hyper_server::TOO_MANY
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"h2", b"http/1.1"]
    }
}

fn text(status: StatusCode, detail: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(detail.as_bytes())));
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    answer
}
