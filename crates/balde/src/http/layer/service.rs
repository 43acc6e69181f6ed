//! The service that asks first.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::request_parts::RequestParts;
use super::body::ResponseBody;
use super::future::{Deciding, ResponseFuture};
use super::in_flight::{self, InFlight};
use super::fast_path::{self, FastPath};
use super::bucket_request::{Decisions, MissingKey, BucketRequests};
use super::refusal::Refusal;
use super::config::LayerConfig;
use crate::http::identity::IdentityError;

/// A service behind a [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    config: Arc<LayerConfig>,
    /// Whether no decision has to wait.
    is_in_memory: bool,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, config: Arc<LayerConfig>) -> Self {
        Self {
            inner,
            is_in_memory: config.is_all_in_memory(),
            config,
        }
    }
}

impl<S, A, B> Service<Request<A>> for RateLimit<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    A: Body,
    B: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<A>) -> Self::Future {
        let config = &self.config;
        if let Some(source) = config.fast_path {
            match fast_path::decide(config, source, request.headers(), request.extensions()) {
                FastPath::Admitted(None) => {
                    return ResponseFuture::forwarding(self.inner.call(request));
                }
                FastPath::Admitted(Some(values)) => {
                    let config = Arc::clone(config);
                    return ResponseFuture::adding_headers(self.inner.call(request), config, values);
                }
                FastPath::Decided(decided) => {
                    let (requests, decisions) = *decided;
                    return self.answer_decided(requests, decisions, request);
                }
                FastPath::NoKey => {}
            }
        }
        self.call_general(request)
    }
}

impl<S> RateLimit<S> {
    /// Whatever the config may be.
    fn call_general<A, B>(&mut self, request: Request<A>) -> ResponseFuture<S, A>
    where
        S: Service<Request<A>, Response = Response<B>> + Clone,
        A: Body,
    {
        let request = RequestParts::of(&request);
        let config = &self.config;
        if config.exempt.as_ref().is_some_and(|exempt| exempt(&request)) {
            return ResponseFuture::forwarding(self.inner.call(request));
        }
        let requests = match BucketRequests::of(config, &request) {
            Ok(BucketRequests::None) => return ResponseFuture::forwarding(self.inner.call(request)),
            Ok(requests) => requests,
            Err(keyless) => {
                return ResponseFuture::refused(refuse_keyless(config, keyless, &request));
            }
        };
        if self.is_in_memory {
            let decisions = requests.decide_now(config);
            return self.answer_decided(requests, decisions, request);
        }
        // The one that is ready is the one to be called; its clone must become ready first.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let config = Arc::clone(config);
        ResponseFuture::deciding(Deciding::new(config, requests), ready, request)
    }

    fn answer_decided<A, B>(
        &mut self,
        requests: BucketRequests,
        decisions: Decisions,
        request: Request<A>,
    ) -> ResponseFuture<S, A>
    where
        S: Service<Request<A>, Response = Response<B>>,
    {
        match admit(&self.config, requests, decisions, &request) {
            Ok(mut in_flight) => {
                let call = in_flight::mark_panic(&mut in_flight, || self.inner.call(request));
                ResponseFuture::calling(call, in_flight)
            }
            Err(answer) => ResponseFuture::refused(*answer),
        }
    }
}

/// Lets the request in, with what is left to do for it, or answers it.
pub(super) fn admit<A>(
    config: &Arc<LayerConfig>,
    requests: BucketRequests,
    decisions: Decisions,
    request: &Request<A>,
) -> Result<Option<Box<InFlight>>, Box<Response<Bytes>>> {
    let Some(refused) = decisions.refused() else {
        return Ok(InFlight::new(config, requests, decisions));
    };
    let parts = requests.named(config, decisions.as_slice());
    let refusal = Refusal::of_decisions(&parts, refused, request.headers());
    let mut answer = answer(config, &refusal);
    let headers = answer.headers_mut();
    in_flight::write_headers(config, &requests, decisions.as_slice(), headers);
    Err(Box::new(answer))
}

fn refuse_keyless<A>(config: &LayerConfig, keyless: MissingKey, request: &Request<A>) -> Response<Bytes> {
    let limiter = &config.rules[keyless.rule].limiter;
    if let Some(held_back) = config.keyless.passes(limiter.now_us()) {
        tracing::warn!(
            event_type = "no_key",
            decision = "deny",
            policy = limiter.name(),
            held_back,
            "refused without counting: {}",
            Why(keyless.why)
        );
    }
    let refusal = Refusal::of_keyless(limiter.name(), keyless.why, request.headers());
    answer(config, &refusal)
}

fn answer(config: &LayerConfig, refusal: &Refusal<'_>) -> Response<Bytes> {
    match &config.on_refusal {
        Some(on_refusal) => on_refusal(refusal),
        None => refusal.answer(config.format),
    }
}

struct Why(Option<IdentityError>);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(why) => why.fmt(f),
            None => f.write_str("the rule's function gave no key"),
        }
    }
}
