//! The service that asks first.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::asked::Asked;
use super::body::ResponseBody;
use super::future::{Deciding, ResponseFuture};
use super::in_flight::{self, InFlight};
use super::plain::{self, Plainly};
use super::question::{Decisions, Keyless, Questions};
use super::refusal::Refusal;
use super::rules::Rules;
use crate::http::identity::NoKey;

/// A service behind a [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    rules: Arc<Rules>,
    /// Whether no decision has to wait.
    is_here: bool,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, rules: Arc<Rules>) -> Self {
        Self {
            inner,
            is_here: rules.are_here(),
            rules,
        }
    }
}

impl<S, A, B> Service<Request<A>> for RateLimit<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    A: Body,
    B: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<A>) -> Self::Future {
        let rules = &self.rules;
        if let Some(whose) = rules.plain {
            match plain::request(rules, whose, request.headers(), request.extensions()) {
                Plainly::Admitted(None) => {
                    return ResponseFuture::passing(self.inner.call(request));
                }
                Plainly::Admitted(Some(numbers)) => {
                    let rules = Arc::clone(rules);
                    return ResponseFuture::telling(self.inner.call(request), rules, numbers);
                }
                Plainly::Decided(decided) => {
                    let (questions, decisions) = *decided;
                    return self.answer_decided(questions, decisions, request);
                }
                Plainly::Keyless => {}
            }
        }
        self.call_at_length(request)
    }
}

impl<S> RateLimit<S> {
    /// Whatever the rules may be.
    fn call_at_length<A, B>(&mut self, request: Request<A>) -> ResponseFuture<S, A>
    where
        S: Service<Request<A>, Response = Response<B>> + Clone,
        A: Body,
    {
        let asked = Asked::of(&request);
        let rules = &self.rules;
        if rules.exempt.as_ref().is_some_and(|exempt| exempt(&asked)) {
            return ResponseFuture::passing(self.inner.call(request));
        }
        let questions = match Questions::of(rules, &asked) {
            Ok(Questions::None) => return ResponseFuture::passing(self.inner.call(request)),
            Ok(questions) => questions,
            Err(keyless) => {
                return ResponseFuture::refused(refuse_keyless(rules, keyless, &request));
            }
        };
        if self.is_here {
            let decisions = questions.ask_now(rules);
            return self.answer_decided(questions, decisions, request);
        }
        // The one that is ready is the one to be called; its clone must become ready first.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let rules = Arc::clone(rules);
        ResponseFuture::deciding(Deciding::new(rules, questions), ready, request)
    }

    fn answer_decided<A, B>(
        &mut self,
        questions: Questions,
        decisions: Decisions,
        request: Request<A>,
    ) -> ResponseFuture<S, A>
    where
        S: Service<Request<A>, Response = Response<B>>,
    {
        match admit(&self.rules, questions, decisions, &request) {
            Ok(mut in_flight) => {
                let call = in_flight::watch(&mut in_flight, || self.inner.call(request));
                ResponseFuture::calling(call, in_flight)
            }
            Err(answer) => ResponseFuture::refused(*answer),
        }
    }
}

/// Lets the request in, with what is left to do for it, or answers it.
pub(super) fn admit<A>(
    rules: &Arc<Rules>,
    questions: Questions,
    decisions: Decisions,
    request: &Request<A>,
) -> Result<Option<Box<InFlight>>, Box<Response<Bytes>>> {
    let Some(refused) = decisions.refused() else {
        return Ok(InFlight::new(rules, questions, decisions));
    };
    let parts = questions.named(rules, decisions.as_slice());
    let refusal = Refusal::of_decisions(&parts, refused, request.headers());
    let mut answer = answer(rules, &refusal);
    let headers = answer.headers_mut();
    in_flight::write_headers(rules, &questions, decisions.as_slice(), headers);
    Err(Box::new(answer))
}

fn refuse_keyless<A>(rules: &Rules, keyless: Keyless, request: &Request<A>) -> Response<Bytes> {
    let limiter = &rules.list[keyless.rule].limiter;
    if let Some(suppressed) = rules.keyless.allow(limiter.now_us()) {
        tracing::warn!(
            event_type = "no_key",
            decision = "deny",
            policy = limiter.name(),
            suppressed,
            "refused without counting: {}",
            Why(keyless.why)
        );
    }
    let refusal = Refusal::of_keyless(limiter.name(), keyless.why, request.headers());
    answer(rules, &refusal)
}

fn answer(rules: &Rules, refusal: &Refusal<'_>) -> Response<Bytes> {
    match &rules.on_refusal {
        Some(on_refusal) => on_refusal(refusal),
        None => refusal.answer(rules.format),
    }
}

struct Why(Option<NoKey>);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(why) => why.fmt(f),
            None => f.write_str("the rule's function gave no key"),
        }
    }
}
