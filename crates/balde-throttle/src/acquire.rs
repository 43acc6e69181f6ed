//! The future that waits for tokens. It can be dropped at any point: its waiter then leaves the queue,
//! and its tokens go back to the buckets.

use std::borrow::Borrow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::Refusal;
use crate::inner::{Entry, Grant, Inner, Request, RequestKind};
use crate::scheduler::waiters::WaiterId;

/// Resolves to a grant, or to `None` if the tokens were prefetched.
pub(crate) struct Acquire<'a, I: Borrow<Arc<Inner>>> {
    inner: I,
    request: Request<'a>,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    New,
    Queued { index: u32, id: WaiterId },
    Done,
}

impl<'a, I: Borrow<Arc<Inner>>> Acquire<'a, I> {
    pub(crate) fn new(inner: I, request: Request<'a>) -> Self {
        Self {
            inner,
            request,
            stage: Stage::New,
        }
    }
}

impl<I: Borrow<Arc<Inner>> + Unpin> Future for Acquire<'_, I> {
    type Output = Result<Option<Grant>, Refusal>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Stage::New = this.stage
            && this.request.kind == RequestKind::Tokens
            && this
                .inner
                .borrow()
                .take_prefetched(this.request.partition, this.request.n)
        {
            this.stage = Stage::Done;
            return Poll::Ready(Ok(None));
        }
        this.poll_locked(context)
    }
}

impl<I: Borrow<Arc<Inner>>> Acquire<'_, I> {
    #[inline(never)]
    fn poll_locked(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Grant>, Refusal>> {
        let inner = self.inner.borrow();
        if let Stage::New = self.stage {
            match inner.enter(self.request, context.waker()) {
                Entry::Granted(grant) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(Some(grant)));
                }
                Entry::Refused(refusal) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Err(refusal));
                }
                Entry::Queued { index, id } => self.stage = Stage::Queued { index, id },
            }
        }
        let Stage::Queued { index, id } = self.stage else {
            // Polled after completion.
            return Poll::Pending;
        };
        match inner.poll_waiter(id, self.request.kind, context.waker()) {
            None => Poll::Pending,
            Some(result) => {
                self.stage = Stage::Done;
                Poll::Ready(result.map(|epoch| Some(Grant { index, epoch })))
            }
        }
    }
}

impl<I: Borrow<Arc<Inner>>> Drop for Acquire<'_, I> {
    fn drop(&mut self) {
        if let Stage::Queued { id, .. } = self.stage {
            self.inner.borrow().cancel(id);
        }
    }
}
