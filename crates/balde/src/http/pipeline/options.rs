//! What every layer can be told.

use std::fmt;
use std::sync::Arc;

use ::http::Response;
use bytes::Bytes;

use super::no_key_log::NoKeyLog;
use super::refusal::{Refusal, RefusalCause};
use super::request_parts::RequestParts;
use crate::http::identity::Identity;
use crate::http::problem::ProblemFormat;

type ExemptFn = Arc<dyn Fn(&RequestParts<'_>) -> bool + Send + Sync>;
type OnRefusalFn = Arc<dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync>;

/// What [`RateLimitLayer`](crate::http::RateLimitLayer) and other layers have in common: how clients are
/// identified, which requests are exempt, and how a refusal is answered.
#[derive(Clone, Default)]
pub struct LayerOptions {
    identity: Identity,
    format: ProblemFormat,
    exempt: Option<ExemptFn>,
    on_refusal: Option<OnRefusalFn>,
    /// Shared by all services of one layer.
    no_key_log: Arc<NoKeyLog>,
}

impl LayerOptions {
    /// Sets how clients are identified. The default trusts no proxy and uses the peer's address.
    pub fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// Sets the format of the problem documents in refusals. The default is JSON.
    pub fn set_problem_format(&mut self, format: ProblemFormat) {
        self.format = format;
    }

    /// Forwards requests for which `exempt` returns true without checking any limit.
    pub fn set_exempt(
        &mut self,
        exempt: impl Fn(&RequestParts<'_>) -> bool + Send + Sync + 'static,
    ) {
        self.exempt = Some(Arc::new(exempt));
    }

    /// Builds the response of a refusal, instead of the default problem document.
    pub fn set_on_refusal<T: Into<Bytes>>(
        &mut self,
        on_refusal: impl Fn(&Refusal<'_>) -> Response<T> + Send + Sync + 'static,
    ) {
        let on_refusal = move |refusal: &Refusal<'_>| on_refusal(refusal).map(Into::into);
        self.on_refusal = Some(Arc::new(on_refusal));
    }

    /// How clients are identified.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether a request is forwarded without checking any limit.
    #[inline]
    pub fn is_exempt(&self, request: &RequestParts<'_>) -> bool {
        self.exempt.as_ref().is_some_and(|exempt| exempt(request))
    }

    /// Logs that a request has no usable key, at most once a second. `missing` says what it lacks.
    pub fn log_missing_key(&self, refusal: &Refusal<'_>, missing: &dyn fmt::Display, now_us: u64) {
        match refusal.cause() {
            RefusalCause::MissingPeer => self.no_key_log.peer(refusal.policy(), missing, now_us),
            _ => self.no_key_log.key(refusal.policy(), missing, now_us),
        }
    }

    /// The response of a refusal.
    pub fn respond(&self, refusal: &Refusal<'_>) -> Response<Bytes> {
        if let Some(on_refusal) = &self.on_refusal {
            return on_refusal(refusal);
        }
        let problem = refusal.problem();
        let response = problem.to_response(refusal.request_headers(), self.format);
        response.map(Bytes::from)
    }
}

impl fmt::Debug for LayerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerOptions")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
