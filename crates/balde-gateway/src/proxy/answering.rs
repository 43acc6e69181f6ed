//! The body of a response, until its connection can take the next request.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};

use super::framing::RawFraming;
use crate::body::{BodyError, ResponseBody};

/// The body of a response. When it is dropped, an HTTP/1 connection notes that its request is
/// answered.
#[derive(Debug)]
pub(super) struct Answering {
    body: ResponseBody,
    framing: Option<RawFraming>,
}

impl Answering {
    /// Wraps the response to a request of this version of HTTP.
    pub(super) fn response(
        response: Response<ResponseBody>,
        version: Version,
        framing: &RawFraming,
    ) -> Response<Self> {
        let framing = (version <= Version::HTTP_11).then(|| framing.clone());
        response.map(|body| Self { body, framing })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(framing) = &self.framing {
            framing.answered();
        }
    }
}

impl Body for Answering {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
