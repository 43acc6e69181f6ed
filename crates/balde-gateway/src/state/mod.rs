//! The state endpoint for operators and monitors: JSON, on a separate address, behind a token.
//!
//! | Request | Response |
//! |--|--|
//! | `GET /balde/states?participant=ISPB&payer=ID` | every bucket of a participant, or of one payer; 404 for a participant that the gateway or DICT does not know |
//! | `GET /balde/states?user=NAME` | every bucket of a user |
//! | `POST /balde/orders` | a payment order, which gives tokens back |
//! | `GET /metrics` | metrics for Prometheus |
//! | `GET /healthz` | that it runs; without the token |
//! | `GET /readyz` | whether it is ready for requests, and why not; without the token |

mod readiness;
mod report;

use std::sync::Arc;

use balde::telemetry::{METRICS_CONTENT_TYPE, Metrics};
use balde_dict::wire::formats::canonical_ispb;
use balde_policy::query_pairs;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) use self::readiness::Readiness;
use crate::body::RequestBody;
use crate::dict::{Dict, OrderId};
use crate::limits::Limits;
use crate::metrics::GatewayMetrics;
use crate::upstream::Upstream;

/// The most connections at a time. A further one takes the place of the one that has been idle for the
/// longest time, so that a health check always gets an answer.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// The longest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1_024;

/// What the endpoint reports on.
pub(crate) struct StateEndpoint {
    pub(crate) token: parking_lot::RwLock<String>,
    pub(crate) metrics: Metrics,
    pub(crate) counters: GatewayMetrics,
    pub(crate) clock: balde::Clock,
    /// The parts that a reload may change.
    pub(crate) current: Box<dyn Fn() -> Current + Send + Sync>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) upstreams: Box<dyn Fn() -> Vec<Arc<Upstream<RequestBody>>> + Send + Sync>,
}

/// The limits and the mirror of DICT, as the configuration has them now.
pub(crate) type Current = (Option<Arc<Limits>>, Option<Arc<Dict>>);

/// Serves the endpoint until `shutdown` is true, on a thread of its own: a health check does not wait for
/// requests that are being forwarded, however many they are.
pub(crate) async fn serve(
    endpoint: Arc<StateEndpoint>,
    listener: TcpListener,
    shutdown: watch::Receiver<bool>,
) {
    let forwarding = Handle::current();
    let respond = move |request| respond(Arc::clone(&endpoint), request, forwarding.clone());
    balde_net::serve_on_thread(listener, CONNECTIONS_MAX, shutdown, respond).await;
}

/// A payment order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    #[serde(alias = "EndToEndId", alias = "endToEndId")]
    end_to_end_id: String,
    #[serde(alias = "payer_id", alias = "payerId", alias = "PayerId")]
    payer: String,
    #[serde(alias = "ispb")]
    participant: String,
}

/// Answers health checks here, and everything else where requests are forwarded, because it uses the
/// connections to upstreams and to Redis.
async fn respond(
    endpoint: Arc<StateEndpoint>,
    request: Request<Incoming>,
    forwarding: Handle,
) -> Response<Full<Bytes>> {
    if request.method() == Method::GET && request.uri().path() == "/healthz" {
        return json(StatusCode::OK, &serde_json::json!({"status": "ok"}));
    }
    let answering = forwarding.spawn(async move { endpoint.answer(request).await });
    answering.await.unwrap_or_else(|_| {
        let report = serde_json::json!({"error": "the gateway is ending"});
        json(StatusCode::SERVICE_UNAVAILABLE, &report)
    })
}

