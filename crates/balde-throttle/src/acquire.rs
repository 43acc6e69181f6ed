//! Waiting for tokens. The future can be dropped at any point: it then gives its place, and whatever
//! was put aside for it, to others.

use std::borrow::Borrow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::Refused;
use crate::inner::{Entered, Given, Request, Shared, Want};
use crate::scheduler::waiters::Place;

pub(crate) struct Acquire<'a, S: Borrow<Arc<Shared>>> {
    shared: S,
    request: Request<'a>,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    Door,
    Line { index: u32, place: Place },
    Done,
}

impl<'a, S: Borrow<Arc<Shared>>> Acquire<'a, S> {
    pub(crate) fn new(shared: S, request: Request<'a>) -> Self {
        Self {
            shared,
            request,
            at: At::Door,
        }
    }
}

impl<S: Borrow<Arc<Shared>> + Unpin> Future for Acquire<'_, S> {
    type Output = Result<Option<Given>, Refused>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let At::Door = this.at
            && this.request.want == Want::Tokens
            && this
                .shared
                .borrow()
                .take_ahead(this.request.whom, this.request.n)
        {
            this.at = At::Done;
            return Poll::Ready(Ok(None));
        }
        this.poll_slowly(context)
    }
}

impl<S: Borrow<Arc<Shared>>> Acquire<'_, S> {
    #[inline(never)]
    fn poll_slowly(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Given>, Refused>> {
        let shared = self.shared.borrow();
        if let At::Door = self.at {
            match shared.enter(self.request, context.waker()) {
                Entered::Granted(given) => {
                    self.at = At::Done;
                    return Poll::Ready(Ok(Some(given)));
                }
                Entered::Refused(refused) => {
                    self.at = At::Done;
                    return Poll::Ready(Err(refused));
                }
                Entered::Waits { index, place } => self.at = At::Line { index, place },
            }
        }
        let At::Line { index, place } = self.at else {
            // As good an answer as any to somebody who asks a second time.
            return Poll::Pending;
        };
        match shared.look(place, self.request.want, context.waker()) {
            None => Poll::Pending,
            Some(fate) => {
                self.at = At::Done;
                Poll::Ready(fate.map(|epoch| Some(Given { index, epoch })))
            }
        }
    }
}

impl<S: Borrow<Arc<Shared>>> Drop for Acquire<'_, S> {
    fn drop(&mut self) {
        if let At::Line { place, .. } = self.at {
            self.shared
                .borrow()
                .step(|core, now_us| core.cancel(place, now_us));
        }
    }
}
