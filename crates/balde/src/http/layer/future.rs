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

use super::admission::{Admission, admit};
use super::body::ResponseBody;
use super::bucket_request::{BucketRequests, Decisions};
use super::config::LayerConfig;
use super::in_flight::{self, InFlight};
use crate::decision::Decision;
use crate::http::headers::FieldValues;
use crate::http::outcome::Outcome;

pin_project! {
    /// The response future of a rate-limited service, [`RateLimit`](super::RateLimit).
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
        // Waits for the store's decision.
        Deciding { deciding: Box<(Deciding, S, Option<Request<A>>)> },
        // Waits for the inner service; nothing to do afterwards.
        Forwarding { #[pin] call: F },
        // Waits for the inner service, then writes the header fields of one limit.
        AddingHeaders { config: Arc<LayerConfig>, limit: usize, values: FieldValues, #[pin] call: F },
        // Waits for the inner service, then settles and writes header fields.
        Calling { in_flight: Option<Box<InFlight>>, #[pin] call: F },
        // Has the response and waits for its settlement.
        Settling { settling: Settling, in_flight: Box<InFlight>, response: Option<R> },
        // Has the response of a refusal.
        Refused { response: Option<Response<Bytes>> },
    }
}

type Settling = Pin<Box<dyn Future<Output = Vec<Decision>> + Send>>;

/// A decision that waits for a store.
pub(super) struct Deciding {
    config: Arc<LayerConfig>,
    decision: Pin<Box<dyn Future<Output = (BucketRequests, Decisions)> + Send>>,
}

impl Deciding {
    pub(super) fn new(config: Arc<LayerConfig>, buckets: BucketRequests) -> Self {
        let for_decision = Arc::clone(&config);
        let decision = Box::pin(async move {
            let decisions = buckets.decide(&for_decision).await;
            (buckets, decisions)
        });
        Self { config, decision }
    }
}

impl<S, A> ResponseFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn new(stage: Stage<S, S::Future, A, S::Response>) -> Self {
        Self { stage }
    }

    pub(super) fn deciding(deciding: Deciding, service: S, request: Request<A>) -> Self {
        // Boxed, so that the future stays small for requests that wait for no store.
        let deciding = Box::new((deciding, service, Some(request)));
        Self::new(Stage::Deciding { deciding })
    }

    #[inline]
    pub(super) fn forwarding(call: S::Future) -> Self {
        Self::new(Stage::Forwarding { call })
    }

    #[inline]
    pub(super) fn adding_headers(
        call: S::Future,
        config: Arc<LayerConfig>,
        limit: usize,
        values: FieldValues,
    ) -> Self {
        Self::new(Stage::AddingHeaders {
            config,
            limit,
            values,
            call,
        })
    }

    pub(super) fn calling(call: S::Future, in_flight: Box<InFlight>) -> Self {
        let in_flight = Some(in_flight);
        Self::new(Stage::Calling { in_flight, call })
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        let response = Some(response);
        Self::new(Stage::Refused { response })
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
                    let (buckets, decisions) = ready!(deciding.decision.as_mut().poll(cx));
                    let request = request.take().expect(POLLED_ONCE);
                    let config = &deciding.config;
                    match admit(config, buckets, decisions, request.headers()) {
                        Admission::Forward => Stage::Forwarding {
                            call: service.call(request),
                        },
                        Admission::AddHeaders { limit, values } => Stage::AddingHeaders {
                            config: Arc::clone(config),
                            limit,
                            values,
                            call: service.call(request),
                        },
                        Admission::Admitted(mut in_flight) => Stage::Calling {
                            call: in_flight.mark_panic(|| service.call(request)),
                            in_flight: Some(in_flight),
                        },
                        Admission::Refused(response) => Stage::Refused {
                            response: Some(*response),
                        },
                        Admission::Undecided(_) => unreachable!("the decision was made"),
                    }
                }
                StageProjected::Forwarding { call } => {
                    let response = ready!(call.poll(cx))?;
                    return Poll::Ready(Ok(response.map(ResponseBody::from_service)));
                }
                StageProjected::AddingHeaders {
                    config,
                    limit,
                    values,
                    call,
                } => {
                    let mut response = ready!(call.poll(cx))?;
                    in_flight::write_values(config, *limit, values, response.headers_mut());
                    return Poll::Ready(Ok(response.map(ResponseBody::from_service)));
                }
                StageProjected::Calling { in_flight, call } => {
                    let request = in_flight.as_mut().expect(POLLED_ONCE);
                    let result = ready!(request.mark_panic(|| call.poll(cx)));
                    let outcome = match &result {
                        Ok(response) => Outcome::from_response(response),
                        Err(_) => Outcome::Failed,
                    };
                    let settling = request.settle(&outcome);
                    let response = result?;
                    match settling {
                        None => return Poll::Ready(Ok(finish(request, response, None))),
                        Some(settling) => Stage::Settling {
                            settling: Box::pin(settling),
                            in_flight: in_flight.take().expect(POLLED_ONCE),
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
                    let response = response.take().expect(POLLED_ONCE);
                    return Poll::Ready(Ok(finish(in_flight, response, Some(&settled))));
                }
                StageProjected::Refused { response } => {
                    let response = response.take().expect(POLLED_ONCE);
                    return Poll::Ready(Ok(response.map(ResponseBody::from_refusal)));
                }
            };
            stage.set(next);
        }
    }
}

const POLLED_ONCE: &str = "a future must not be polled after it is ready";

fn finish<B>(
    in_flight: &InFlight,
    mut response: Response<B>,
    settled: Option<&[Decision]>,
) -> Response<ResponseBody<B>> {
    in_flight.write_headers(response.headers_mut(), settled);
    response.map(ResponseBody::from_service)
}

impl<S, A> fmt::Debug for ResponseFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
