//! The tower service that checks the limits before it calls the inner service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::admission::{self, Admission};
use super::body::ResponseBody;
use super::config::LayerConfig;
use super::future::{Deciding, ResponseFuture};
use super::request_parts::RequestParts;

/// A rate-limited service, made by [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    config: Arc<LayerConfig>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, config: Arc<LayerConfig>) -> Self {
        Self { inner, config }
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
        let admission = admission::begin(config, &RequestParts::new(&request));
        match admission {
            Admission::Forward => ResponseFuture::forwarding(self.inner.call(request)),
            Admission::AddHeaders { limit, values } => {
                let config = Arc::clone(config);
                let call = self.inner.call(request);
                ResponseFuture::adding_headers(call, config, limit, values)
            }
            Admission::Admitted(mut in_flight) => {
                let call = in_flight.mark_panic(|| self.inner.call(request));
                ResponseFuture::calling(call, in_flight)
            }
            Admission::Refused(response) => ResponseFuture::refused(*response),
            Admission::Undecided(buckets) => {
                // `poll_ready` made `inner` ready, so `inner` has to be called; its clone is not
                // ready yet.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                let deciding = Deciding::new(Arc::clone(&self.config), *buckets);
                ResponseFuture::deciding(deciding, ready, request)
            }
        }
    }
}
