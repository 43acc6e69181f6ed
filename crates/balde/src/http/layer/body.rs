//! The body of an answer: the service's, or a refusal's.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of an answer that went through a [`RateLimitLayer`](super::RateLimitLayer).
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        of: Of<B>,
    }
}

pin_project! {
    #[project = OfProjected]
    #[derive(Debug)]
    enum Of<B> {
        Service { #[pin] body: B },
        Refusal { body: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(super) const fn of_service(body: B) -> Self {
        Self {
            of: Of::Service { body },
        }
    }

    pub(super) fn of_refusal(body: Bytes) -> Self {
        Self {
            of: Of::Refusal {
                body: (!body.is_empty()).then_some(body),
            },
        }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().of.project() {
            OfProjected::Service { body } => body.poll_frame(cx),
            OfProjected::Refusal { body } => Poll::Ready(body.take().map(|b| Ok(Frame::data(b)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.of {
            Of::Service { body } => body.is_end_stream(),
            Of::Refusal { body } => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.of {
            Of::Service { body } => body.size_hint(),
            Of::Refusal { body } => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
        }
    }
}
