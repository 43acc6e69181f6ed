//! What a layer does, as its services share it.

use std::fmt;
use std::sync::Arc;

use ::http::Response;
use bytes::Bytes;

use super::request_parts::RequestParts;
use super::fast_path;
use super::refusal::Refusal;
use super::limit_rule::{LimitRule, KeyScope};
use crate::http::headers::{HeaderOptions, HeaderWriter};
use crate::http::identity::Identity;
use crate::http::problem::ProblemFormat;
use crate::limiter::Place;
use crate::log::Storm;

pub(super) type Exempt = Arc<dyn Fn(&RequestParts<'_>) -> bool + Send + Sync>;
pub(super) type OnRefusal = Arc<dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync>;

/// What becomes of a request that has no usable key: no address of the peer, or one that a trusted
/// proxy did not tell. No bucket is touched for it unless it says so here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingKey {
    /// It is refused.
    #[default]
    Deny,
    /// The limit is passed over.
    Allow,
    /// All such requests share one bucket.
    Share,
}

#[derive(Clone)]
pub(super) struct LayerConfig {
    pub(super) rules: Vec<LimitRule>,
    pub(super) identity: Identity,
    pub(super) headers: HeaderOptions,
    /// The same, made ready for all config together.
    pub(super) writer: HeaderWriter,
    /// Whether some rule has a price.
    pub(super) is_priced: bool,
    /// KeySource bucket is request, where the short way knows all that is to be request.
    pub(super) fast_path: Option<KeyScope>,
    pub(super) on_missing_key: OnMissingKey,
    pub(super) format: ProblemFormat,
    pub(super) exempt: Option<Exempt>,
    pub(super) on_refusal: Option<OnRefusal>,
    /// Requests without a key, for the log: shared by all services that came of one layer.
    pub(super) keyless: Arc<Storm>,
}

impl LayerConfig {
    /// Whether no decision has to wait.
    pub(super) fn is_all_in_memory(&self) -> bool {
        let is_in_memory = |rule: &LimitRule| matches!(rule.limiter.place(), Place::Memory(..));
        self.rules.iter().all(is_in_memory)
    }

    /// Works out what is the same for every request.
    pub(super) fn prepare(&mut self) {
        let limits = self.rules.iter();
        let limits = limits.map(|rule| (rule.limiter.name(), rule.limiter.limit()));
        self.writer = self.headers.writer(limits);
        self.is_priced = self.rules.iter().any(|rule| rule.price.is_some());
        self.fast_path = fast_path::scope(self);
    }
}

impl fmt::Debug for LayerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerConfig")
            .field("rules", &self.rules)
            .field("on_missing_key", &self.on_missing_key)
            .finish_non_exhaustive()
    }
}
