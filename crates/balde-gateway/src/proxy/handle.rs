//! The life of a request: route, check, admit, forward, settle, answer. Every admitted request is
//! settled once, whatever happens to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use balde::http::BusyConnection;
use balde_policy::Outcome;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use smallvec::SmallVec;
use tokio::sync::watch;
use tracing::Instrument as _;

use super::acceptable;
use super::answer::{self, Format};
use super::call::Call;
use super::framing::{Ambiguity, RawFraming};
use super::head_fields::HeadFields;
use super::headers;
use super::proxy_fields::Peer;
use super::request::AccessFields;
use super::routing::{Route, Routing};
use super::server::OpenConnection;
use super::target::{KnownHost, Target};
use super::trace::Trace;
use super::upgrade::{self, Tunnel};
use crate::body::{BodyFault, FaultCell, RequestBody, ResponseBody, Streaming};
use crate::dict::{Dict, DictCall, DictRefusal, DictRequest};
use crate::held_responses::HeldResponse;
use crate::limits::Caller;
use crate::metrics::{GatewayMetrics, UpstreamFailure};
use crate::state::Readiness;
use crate::upstream::{ClientId, ConnectError, FailureCause, NotReady, SendError, Sending};

/// What requests of one connection share.
pub(crate) struct Connection {
    pub(crate) open: Arc<OpenConnection>,
    pub(crate) caller: Caller,
    pub(crate) framing: RawFraming,
    pub(crate) metrics: GatewayMetrics,
    pub(crate) clock: balde::Clock,
    pub(crate) shutdown: watch::Receiver<bool>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) busy: BusyConnection,
    pub(super) known_host: KnownHost,
    pub(crate) id: ClientId,
}

/// Answers a request. `ambiguity` is what its raw head says about its framing.
pub(crate) async fn handle(
    routing: Arc<Routing>,
    connection: Arc<Connection>,
    mut request: Request<Incoming>,
    ambiguity: Option<Ambiguity>,
) -> Response<ResponseBody> {
    let started = Instant::now();
    let format = match &routing.dict {
        Some(_) => Format::DictXml,
        None => Format::Json,
    };
    let fields = HeadFields::of(request.headers());
    if let Err(refused) = acceptable::request(&request, fields, ambiguity, &routing.server) {
        return refused.response(format);
    }
    let known_host = &connection.known_host;
    let target = match Target::take(&mut request, fields, routing.paths, known_host) {
        Ok(target) => target,
        Err(error) => {
            return answer::problem(format, StatusCode::BAD_REQUEST, &error.to_string());
        }
    };
    let Some(route) = routing.find(&request, &target) else {
        return answer::problem(format, StatusCode::NOT_FOUND, "there is no such route");
    };
    let handling = Handling {
        routing: &routing,
        route,
        target,
        fields,
        connection: &connection,
        format,
    };
    let is_traced = fields.has(HeadFields::TRACEPARENT);
    let trace = is_traced.then(|| Trace::of(request.headers())).flatten();
    let mut response = match trace {
        None => handling.run(request).await,
        Some(trace) => {
            let span = tracing::debug_span!(
                target: "balde",
                "gateway.request",
                route = route.config.name,
                trace_id = trace.trace_id(),
                span_id = trace.span_id(),
            );
            handling.run(request).instrument(span).await
        }
    };
    route
        .metrics
        .count(response.status().as_u16(), started.elapsed());
    handling.note_access(&mut response);
    response
}

struct Handling<'h> {
    routing: &'h Routing,
    route: &'h Route,
    target: Target,
    /// The header fields of the request as it came. Some of them may have been removed since.
    fields: HeadFields,
    connection: &'h Arc<Connection>,
    format: Format,
}

/// What a request has to pay for.
enum Admission {
    Http(Call),
    Dict(Box<DictCall>),
}

impl Admission {
    /// Settles a request that is not sent.
    async fn not_sent(self) {
        match self {
            Self::Http(call) => {
                if let Some(ticket) = call.into_ticket() {
                    ticket.settle(Outcome::NotSent).await;
                }
            }
            Self::Dict(call) => Box::pin(call.settle(Outcome::NotSent)).await,
        }
    }
}