impl StateEndpoint {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() == Method::GET && request.uri().path() == "/readyz" {
            let limits = (self.current)().0;
            let upstreams = (self.upstreams)();
            let (is_ready, report) = self.readiness.report(limits.as_deref(), &upstreams).await;
            let status = if is_ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            return json(status, &report);
        }
        if !self.is_authorized(&request) {
            let mut response = json(
                StatusCode::UNAUTHORIZED,
                &serde_json::json!({"error": "a bearer token is required"}),
            );
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            return response;
        }
        let (limits, dict) = (self.current)();
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/metrics") => {
                let mut response =
                    Response::new(Full::new(self.metrics.encode_in_both_units().into()));
                let content_type = HeaderValue::from_static(METRICS_CONTENT_TYPE);
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                response
            }
            (&Method::GET, "/balde/states" | "/balde/states/") => {
                let query = request.uri().query().unwrap_or_default();
                let value = |name: &str| {
                    let mut pairs = query_pairs(query);
                    let found = pairs.find(|(other, _)| other == name);
                    found.map(|(_, value)| value.into_owned())
                };
                let participant = value("participant").map(|name| match dict {
                    Some(_) => canonical_ispb(&name).into_owned(),
                    None => name,
                });
                let asked = report::Asked {
                    participant,
                    payer: value("payer"),
                    user: value("user"),
                };
                let Some(limits) = limits else {
                    return json(
                        StatusCode::NOT_FOUND,
                        &serde_json::json!({"error": "no policies are configured"}),
                    );
                };
                if let Some(reason) = unknown_participant(dict.as_deref(), &asked) {
                    let error = serde_json::json!({ "error": reason });
                    return json(StatusCode::NOT_FOUND, &error);
                }
                match report::states(self, &limits, dict.as_deref(), &asked).await {
                    Ok(report) => json(StatusCode::OK, &report),
                    Err(error) => {
                        let error = serde_json::json!({"error": error.to_string()});
                        json(StatusCode::SERVICE_UNAVAILABLE, &error)
                    }
                }
            }
            (&Method::POST, "/balde/orders" | "/balde/orders/") => match dict {
                Some(dict) => order(&dict, request).await,
                None => not_found(),
            },
            _ => not_found(),
        }
    }

    /// Compares in constant time, by digests of both.
    fn is_authorized(&self, request: &Request<Incoming>) -> bool {
        let given = request.headers().get(AUTHORIZATION);
        let given = given.and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        // RFC 9110: the name of the scheme is case-insensitive.
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"));
        let Some((_, given)) = given else {
            return false;
        };
        let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let token = self.token.read();
        let (given, own) = (digest(given.trim()), digest(&token));
        let differing = given.as_ref().iter().zip(own.as_ref());
        differing.fold(0, |all, (one, other)| all | (one ^ other)) == 0
    }
}

/// Says why there is nothing to report on a participant. Its buckets would be full for ever, and whoever
/// reads them would believe that all is well.
fn unknown_participant(dict: Option<&Dict>, asked: &report::Asked) -> Option<String> {
    let (dict, participant) = (dict?, asked.participant.as_deref()?);
    let is_own = dict
        .config()
        .participants
        .iter()
        .any(|own| own == participant);
    let named = participant.escape_debug();
    if !is_own {
        return Some(format!(
            "participant {named} is none of this gateway's; `participants` in its [dict] lists those"
        ));
    }
    let status = dict.refused_status(participant)?;
    Some(format!(
        "DICT does not accept participant {named}: it answered with {status}, and has never listed \
         its buckets; check the ISPB and the certificate"
    ))
}

async fn order(dict: &Dict, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let bad = |reason: String| {
        json(
            StatusCode::BAD_REQUEST,
            &serde_json::json!({ "error": reason }),
        )
    };
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX);
    let Ok(body) = body.collect().await else {
        return bad("the body is too long or broken".to_owned());
    };
    let order: Order = match serde_json::from_slice(&body.to_bytes()) {
        Ok(order) => order,
        Err(error) => return bad(error.to_string()),
    };
    if dict.table.payer_kind(&order.payer).is_none() {
        return bad("`payer` is neither a CPF nor a CNPJ".to_owned());
    }
    if !dict.config().participants.contains(&order.participant) {
        return bad("`participant` is none of this gateway's".to_owned());
    }
    let id = OrderId {
        participant: &order.participant,
        payer: &order.payer,
        end_to_end_id: &order.end_to_end_id,
    };
    match dict.credit_order(id).await {
        Ok(result) => json(StatusCode::OK, &serde_json::json!(result)),
        Err(error) => json(
            StatusCode::SERVICE_UNAVAILABLE,
            &serde_json::json!({ "error": error.to_string() }),
        ),
    }
}

fn not_found() -> Response<Full<Bytes>> {
    json(
        StatusCode::NOT_FOUND,
        &serde_json::json!({"error": "there is no such endpoint"}),
    )
}

fn json(status: StatusCode, document: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(document.to_string().into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
