//! What a layer does, as its services share it.

use std::fmt;
use std::sync::Arc;

use ::http::Response;
use bytes::Bytes;

use super::asked::Asked;
use super::plain;
use super::refusal::Refusal;
use super::rule::{Rule, Usual};
use crate::http::headers::{HeaderOptions, HeaderWriter};
use crate::http::identity::Identity;
use crate::http::problem::ProblemFormat;
use crate::telemetry::LogThrottle;

pub(super) type Exempt = Arc<dyn Fn(&Asked<'_>) -> bool + Send + Sync>;
pub(super) type OnRefusal = Arc<dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync>;

/// What becomes of a request that has no usable key: no address of the peer, or one that a trusted
/// proxy did not tell. No bucket is touched for it unless it says so here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutKey {
    /// It is refused.
    #[default]
    Deny,
    /// The limit is passed over.
    Allow,
    /// All such requests share one bucket.
    Share,
}

#[derive(Clone)]
pub(super) struct Rules {
    pub(super) list: Vec<Rule>,
    pub(super) identity: Identity,
    pub(super) headers: HeaderOptions,
    /// The same, made ready for all rules together.
    pub(super) writer: HeaderWriter,
    /// Whether some rule has a price.
    pub(super) is_priced: bool,
    /// Whose bucket is asked, where the short way knows all that is to be asked.
    pub(super) plain: Option<Usual>,
    pub(super) without_key: WithoutKey,
    pub(super) format: ProblemFormat,
    pub(super) exempt: Option<Exempt>,
    pub(super) on_refusal: Option<OnRefusal>,
    /// Requests without a key, for the log: shared by all services that came of one layer.
    pub(super) keyless: Arc<LogThrottle>,
}

impl Rules {
    /// Whether no decision has to wait.
    pub(super) fn are_here(&self) -> bool {
        self.list.iter().all(|rule| rule.limiter.is_in_memory())
    }

    /// Works out what is the same for every request.
    pub(super) fn make_ready(&mut self) {
        let limits = self.list.iter();
        let limits = limits.map(|rule| (rule.limiter.name(), rule.limiter.limit()));
        self.writer = self.headers.writer(limits);
        self.is_priced = self.list.iter().any(|rule| rule.price.is_some());
        self.plain = plain::of(self);
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("list", &self.list)
            .field("without_key", &self.without_key)
            .finish_non_exhaustive()
    }
}
