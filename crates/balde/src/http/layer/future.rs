//! The answer to come: decide, call, settle.

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
use super::in_flight::{self, InFlight};
use crate::http::outcome::Outcome;
use super::bucket_request::{Decisions, BucketRequests};
use super::config::LayerConfig;
use super::service;
use crate::decision::Decision;
use crate::http::headers::FieldValues;

pin_project! {
    /// The answer of a service behind a [`RateLimitLayer`](super::RateLimitLayer).
    pub struct ResponseFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        stage: Stage<S, S::Future, A, S::Response>,
    }
}

pin_project! {
    #[project = StageProjected]
    enum Stage<S, F, A, R> {
        // The store is request.
        Deciding { deciding: Box<(Deciding, S, Option<Request<A>>)> },
        // The service works, and nothing is left to do.
        Forwarding { #[pin] call: F },
        // The service works, and the caller is to be told how the only limit stands.
        AddingHeaders { config: Arc<LayerConfig>, values: FieldValues, #[pin] call: F },
        // The service works, and whatever there may be is to be done then.
        Calling { in_flight: Option<Box<InFlight>>, #[pin] call: F },
        // The answer is there, and its price is not booked yet.
        Settling { settling: Settled, in_flight: Option<Box<InFlight>>, response: Option<R> },
        // The limiter answered.
        Refused { response: Option<Response<Bytes>> },
    }
}

type Settled = Pin<Box<dyn Future<Output = Vec<Decision>> + Send>>;

/// A decision that has to wait for a store.
pub(super) struct Deciding {
    config: Arc<LayerConfig>,
    answer: Pin<Box<dyn Future<Output = (BucketRequests, Decisions)> + Send>>,
}

impl Deciding {
    pub(super) fn new(config: Arc<LayerConfig>, requests: BucketRequests) -> Self {
        let asking = Arc::clone(&config);
        let answer = Box::pin(async move {
            let decisions = requests.decide(&asking).await;
            (requests, decisions)
        });
        Self { config, answer }
    }
}

impl<S, A> ResponseFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn at(stage: Stage<S, S::Future, A, S::Response>) -> Self {
        Self { stage }
    }

    pub(super) fn deciding(deciding: Deciding, service: S, request: Request<A>) -> Self {
        // Boxed, so that the future of a request that waits for no store is small.
        let deciding = Box::new((deciding, service, Some(request)));
        Self::at(Stage::Deciding { deciding })
    }

    #[inline]
    pub(super) fn forwarding(call: S::Future) -> Self {
        Self::at(Stage::Forwarding { call })
    }

    #[inline]
    pub(super) fn adding_headers(call: S::Future, config: Arc<LayerConfig>, values: FieldValues) -> Self {
        Self::at(Stage::AddingHeaders {
            config,
            values,
            call,
        })
    }

    pub(super) fn calling(call: S::Future, in_flight: Option<Box<InFlight>>) -> Self {
        Self::at(Stage::Calling { in_flight, call })
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        let response = Some(response);
        Self::at(Stage::Refused { response })
    }
}

impl<S, A, B> Future for ResponseFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjected::Deciding { deciding } => {
                    let (deciding, service, request) = &mut **deciding;
                    let (requests, decisions) = ready!(deciding.answer.as_mut().poll(cx));
                    let request = request.take().expect(ONCE);
                    match service::admit(&deciding.config, requests, decisions, &request) {
                        Ok(mut in_flight) => Stage::Calling {
                            call: in_flight::mark_panic(&mut in_flight, || service.call(request)),
                            in_flight,
                        },
                        Err(response) => Stage::Refused {
                            response: Some(*response),
                        },
                    }
                }
                StageProjected::Forwarding { call } => {
                    let response = ready!(call.poll(cx))?;
                    return Poll::Ready(Ok(response.map(ResponseBody::of_service)));
                }
                StageProjected::AddingHeaders {
                    config,
                    values,
                    call,
                } => {
                    let mut response = ready!(call.poll(cx))?;
                    in_flight::write_values(config, values, response.headers_mut());
                    return Poll::Ready(Ok(response.map(ResponseBody::of_service)));
                }
                StageProjected::Calling { in_flight, call } => {
                    let answer = ready!(in_flight::mark_panic(in_flight, || call.poll(cx)));
                    let outcome = match &answer {
                        Ok(response) => Outcome::Answered {
                            status: response.status(),
                            headers: response.headers(),
                        },
                        Err(_) => Outcome::Failed,
                    };
                    let settling = in_flight.as_mut().and_then(|one| one.settle(&outcome));
                    let response = answer?;
                    match settling {
                        None => {
                            return Poll::Ready(Ok(finish(in_flight.as_deref(), response, None)));
                        }
                        Some(settling) => Stage::Settling {
                            settling: Box::pin(settling),
                            in_flight: in_flight.take(),
                            response: Some(response),
                        },
                    }
                }
                StageProjected::Settling {
                    settling,
                    in_flight,
                    response,
                } => {
                    let settled = ready!(settling.as_mut().poll(cx));
                    let response = response.take().expect(ONCE);
                    return Poll::Ready(Ok(finish(in_flight.as_deref(), response, Some(&settled))));
                }
                StageProjected::Refused { response } => {
                    let response = response.take().expect(ONCE);
                    return Poll::Ready(Ok(response.map(ResponseBody::of_refusal)));
                }
            };
            stage.set(next);
        }
    }
}

const ONCE: &str = "a future is not polled after it is ready";

fn finish<B>(
    in_flight: Option<&InFlight>,
    mut response: Response<B>,
    settled: Option<&[Decision]>,
) -> Response<ResponseBody<B>> {
    if let Some(in_flight) = in_flight {
        in_flight.write_headers(response.headers_mut(), settled);
    }
    response.map(ResponseBody::of_service)
}

impl<S, A> fmt::Debug for ResponseFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
