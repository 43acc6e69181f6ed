//! The tower service that checks the limits before it calls the inner service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::admission::{admit, refuse_missing_key};
use super::body::ResponseBody;
use super::bucket_request::{BucketRequests, Decisions};
use super::config::LayerConfig;
use super::fast_path::{self, FastPath};
use super::future::{Deciding, ResponseFuture};
use super::in_flight;
use super::request_parts::RequestParts;

/// A rate-limited service, made by [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    config: Arc<LayerConfig>,
    /// Whether all buckets are in memory, so that decisions never wait.
    is_in_memory: bool,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, config: Arc<LayerConfig>) -> Self {
        Self {
            inner,
            is_in_memory: config.is_in_memory(),
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
        if let Some(scope) = config.fast_path {
            match fast_path::decide(config, scope, request.headers(), request.extensions()) {
                FastPath::Admitted(None) => {
                    return ResponseFuture::forwarding(self.inner.call(request));
                }
                FastPath::Admitted(Some(values)) => {
                    let config = Arc::clone(config);
                    let call = self.inner.call(request);
                    return ResponseFuture::adding_headers(call, config, values);
                }
                FastPath::Decided(decided) => {
                    let (buckets, decisions) = *decided;
                    return self.call_decided(buckets, decisions, request);
                }
                FastPath::NoKey => {}
            }
        }
        self.call_general(request)
    }
}

impl<S> RateLimit<S> {
    /// Handles any configuration.
    fn call_general<A, B>(&mut self, request: Request<A>) -> ResponseFuture<S, A>
    where
        S: Service<Request<A>, Response = Response<B>> + Clone,
        A: Body,
    {
        let parts = RequestParts::new(&request);
        let config = &self.config;
        if config.exempt.as_ref().is_some_and(|exempt| exempt(&parts)) {
            return ResponseFuture::forwarding(self.inner.call(request));
        }
        let buckets = match BucketRequests::new(config, &parts) {
            Ok(BucketRequests::None) => {
                return ResponseFuture::forwarding(self.inner.call(request));
            }
            Ok(buckets) => buckets,
            Err(missing) => {
                return ResponseFuture::refused(refuse_missing_key(config, missing, &request));
            }
        };
        if self.is_in_memory {
            let decisions = buckets.decide_now(config);
            return self.call_decided(buckets, decisions, request);
        }
        // `poll_ready` made `inner` ready, so `inner` has to be called; its clone is not ready yet.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let config = Arc::clone(config);
        ResponseFuture::deciding(Deciding::new(config, buckets), ready, request)
    }

    /// Calls the inner service or refuses the request, after the decision.
    fn call_decided<A, B>(
        &mut self,
        buckets: BucketRequests,
        decisions: Decisions,
        request: Request<A>,
    ) -> ResponseFuture<S, A>
    where
        S: Service<Request<A>, Response = Response<B>>,
    {
        match admit(&self.config, buckets, decisions, &request) {
            Ok(mut in_flight) => {
                let call = in_flight::mark_panic(&mut in_flight, || self.inner.call(request));
                ResponseFuture::calling(call, in_flight)
            }
            Err(response) => ResponseFuture::refused(*response),
        }
    }
}
