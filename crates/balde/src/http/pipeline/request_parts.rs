//! The parts of a request that rules can use.

use ::http::{Extensions, HeaderMap, Method, Request, Uri};
use http_body::Body;

/// A request without its body, as the closures of a [`RateLimitLayer`](crate::http::RateLimitLayer) and a
/// [`LimitRule`](crate::http::LimitRule) receive it.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    body_bytes: Option<u64>,
}

impl<'a> RequestParts<'a> {
    pub(super) fn new<B: Body>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            body_bytes: request.body().size_hint().exact(),
        }
    }

    /// The request's method.
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// The request's URI.
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The request's header fields. Clients control them: a client can choose any key that is
    /// derived from them.
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The request's extensions, where outer layers put what they know: the peer's address, the
    /// authenticated user.
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The size of the body in bytes, or `None` if it is not known before the body is read.
    pub const fn body_bytes(&self) -> Option<u64> {
        self.body_bytes
    }
}
