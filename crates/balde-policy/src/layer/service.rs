//! The tower service that enforces a profile in front of another service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::Config;
use super::future::ResponseFuture;
use crate::engine::Admission;
use crate::http_headers::HttpHeaders;
use crate::policy::Request as PolicyRequest;

use balde::http::{ClientKey, IdentityError, ResponseBody};

/// A service behind a [`PolicyLayer`](crate::PolicyLayer).
#[derive(Clone, Debug)]
pub struct PolicyService<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> PolicyService<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S, A, B> Service<Request<A>> for PolicyService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    B: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let config = &self.config;
        let Some((admission, user)) = admit(config, &request) else {
            return ResponseFuture::passing(self.inner.call(request), Arc::clone(config));
        };
        match admission {
            Admission::Ready(Ok(ticket)) => {
                ResponseFuture::calling(self.inner.call(request), ticket, Arc::clone(config))
            }
            Admission::Ready(Err(error)) => {
                ResponseFuture::refused(config.refuse(&error, user.err(), request.headers()))
            }
            Admission::Pending(admitting) => {
                // The service that is ready is the one to call; its clone must become ready first.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::admitting(admitting, ready, request, Arc::clone(config))
            }
        }
    }
}

/// Starts the admission of a request, and returns its user; `None` for a request that is outside of
/// the profile's base paths.
fn admit<A>(
    config: &Config,
    request: &Request<A>,
) -> Option<(Admission, Result<ClientKey, IdentityError>)> {
    let received = request.uri().path();
    let normal = config.path_rules.normalized(received);
    let path = match &normal {
        Ok(path) => config.engine.without_base(path)?,
        // The engine refuses it, below a base path or not.
        Err(_) => received,
    };
    let (headers, extensions) = (request.headers(), request.extensions());
    let user = config.identity.key(headers, extensions);
    let user_id = user.as_ref().ok().map(AsRef::as_ref);
    let find = config.participant.as_ref();
    let participant = find.and_then(|find| find(headers, extensions));
    let query = request.uri().query().unwrap_or_default();
    let fields = HttpHeaders(headers);
    let mut parts = PolicyRequest::new(request.method().as_str(), path, query);
    parts.path_rules = config.path_rules;
    parts.headers = &fields;
    parts.user = user_id.and_then(|user| std::str::from_utf8(user).ok());
    parts.participant = participant.as_deref();
    Some((config.engine.start(&parts), user))
}
