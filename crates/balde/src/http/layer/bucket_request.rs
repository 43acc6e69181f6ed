//! The buckets that a request takes tokens from, and the decisions on them.

use ::http::{Extensions, HeaderMap};

use super::config::{LayerConfig, OnMissingKey};
use super::limit_rule::{KeyScope, KeySource, LimitRule};
use super::request_parts::RequestParts;
use crate::decision::Decision;
use crate::http::identity::{ClientKey, IdentityError};
use crate::limiter::{RateLimiter, TokenRequest};
use crate::multi::{MultiDecision, check_all, check_all_blocking};

/// The key of the bucket of a global limit.
const GLOBAL_KEY: &[u8] = b"*";

/// The key of the bucket that all requests without a key share.
const MISSING_KEY: &[u8] = b"-";

/// All buckets that a request takes tokens from. Most requests need one, which takes no allocation.
pub(super) enum BucketRequests {
    None,
    One(BucketRequest),
    Many(Vec<BucketRequest>),
}

/// One bucket that a request takes tokens from.
pub(super) struct BucketRequest {
    /// The index of the rule in the layer.
    pub(super) rule: usize,
    pub(super) n: u64,
    key: BucketKey,
}

/// The key of a bucket.
pub(super) enum BucketKey {
    Fixed(&'static [u8]),
    Client(ClientKey),
    Custom(Vec<u8>),
}

/// A request is refused because it has no key for a rule.
#[derive(Clone, Copy)]
pub(super) struct MissingKey {
    pub(super) rule: usize,
    /// The error from the identity, or `None` if a rule's own closure returned no key.
    pub(super) error: Option<IdentityError>,
}

impl BucketRequests {
    #[inline]
    pub(super) fn new(
        config: &LayerConfig,
        request: &RequestParts<'_>,
    ) -> Result<Self, MissingKey> {
        if let [rule] = &*config.rules {
            let bucket = BucketRequest::new(config, 0, rule, request)?;
            return Ok(bucket.map_or(Self::None, Self::One));
        }
        let mut buckets = Vec::with_capacity(config.rules.len());
        for (index, rule) in config.rules.iter().enumerate() {
            buckets.extend(BucketRequest::new(config, index, rule, request)?);
        }
        Ok(if buckets.is_empty() {
            Self::None
        } else {
            Self::Many(buckets)
        })
    }

    /// `n` tokens from the bucket with this key, under the only rule of a layer.
    pub(super) fn single(n: u64, key: BucketKey) -> Self {
        Self::One(BucketRequest { rule: 0, n, key })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[BucketRequest] {
        match self {
            Self::None => &[],
            Self::One(bucket) => std::slice::from_ref(bucket),
            Self::Many(buckets) => buckets,
        }
    }

    /// Pairs each decision with the name of its limiter.
    pub(super) fn named<'a>(
        &self,
        config: &'a LayerConfig,
        decisions: &'a [Decision],
    ) -> Vec<(&'a str, &'a Decision)> {
        let buckets = self.as_slice().iter();
        let names = buckets.map(|bucket| bucket.limiter(config).name());
        names.zip(decisions).collect()
    }

    /// Takes the tokens without waiting, for buckets that are all in memory.
    #[inline]
    pub(super) fn decide_now(&self, config: &LayerConfig) -> Decisions {
        match self {
            Self::None => Decisions::None,
            Self::One(bucket) => {
                let limiter = bucket.limiter(config).blocking();
                Decisions::One(limiter.check_n(bucket.key(), bucket.n))
            }
            Self::Many(buckets) => {
                Decisions::Many(check_all_blocking(&token_requests(config, buckets)))
            }
        }
    }

    /// Takes the tokens, from all buckets or from none.
    pub(super) async fn decide(&self, config: &LayerConfig) -> Decisions {
        match self {
            Self::None => Decisions::None,
            Self::One(bucket) => {
                let limiter = bucket.limiter(config);
                Decisions::One(limiter.check_n(bucket.key(), bucket.n).await)
            }
            Self::Many(buckets) => {
                Decisions::Many(check_all(&token_requests(config, buckets)).await)
            }
        }
    }
}

impl BucketRequest {
    /// Returns `None` if the rule does not apply to this request.
    #[inline]
    fn new(
        config: &LayerConfig,
        index: usize,
        rule: &LimitRule,
        request: &RequestParts<'_>,
    ) -> Result<Option<Self>, MissingKey> {
        if rule.filter.as_ref().is_some_and(|filter| !filter(request)) {
            return Ok(None);
        }
        let (headers, extensions) = (request.headers(), request.extensions());
        let key = match &rule.key_source {
            KeySource::Scope(scope) => scope.key(config, headers, extensions).map_err(Some),
            KeySource::Ipv6Network(bits) => {
                let identity = &config.identity;
                match identity.ipv6_network_key(headers, extensions, *bits) {
                    Ok(Some(key)) => Ok(BucketKey::Client(key)),
                    Ok(None) => return Ok(None),
                    Err(error) => Err(Some(error)),
                }
            }
            KeySource::Custom(key) => key(request).map(BucketKey::Custom).ok_or(None),
        };
        let key = match (key, config.on_missing_key) {
            (Ok(key), _) => key,
            (Err(error), OnMissingKey::Deny) => return Err(MissingKey { rule: index, error }),
            (Err(_), OnMissingKey::Allow) => return Ok(None),
            (Err(_), OnMissingKey::Share) => BucketKey::Fixed(MISSING_KEY),
        };
        Ok(Some(Self {
            rule: index,
            n: rule.cost.as_ref().map_or(1, |cost| cost(request)),
            key,
        }))
    }

    pub(super) fn limiter<'r>(&self, config: &'r LayerConfig) -> &'r RateLimiter {
        &config.rules[self.rule].limiter
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }
}

impl KeyScope {
    /// The key of the bucket that a request takes from.
    #[inline]
    pub(super) fn key(
        self,
        config: &LayerConfig,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<BucketKey, IdentityError> {
        match self {
            Self::Caller => {
                let key = config.identity.key(headers, extensions);
                key.map(BucketKey::Client)
            }
            Self::Global => Ok(BucketKey::Fixed(GLOBAL_KEY)),
        }
    }
}

impl BucketKey {
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Fixed(key) => key,
            Self::Client(key) => key.as_ref(),
            Self::Custom(key) => key,
        }
    }
}

fn token_requests<'a>(
    config: &'a LayerConfig,
    buckets: &'a [BucketRequest],
) -> Vec<TokenRequest<'a>> {
    let token_request =
        |bucket: &'a BucketRequest| bucket.limiter(config).request_n(bucket.key(), bucket.n);
    buckets.iter().map(token_request).collect()
}

/// The decisions, in the order of the buckets.
pub(super) enum Decisions {
    None,
    One(Decision),
    Many(MultiDecision),
}

impl Decisions {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Decision] {
        match self {
            Self::None => &[],
            Self::One(decision) => std::slice::from_ref(decision),
            Self::Many(multi) => multi.parts(),
        }
    }

    /// The index of the bucket that refused; if several did, of the one with the longest wait.
    #[inline]
    pub(super) fn refused_index(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(decision) => (!decision.is_allowed()).then_some(0),
            Self::Many(multi) => multi.refused_index(),
        }
    }
}
