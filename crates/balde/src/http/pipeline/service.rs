//! The tower service that admits requests before it calls the inner service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::body::ResponseBody;
use super::future::ResponseFuture;
use super::request_parts::RequestParts;
use super::{Admit, Begun};

/// A rate-limited service, made by a layer such as [`RateLimitLayer`](crate::http::RateLimitLayer).
pub struct RateLimit<S, D> {
    inner: S,
    admit: Arc<D>,
}

impl<S, D> RateLimit<S, D> {
    /// Creates a service whose requests are admitted by `admit`.
    pub const fn new(inner: S, admit: Arc<D>) -> Self {
        Self { inner, admit }
    }
}

impl<S: Clone, D> Clone for RateLimit<S, D> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            admit: Arc::clone(&self.admit),
        }
    }
}

impl<S: fmt::Debug, D> fmt::Debug for RateLimit<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, D, A, B> Service<Request<A>> for RateLimit<S, D>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    D: Admit,
    A: Body,
    B: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, D, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<A>) -> Self::Future {
        match self.admit.begin(&RequestParts::new(&request)) {
            Begun::Decided(admission) => {
                ResponseFuture::decided(admission, &mut self.inner, request)
            }
            Begun::Deciding(deciding) => {
                // `poll_ready` made `inner` ready, so `inner` has to be called; its clone is not
                // ready yet.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(Arc::clone(&self.admit), deciding, ready, request)
            }
        }
    }
}
