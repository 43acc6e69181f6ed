//! Finds out who calls, before any handler runs, and refuses readers that may not read.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::App;
use super::access::Role;
use super::api::ApiError;
use super::pager_duty;

/// The address of the client, as the server puts it into the extensions of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// Puts the caller into the extensions of the request. The page itself, which holds no data, and the
/// health checks are for everybody.
pub(super) async fn check(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let caller = app.0.access.caller(peer, request.headers());
    let path = request.uri().path();
    let is_data = path.starts_with("/api/") || path == "/metrics";
    // `me` tells a page what it lacks; PagerDuty signs its requests.
    let is_open = path == "/api/v1/me" || path == pager_duty::PATH;
    if is_data && !is_open && caller.role < Some(Role::Read) {
        let detail = "reading needs a token of [http] as Authorization: Bearer …, or the proxy that \
                      [http.sso] names";
        let mut response = ApiError::new(StatusCode::UNAUTHORIZED, detail).into_response();
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        return response;
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}