// The future of a request is copied several times before it is first polled, so the futures of what few
// requests do are on the heap.
impl Handling<'_> {
    async fn run(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let (mut parts, incoming) = request.into_parts();
        if let Some(response) = self.refuse(&parts, &incoming) {
            return response;
        }
        let mut upgrade = None;
        if self.fields.has(HeadFields::CONNECTION) {
            upgrade = headers::upgrade_of(&parts.headers)
                .filter(|_| parts.version == Version::HTTP_11 && incoming.is_end_stream())
                .and_then(|offered| upgrade::allowed(&offered, &self.route.config.upgrade));
            headers::remove_named(&mut parts.headers);
        }
        let proxy_fields = &self.routing.proxy_fields;
        let peer =
            proxy_fields.remove_forged(&mut parts.headers, self.fields, &self.connection.caller);
        let client_upgrade = upgrade
            .as_ref()
            .and_then(|_| parts.extensions.remove::<OnUpgrade>());
        let mut fault = FaultCell::without_body();
        let mut incoming = Some(incoming);
        let admitted = self.admit(&parts, &mut incoming).await;
        let (admission, read) = match admitted {
            Ok(admitted) => admitted,
            Err(response) => return *response,
        };
        let body = match (read, incoming) {
            (Some(bytes), _) => RequestBody::full(bytes),
            (None, Some(incoming)) if !incoming.is_end_stream() => {
                fault = FaultCell::of_body();
                let mut body = self.streaming(incoming, self.body_bytes_max(), &fault);
                if let Err(not_ready) = self.route.upstream.body_slots().ready(&mut body).await {
                    Box::pin(admission.not_sent()).await;
                    return self.not_ready(not_ready, &fault);
                }
                RequestBody::Streaming(Box::new(body))
            }
            _ => RequestBody::empty(),
        };
        let mut request = self.upstream_request(parts, peer, body);
        if let Some(offered) = &upgrade {
            headers::insert_upgrade(request.headers_mut(), offered.clone());
        }
        let source = Sending::new(self.connection.id, fault.clone());
        let sent = match admission {
            Admission::Http(mut call) => {
                call.sent_by(source);
                self.send(&mut Some(request), call).await
            }
            Admission::Dict(call) => Box::pin(self.send_dict(request, *call, source)).await,
        };
        match sent {
            Ok(mut response) => {
                let held = HeldResponse::of(response.extensions_mut());
                if let Some(held) = &held {
                    held.written_here(self.routing.server.write_timeout).await;
                }
                self.relay(response, client_upgrade.zip(upgrade), held)
            }
            Err(error) => self.failed(&error, &fault),
        }
    }

    /// Adds what only the route knows to the line of the access log, if there is one.
    fn note_access(&self, response: &mut Response<ResponseBody>) {
        if self.routing.server.is_access_logged {
            let extensions = response.extensions_mut();
            let fields = extensions.get_or_insert_default::<AccessFields>();
            fields.route = Some(self.route.config.name.clone());
        }
    }

    /// Refuses requests that must not be forwarded.
    fn refuse(&self, parts: &Parts, incoming: &Incoming) -> Option<Response<ResponseBody>> {
        let refuse = |status, detail| Some(answer::problem_and_close(self.format, status, detail));
        let has_length = self.fields.has(HeadFields::CONTENT_LENGTH);
        let length = has_length.then(|| parts.headers.get(CONTENT_LENGTH));
        let length = length.flatten();
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let least = length.unwrap_or_else(|| incoming.size_hint().lower());
        if least > self.body_bytes_max() {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long");
        }
        None
    }

    fn streaming(&self, incoming: Incoming, bytes_max: u64, fault: &FaultCell) -> Streaming {
        let timeout = self.routing.server.body_timeout;
        Streaming::new(incoming, bytes_max, timeout, fault.clone())
    }

    fn body_bytes_max(&self) -> u64 {
        let of_route = self.route.config.body_bytes_max;
        of_route.unwrap_or(self.routing.server.body_bytes_max)
    }

    /// Admits a request. In front of DICT, the bodies of some operations have to be read for it.
    async fn admit(
        &self,
        parts: &Parts,
        incoming: &mut Option<Incoming>,
    ) -> Result<(Admission, Option<Bytes>), Box<Response<ResponseBody>>> {
        let route = &self.route.config;
        let Some(limits) = self.routing.limits.as_ref().filter(|_| route.is_limited) else {
            return Ok((Admission::Http(Call::free()), None));
        };
        let caller = &self.connection.caller;
        let path = self.target.path(&parts.uri);
        let (refused, participant) = match &self.routing.dict {
            None => match limits.admit_http(parts, path, caller, route).await {
                Ok(Some(ticket)) => return Ok((Admission::Http(Call::admitted(ticket)), None)),
                Ok(None) => return Ok((Admission::Http(Call::free()), None)),
                Err(refused) => {
                    let certificate = caller.certificate.as_ref();
                    (
                        refused,
                        certificate.map(|certificate| certificate.name.clone()),
                    )
                }
            },
            Some(dict) => {
                let read = if dict.needs_body(parts, path) {
                    Some(Box::pin(self.read_body(incoming.take())).await?)
                } else {
                    None
                };
                let body = read.as_deref();
                let incoming = DictRequest {
                    parts,
                    path,
                    body,
                    caller,
                    route,
                    upstream: &self.route.upstream.config().name,
                };
                match Box::pin(dict.admit(limits, &incoming)).await {
                    Ok(Some(call)) => return Ok((Admission::Dict(Box::new(call)), read)),
                    Ok(None) => return Ok((Admission::Http(Call::free()), read)),
                    Err(DictRefusal::NotAdmitted {
                        refused,
                        participant,
                    }) => (refused, Some(participant)),
                    Err(DictRefusal::Invalid { status, detail }) => {
                        let status = StatusCode::from_u16(status);
                        let status = status.unwrap_or(StatusCode::BAD_REQUEST);
                        let response = answer::problem(self.format, status, &detail);
                        return Err(Box::new(response));
                    }
                }
            }
        };
        let policy = refused.policy();
        if let Some(policy) = policy {
            let now_us = self.connection.clock.now_us();
            let metrics = &self.connection.metrics;
            metrics.count_refusal(participant.as_deref(), policy, now_us);
        }
        let mut response =
            answer::not_admitted(self.format, &refused, &limits.headers, &parts.headers);
        if self.routing.server.is_access_logged {
            response.extensions_mut().insert(AccessFields {
                policy: policy.map(str::to_owned),
                ..AccessFields::default()
            });
        }
        Err(Box::new(response))
    }

    /// Reads a body that has to be there before the request is admitted.
    async fn read_body(
        &self,
        incoming: Option<Incoming>,
    ) -> Result<Bytes, Box<Response<ResponseBody>>> {
        let Some(incoming) = incoming else {
            return Ok(Bytes::new());
        };
        let fault = FaultCell::of_body();
        let bytes_max = self.body_bytes_max().min(Dict::BODY_BYTES_MAX);
        let body = self.streaming(incoming, bytes_max, &fault);
        let body = RequestBody::Streaming(Box::new(body));
        match http_body_util::BodyExt::collect(body).await {
            Ok(read) => Ok(read.to_bytes()),
            Err(_) => Err(Box::new(self.failed(&SendError::Lost, &fault))),
        }
    }

    /// The upstream adapts the URI to the version of HTTP.
    fn upstream_request(
        &self,
        parts: Parts,
        peer: Peer,
        body: RequestBody,
    ) -> Request<RequestBody> {
        let upstream = self.route.upstream.config();
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = parts.uri;
        // An HTTP/2 request becomes HTTP/1.1 unless the upstream's connection is HTTP/2 itself.
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = parts.headers;
        let caller = &self.connection.caller;
        headers::prepare_request(request.headers_mut(), self.fields, caller, peer, upstream);
        request
    }

    /// Sends a request and settles it by what came of it. If the client goes away meanwhile, the
    /// call is dropped, and settled as abandoned, or as not sent if nothing was written.
    async fn send(
        &self,
        request: &mut Option<Request<RequestBody>>,
        call: Call,
    ) -> Result<Response<Incoming>, SendError> {
        let sent = self.route.upstream.send(request, call.sending()).await;
        let outcome = match &sent {
            Ok(response) => Outcome::Status(response.status().as_u16()),
            Err(_) if !call.sending().is_written() => Outcome::NotSent,
            Err(_) => Outcome::Failed,
        };
        self.count(&sent, call.sending());
        let Some(ticket) = call.into_ticket() else {
            return sent;
        };
        let mut settlement = ticket.settle(outcome);
        if !settlement.is_done() {
            (&mut settlement).await;
        }
        let mut response = sent?;
        if let Some(limits) = &self.routing.limits {
            let decisions: SmallVec<[_; 4]> = settlement.decisions().collect();
            if !decisions.is_empty() {
                let now = SystemTime::now();
                limits
                    .headers
                    .write(response.headers_mut(), &decisions, now);
            }
        }
        Ok(response)
    }

    /// The same in front of DICT. The call ends even if the client goes away, because DICT counts it.
    async fn send_dict(
        &self,
        request: Request<RequestBody>,
        call: DictCall,
        sending: Sending,
    ) -> Result<Response<Incoming>, SendError> {
        let upstream = Arc::clone(&self.route.upstream);
        let calling = async move {
            let mut call = call;
            call.sending();
            let sent = upstream.send(&mut Some(request), &sending).await;
            let outcome = match &sent {
                Ok(response) => Outcome::Status(response.status().as_u16()),
                Err(_) if !sending.is_written() => Outcome::NotSent,
                Err(_) => Outcome::Unknown,
            };
            call.settle(outcome).await;
            (sent, sending)
        };
        let task = tokio::spawn(calling.in_current_span());
        let ended = task.await;
        let (sent, sending) = ended.unwrap_or_else(|_| (Err(SendError::Lost), Sending::default()));
        self.count(&sent, &sending);
        sent
    }

    fn count(&self, sent: &Result<Response<Incoming>, SendError>, sending: &Sending) {
        let metrics = &self.route.upstream_metrics;
        if sending.is_retried() {
            metrics.retried.fetch_add(1, Ordering::Relaxed);
        }
        match sent {
            Ok(response) => {
                self.route.upstream.failures().answered();
                if response.status() == StatusCode::TOO_MANY_REQUESTS {
                    metrics.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) => {
                metrics.count(match error {
                    SendError::NotSent(ConnectError::Down) => UpstreamFailure::Down,
                    SendError::NotSent(_) => UpstreamFailure::Connect,
                    SendError::Timeout => UpstreamFailure::Timeout,
                    SendError::Lost => UpstreamFailure::Lost,
                });
            }
        }
    }

    /// The upstream's response for the client.
    fn relay(
        &self,
        mut response: Response<Incoming>,
        asked: Option<(OnUpgrade, HeaderValue)>,
        held: Option<Arc<HeldResponse>>,
    ) -> Response<ResponseBody> {
        if let Err(detail) = acceptable::response(response.headers()) {
            return self.bad_gateway(detail);
        }
        let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = is_switching.then(|| headers::upgrade_of(response.headers()));
        headers::remove_hop_by_hop(response.headers_mut());
        if let Some(protocol) = protocol {
            let asked = asked
                .zip(protocol)
                .filter(|((_, offered), protocol)| upgrade::is_offered(protocol, offered));
            let Some(((client, _), protocol)) = asked else {
                return self.bad_gateway("the upstream switched protocols without being asked");
            };
            headers::insert_upgrade(response.headers_mut(), protocol);
            let tunnel = Tunnel {
                client: Arc::clone(&self.connection.open),
                busy: self.connection.busy.clone(),
                upstream: response.extensions_mut().remove(),
                idle_timeout: self.routing.server.tunnel_idle_timeout,
                shutdown: self.connection.shutdown.clone(),
            };
            tunnel.spawn(client, hyper::upgrade::on(&mut response));
        }
        // The client's connection decides its own version.
        *response.version_mut() = Version::default();
        let timeout = self.route.upstream.config().body_timeout;
        response.map(|incoming| ResponseBody::upstream(incoming, timeout, held))
    }

    /// The answer to a request whose body keeps it from being sent.
    fn not_ready(&self, not_ready: NotReady, fault: &FaultCell) -> Response<ResponseBody> {
        let error = match not_ready {
            NotReady::Body => SendError::Lost,
            NotReady::TooMany => {
                self.route.upstream_metrics.count(UpstreamFailure::Connect);
                SendError::NotSent(ConnectError::TooMany)
            }
        };
        self.failed(&error, fault)
    }

    /// The answer to a request without a response of the upstream.
    fn failed(&self, error: &SendError, fault: &FaultCell) -> Response<ResponseBody> {
        let (status, detail) = match fault.get() {
            BodyFault::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"),
            BodyFault::Timeout => (
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time",
            ),
            BodyFault::Broken => (StatusCode::BAD_REQUEST, "the body is broken"),
            BodyFault::None if matches!(error, SendError::Timeout) && !fault.is_complete() => (
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time",
            ),
            BodyFault::None => {
                let cause = match error {
                    SendError::NotSent(ConnectError::Down) => FailureCause::Down,
                    SendError::NotSent(ConnectError::TooMany) => FailureCause::TooMany,
                    SendError::NotSent(_) => FailureCause::Connect,
                    SendError::Timeout => FailureCause::Timeout,
                    SendError::Lost => FailureCause::Lost,
                };
                let failures = self.route.upstream.failures();
                failures.failed(cause, &self.route.config.name, error);
                let (status, detail) = match error {
                    SendError::Timeout => (
                        StatusCode::GATEWAY_TIMEOUT,
                        "the upstream did not respond in time",
                    ),
                    SendError::NotSent(ConnectError::TooMany) => (
                        StatusCode::SERVICE_UNAVAILABLE,
                        "all connections to the upstream are in use",
                    ),
                    SendError::NotSent(_) => {
                        (StatusCode::BAD_GATEWAY, "the upstream cannot be reached")
                    }
                    SendError::Lost => (
                        StatusCode::BAD_GATEWAY,
                        "the connection to the upstream was lost",
                    ),
                };
                return answer::problem(self.format, status, detail);
            }
        };
        answer::problem_and_close(self.format, status, detail)
    }

    fn bad_gateway(&self, detail: &str) -> Response<ResponseBody> {
        answer::problem(self.format, StatusCode::BAD_GATEWAY, detail)
    }
}
