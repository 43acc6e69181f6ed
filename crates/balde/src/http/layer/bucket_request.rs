//! The buckets that a request takes tokens from, and the decisions on them.

use smallvec::SmallVec;

use super::config::{LimitRules, OnMissingKey};
use super::limit_rule::{KeySource, LimitRule};
use crate::decision::Decision;
use crate::http::identity::{ClientKey, IdentityError};
use crate::http::pipeline::RequestParts;
use crate::limiter::{RateLimiter, TokenRequest};
use crate::multi::{MultiDecision, check_all, check_all_blocking};

/// The key of the bucket of a global limit.
const GLOBAL_KEY: &[u8] = b"*";

/// The key of the bucket that all requests without a key share.
const MISSING_KEY: &[u8] = b"-";

/// All buckets that a request takes tokens from. Most requests need one or two, which take no
/// allocation.
pub(super) struct BucketRequests {
    /// The key of the caller, found once for all rules that limit callers.
    caller: Option<ClientKey>,
    buckets: SmallVec<[BucketRequest; 2]>,
}

/// One bucket that a request takes tokens from.
pub(super) struct BucketRequest {
    /// The index of the rule in the layer.
    pub(super) rule: usize,
    pub(super) n: u64,
    key: BucketKey,
}

/// The key of a bucket.
enum BucketKey {
    Fixed(&'static [u8]),
    Caller,
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
    pub(super) fn new(config: &LimitRules, request: &RequestParts<'_>) -> Result<Self, MissingKey> {
        let mut all = Self {
            caller: None,
            buckets: SmallVec::new(),
        };
        for (index, rule) in config.rules.iter().enumerate() {
            all.add(config, index, rule, request)?;
        }
        Ok(all)
    }

    /// One token from the bucket of this caller, under the only rule of a layer.
    pub(super) fn of_caller(caller: ClientKey) -> Self {
        let bucket = BucketRequest {
            rule: 0,
            n: 1,
            key: BucketKey::Caller,
        };
        Self {
            caller: Some(caller),
            buckets: SmallVec::from_iter([bucket]),
        }
    }

    /// Adds the bucket of a rule, if the rule applies to this request.
    fn add(
        &mut self,
        config: &LimitRules,
        index: usize,
        rule: &LimitRule,
        request: &RequestParts<'_>,
    ) -> Result<(), MissingKey> {
        if rule.filter.as_ref().is_some_and(|filter| !filter(request)) {
            return Ok(());
        }
        let key = match self.find_key(config, &rule.key_source, request) {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(()),
            Err(error) => match config.on_missing_key {
                OnMissingKey::Deny => return Err(MissingKey { rule: index, error }),
                OnMissingKey::Allow => return Ok(()),
                OnMissingKey::Share => BucketKey::Fixed(MISSING_KEY),
            },
        };
        self.buckets.push(BucketRequest {
            rule: index,
            n: rule.cost.as_ref().map_or(1, |cost| cost(request)),
            key,
        });
        Ok(())
    }

    /// The key of a bucket, or `None` if the rule does not apply to this caller.
    fn find_key(
        &mut self,
        config: &LimitRules,
        source: &KeySource,
        request: &RequestParts<'_>,
    ) -> Result<Option<BucketKey>, Option<IdentityError>> {
        let (headers, extensions) = (request.headers(), request.extensions());
        match source {
            KeySource::Caller => {
                if self.caller.is_none() {
                    self.caller = Some(config.options.identity().key(headers, extensions)?);
                }
                Ok(Some(BucketKey::Caller))
            }
            KeySource::Global => Ok(Some(BucketKey::Fixed(GLOBAL_KEY))),
            KeySource::Ipv6Network(bits) => {
                let identity = config.options.identity();
                let network = identity.ipv6_network_key(headers, extensions, *bits)?;
                Ok(network.map(|key| BucketKey::Custom(key.as_ref().to_vec())))
            }
            KeySource::Custom(key) => match key(request) {
                Some(key) => Ok(Some(BucketKey::Custom(key))),
                None => Err(None),
            },
        }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[BucketRequest] {
        &self.buckets
    }

    /// The key of one of these buckets.
    #[inline]
    pub(super) fn key<'a>(&'a self, bucket: &'a BucketRequest) -> &'a [u8] {
        match &bucket.key {
            BucketKey::Fixed(key) => key,
            BucketKey::Caller => self.caller.as_ref().map_or(&[][..], AsRef::as_ref),
            BucketKey::Custom(key) => key,
        }
    }

    /// The indices of the rules.
    pub(super) fn rules(&self) -> SmallVec<[usize; 4]> {
        self.buckets.iter().map(|bucket| bucket.rule).collect()
    }

    /// Pairs each decision with the name of its limiter.
    pub(super) fn named<'a>(
        &self,
        config: &'a LimitRules,
        decisions: &'a [Decision],
    ) -> Vec<(&'a str, &'a Decision)> {
        let buckets = self.buckets.iter();
        let names = buckets.map(|bucket| bucket.limiter(config).name());
        names.zip(decisions).collect()
    }

    /// Takes the tokens without waiting, for buckets that are all in memory.
    pub(super) fn decide_now(&self, config: &LimitRules) -> Decisions {
        match self.as_slice() {
            [bucket] => {
                let limiter = bucket.limiter(config).blocking();
                Decisions::One(limiter.check_n(self.key(bucket), bucket.n))
            }
            _ => Decisions::Many(check_all_blocking(&self.token_requests(config))),
        }
    }

    /// Takes the tokens, from all buckets or from none.
    pub(super) async fn decide(&self, config: &LimitRules) -> Decisions {
        match self.as_slice() {
            [bucket] => {
                let limiter = bucket.limiter(config);
                Decisions::One(limiter.check_n(self.key(bucket), bucket.n).await)
            }
            _ => Decisions::Many(check_all(&self.token_requests(config)).await),
        }
    }

    fn token_requests<'a>(&'a self, config: &'a LimitRules) -> SmallVec<[TokenRequest<'a>; 4]> {
        let token_request = |bucket: &'a BucketRequest| {
            let limiter = bucket.limiter(config);
            limiter.request_n(self.key(bucket), bucket.n)
        };
        self.buckets.iter().map(token_request).collect()
    }
}

impl BucketRequest {
    pub(super) fn limiter<'r>(&self, config: &'r LimitRules) -> &'r RateLimiter {
        &config.rules[self.rule].limiter
    }
}

/// The decisions, in the order of the buckets.
pub(super) enum Decisions {
    One(Decision),
    Many(MultiDecision),
}

impl Decisions {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Decision] {
        match self {
            Self::One(decision) => std::slice::from_ref(decision),
            Self::Many(multi) => multi.parts(),
        }
    }

    /// Replaces the decision on a bucket by what its settlement found.
    pub(super) fn replace(&mut self, index: usize, settled: Decision) {
        match self {
            Self::One(decision) => *decision = settled,
            Self::Many(multi) => multi.replace_part(index, settled),
        }
    }

    /// The index of the bucket that refused; if several did, of the one with the longest wait.
    #[inline]
    pub(super) fn refused_index(&self) -> Option<usize> {
        match self {
            Self::One(decision) => (!decision.is_allowed()).then_some(0),
            Self::Many(multi) => multi.refused_index(),
        }
    }
}
