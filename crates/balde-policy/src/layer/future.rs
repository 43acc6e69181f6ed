//! The response future: admit, call, settle.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use balde::http::ResponseBody;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::Config;
use crate::engine::{Admitting, Outcome, Settlement, Ticket};

pin_project! {
    /// The response future of a service behind a [`PolicyLayer`](crate::PolicyLayer).
    pub struct ResponseFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        stage: Stage<S, S::Future, A, S::Response>,
        config: Option<Arc<Config>>,
    }
}

pin_project! {
    #[project = StageProjected]
    enum Stage<S, F, A, R> {
        // The engine waits for Redis.
        Admitting { waiting: Box<(Admitting, S, Option<Request<A>>)> },
        // The service works. Dropping the ticket settles it as abandoned.
        Calling { ticket: Option<Ticket>, #[pin] call: F },
        // The response is there, and its price is not charged yet.
        Settling { settlement: Settlement, response: Option<R> },
        Refused { response: Option<Response<String>> },
    }
}

impl<S, A> ResponseFuture<S, A>
where
    S: Service<Request<A>>,
{
    pub(super) fn admitting(
        admitting: Admitting,
        service: S,
        request: Request<A>,
        config: Arc<Config>,
    ) -> Self {
        let waiting = Box::new((admitting, service, Some(request)));
        Self {
            stage: Stage::Admitting { waiting },
            config: Some(config),
        }
    }

    pub(super) fn calling(call: S::Future, ticket: Ticket, config: Arc<Config>) -> Self {
        let ticket = Some(ticket);
        Self {
            stage: Stage::Calling { ticket, call },
            config: Some(config),
        }
    }

    pub(super) fn passing(call: S::Future, config: Arc<Config>) -> Self {
        let ticket = None;
        Self {
            stage: Stage::Calling { ticket, call },
            config: Some(config),
        }
    }

    pub(super) fn refused(response: Response<String>) -> Self {
        let response = Some(response);
        Self {
            stage: Stage::Refused { response },
            config: None,
        }
    }
}

impl<S, A, B> Future for ResponseFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut stage = this.stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjected::Admitting { waiting } => {
                    let (admitting, service, request) = &mut **waiting;
                    let admitted = ready!(admitting.as_mut().poll(cx));
                    let request = request.take().expect(ONCE);
                    match (admitted, &*this.config) {
                        (Ok(ticket), _) => Stage::Calling {
                            ticket: Some(ticket),
                            call: service.call(request),
                        },
                        (Err(error), config) => {
                            // A missing key is found before the store is asked.
                            let config = config.as_ref().expect(ONCE);
                            let response = config.refuse(&error, None, request.headers());
                            Stage::Refused {
                                response: Some(response),
                            }
                        }
                    }
                }
                StageProjected::Calling { ticket, call } => {
                    let answered = ready!(call.poll(cx));
                    let outcome = match &answered {
                        Ok(response) => Outcome::Status(response.status().as_u16()),
                        Err(_) => Outcome::Failed,
                    };
                    let settlement = ticket.take().map(|ticket| ticket.settle(outcome));
                    let response = answered?;
                    match settlement {
                        Some(settlement) => Stage::Settling {
                            settlement,
                            response: Some(response),
                        },
                        None => {
                            return Poll::Ready(Ok(response.map(ResponseBody::from_service)));
                        }
                    }
                }
                StageProjected::Settling {
                    settlement,
                    response,
                } => {
                    ready!(Pin::new(&mut *settlement).poll(cx));
                    let mut response = response.take().expect(ONCE);
                    if let Some(config) = this.config {
                        config.write_headers(response.headers_mut(), settlement.decisions());
                    }
                    return Poll::Ready(Ok(response.map(ResponseBody::from_service)));
                }
                StageProjected::Refused { response } => {
                    let response = response.take().expect(ONCE);
                    let response = response.map(ResponseBody::from_refusal);
                    return Poll::Ready(Ok(response));
                }
            };
            stage.set(next);
        }
    }
}

const ONCE: &str = "a future is not polled after it is ready";

impl<S, A> fmt::Debug for ResponseFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
