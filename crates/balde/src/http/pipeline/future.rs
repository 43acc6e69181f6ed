//! The response future: decide, call the inner service, settle.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::ResponseBody;
use super::{Admission, Admit, Deciding, RequestTicket};
use crate::http::outcome::Outcome;

pin_project! {
    /// The response future of a rate-limited service, [`RateLimit`](super::RateLimit).
    pub struct ResponseFuture<S, D, A>
    where
        S: Service<Request<A>>,
        D: Admit,
    {
        #[pin]
        stage: Stage<Undecided<S, D, A>, D::Ticket, S::Future, S::Response>,
    }
}

pin_project! {
    #[project = StageProjected]
    enum Stage<U, T, F, R> {
        // Waits for the store's decision. Boxed, so that the future stays small for requests that wait
        // for no store.
        Deciding { undecided: Box<U> },
        // Waits for the inner service; nothing to do afterwards.
        Forwarding { #[pin] call: F },
        // Waits for the inner service, then settles and writes header fields.
        Calling { ticket: Option<T>, #[pin] call: F },
        // Has the response and waits for its settlement.
        Settling { ticket: T, response: Option<R> },
        // Has the response of a refusal.
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

type StageOf<S, D, A> = Stage<
    Undecided<S, D, A>,
    <D as Admit>::Ticket,
    <S as Service<Request<A>>>::Future,
    <S as Service<Request<A>>>::Response,
>;

/// A request whose decision waits for a store.
struct Undecided<S, D: Admit, A> {
    admit: Arc<D>,
    deciding: Deciding<D::Decided>,
    service: S,
    request: Option<Request<A>>,
}

impl<S, D, A> ResponseFuture<S, D, A>
where
    S: Service<Request<A>>,
    D: Admit,
{
    pub(super) fn deciding(
        admit: Arc<D>,
        deciding: Deciding<D::Decided>,
        service: S,
        request: Request<A>,
    ) -> Self {
        let undecided = Box::new(Undecided {
            admit,
            deciding,
            service,
            request: Some(request),
        });
        Self {
            stage: Stage::Deciding { undecided },
        }
    }

    #[inline]
    pub(super) fn decided(
        admission: Admission<D::Ticket>,
        service: &mut S,
        request: Request<A>,
    ) -> Self {
        Self {
            stage: after::<S, D, A>(admission, service, request),
        }
    }
}

/// What happens to a request after the decision.
#[inline]
fn after<S, D, A>(
    admission: Admission<D::Ticket>,
    service: &mut S,
    request: Request<A>,
) -> StageOf<S, D, A>
where
    S: Service<Request<A>>,
    D: Admit,
{
    match admission {
        Admission::Forward => Stage::Forwarding {
            call: service.call(request),
        },
        Admission::Admitted(mut ticket) => Stage::Calling {
            call: mark_panic(&mut ticket, || service.call(request)),
            ticket: Some(ticket),
        },
        Admission::Refused(response) => Stage::Refused {
            response: Some(response),
        },
    }
}

/// Runs `work` and marks the request as panicked if it unwinds. The ticket may be dropped after the
/// panic was caught, when `std::thread::panicking` no longer shows it.
#[inline]
fn mark_panic<K: RequestTicket, T>(ticket: &mut K, work: impl FnOnce() -> T) -> T {
    struct PanicGuard<'a, K: RequestTicket>(&'a mut K);
    impl<K: RequestTicket> Drop for PanicGuard<'_, K> {
        fn drop(&mut self) {
            self.0.panicked();
        }
    }
    let guard = PanicGuard(ticket);
    let done = work();
    std::mem::forget(guard);
    done
}

impl<S, D, A, B> Future for ResponseFuture<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    D: Admit,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjected::Deciding { undecided } => {
                    let decided = ready!(undecided.deciding.as_mut().poll(cx));
                    let request = undecided.request.take().expect(POLLED_ONCE);
                    let admission = undecided.admit.admit(decided, request.headers());
                    after::<S, D, A>(admission, &mut undecided.service, request)
                }
                StageProjected::Forwarding { call } => {
                    let response = ready!(call.poll(cx))?;
                    return Poll::Ready(Ok(response.map(ResponseBody::from_service)));
                }
                StageProjected::Calling { ticket, call } => {
                    let open = ticket.as_mut().expect(POLLED_ONCE);
                    let result = ready!(mark_panic(open, || call.poll(cx)));
                    open.settle(&match &result {
                        Ok(response) => Outcome::from_response(response),
                        Err(_) => Outcome::Failed,
                    });
                    let response = result?;
                    if open.poll_settled(cx).is_ready() {
                        return Poll::Ready(Ok(finish(open, response)));
                    }
                    Stage::Settling {
                        ticket: ticket.take().expect(POLLED_ONCE),
                        response: Some(response),
                    }
                }
                StageProjected::Settling { ticket, response } => {
                    ready!(ticket.poll_settled(cx));
                    let response = response.take().expect(POLLED_ONCE);
                    return Poll::Ready(Ok(finish(ticket, response)));
                }
                StageProjected::Refused { response } => {
                    let response = *response.take().expect(POLLED_ONCE);
                    return Poll::Ready(Ok(response.map(ResponseBody::from_refusal)));
                }
            };
            stage.set(next);
        }
    }
}

const POLLED_ONCE: &str = "a future must not be polled after it is ready";

#[inline]
fn finish<B>(ticket: &impl RequestTicket, mut response: Response<B>) -> Response<ResponseBody<B>> {
    ticket.write_headers(response.headers_mut());
    response.map(ResponseBody::from_service)
}

impl<S, D, A> fmt::Debug for ResponseFuture<S, D, A>
where
    S: Service<Request<A>>,
    D: Admit,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
