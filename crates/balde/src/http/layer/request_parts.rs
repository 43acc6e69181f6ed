//! What the layer's hooks see of a request.

use ::http::{Extensions, HeaderMap, Method, Request, Uri};
use http_body::Body;

/// A request as the hooks of a [`RateLimitLayer`](super::RateLimitLayer) see it: everything but its
/// body, of which only the size is known.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    body_bytes: Option<u64>,
}

impl<'a> RequestParts<'a> {
    pub(super) fn of<B: Body>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            body_bytes: request.body().size_hint().exact(),
        }
    }

    /// GET, POST and so on.
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// What is request for.
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The header fields. A client writes them: a key made of them is one that the client chose.
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// What earlier layers found out: the peer's address, the authenticated user.
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// How many bytes the body has, where that is known before it is read.
    pub const fn body_bytes(&self) -> Option<u64> {
        self.body_bytes
    }
}
