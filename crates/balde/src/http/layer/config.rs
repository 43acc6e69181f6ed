//! The configuration of a layer, shared by all services that it wraps.

use std::fmt;

use super::limit_rule::{KeySource, LimitRule};
use crate::http::headers::{HeaderOptions, PreparedWriter};
use crate::http::pipeline::LayerOptions;

/// What a limit does with a request that has no usable key, for example because the peer's address
/// is unknown or a proxy's header is malformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingKey {
    /// Refuses the request: with 403, or with 500 if the key is missing because the service does not
    /// provide the peer's address. No bucket is touched.
    #[default]
    Deny,
    /// Does not apply the limit. No bucket is touched.
    Allow,
    /// Takes from one bucket that all requests without a key share.
    Share,
}

/// The limits of a [`RateLimitLayer`](super::RateLimitLayer), which admit the requests of its services.
#[derive(Clone)]
pub struct LimitRules {
    pub(super) rules: Vec<LimitRule>,
    pub(super) options: LayerOptions,
    pub(super) headers: HeaderOptions,
    /// `headers`, prepared for all rules.
    pub(super) writer: PreparedWriter,
    /// Whether any rule has a price, so that admitted requests have to be settled.
    pub(super) is_priced: bool,
    /// Whether all buckets are in memory, so that decisions never wait.
    pub(super) is_in_memory: bool,
    /// Whether each request takes one token of its caller, in memory, and there is nothing to settle.
    pub(super) takes_one_of_caller: bool,
    pub(super) on_missing_key: OnMissingKey,
}

impl LimitRules {
    /// Computes what is the same for all requests.
    pub(super) fn prepare(&mut self) {
        let limits = self.rules.iter();
        let limits = limits.map(|rule| (rule.limiter.name(), rule.limiter.limit()));
        self.writer = self.headers.writer(limits);
        self.is_priced = self.rules.iter().any(|rule| rule.price.is_some());
        self.is_in_memory = self.rules.iter().all(|rule| rule.limiter.is_in_memory());
        self.takes_one_of_caller = self.is_in_memory
            && matches!(
                &*self.rules,
                [LimitRule {
                    key_source: KeySource::Caller,
                    cost: None,
                    price: None,
                    ..
                }]
            );
    }
}

impl fmt::Debug for LimitRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitRules")
            .field("rules", &self.rules)
            .field("on_missing_key", &self.on_missing_key)
            .finish_non_exhaustive()
    }
}
