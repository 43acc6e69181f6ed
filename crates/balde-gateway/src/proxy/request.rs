//! What holds for every request, whatever becomes of it: its connection is in use meanwhile, a gateway
//! that is about to end asks for the connection to be closed, and the access log gets a line.

use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, HeaderValue};
use http::{HeaderMap, Method, Request, Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use super::framing::Ambiguity;
use super::handle::{Connection, handle};
use super::routing::Routing;
use super::trace;
use crate::body::ResponseBody;

/// Answers a request.
pub(super) async fn serve_request(
    routing: Arc<Routing>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
    ambiguity: Option<Ambiguity>,
) -> Response<ResponseBody> {
    let _in_progress = connection.busy.request();
    let version = request.version();
    let access = routing
        .server
        .is_access_logged
        .then(|| AccessLine::new(&routing, &connection, &request));
    let mut response = handle(routing, Arc::clone(&connection), request, ambiguity).await;
    if connection.readiness.is_draining() && version <= Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    if let Some(access) = access {
        access.write(&connection, &mut response);
    }
    response
}

/// What the access log says beside status and duration. The one who answers a request puts this into
/// the response's extensions if there is an access log.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessFields {
    pub(super) route: Option<String>,
    /// The policy that refused the request.
    pub(super) policy: Option<String>,
}

/// A line of the access log, begun when the request arrived.
struct AccessLine {
    started: Instant,
    method: Method,
    /// Without the query, which may hold secrets.
    path: String,
    trace_id: Option<String>,
    /// The hash of the caller's key.
    caller_hash: Option<String>,
}

impl AccessLine {
    fn new(routing: &Routing, connection: &Connection, request: &Request<Incoming>) -> Self {
        let limits = routing.limits.as_deref();
        let caller = &connection.caller;
        Self {
            caller_hash: limits.and_then(|limits| limits.caller_hash(request.headers(), caller)),
            started: Instant::now(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            trace_id: trace_id(request.headers()),
        }
    }

    fn write(self, connection: &Connection, response: &mut Response<ResponseBody>) {
        let fields = response.extensions_mut().remove::<AccessFields>();
        let fields = fields.unwrap_or_default();
        tracing::info!(
            target: "balde_gateway::access",
            event_type = "request",
            method = self.method.as_str(),
            path = self.path,
            status = response.status().as_u16(),
            duration_ms = self.started.elapsed().as_secs_f64() * 1e3,
            response_bytes = response.body().size_hint().exact(),
            route = fields.route,
            policy = fields.policy,
            caller_hash = self.caller_hash,
            peer = %connection.caller.peer.ip().to_canonical(),
            trace_id = self.trace_id,
            "{} {} {}",
            self.method,
            self.path,
            response.status().as_u16()
        );
    }
}

fn trace_id(headers: &HeaderMap) -> Option<String> {
    trace::Trace::of(headers).map(|trace| trace.trace_id().to_owned())
}
