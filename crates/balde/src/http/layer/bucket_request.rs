//! From a request to the buckets it draws on, and their answer.

use ::http::{Extensions, HeaderMap};

use crate::decision::Decision;
use crate::http::identity::{ClientKey, IdentityError};
use crate::joint::{MultiDecision, TokenRequest, check_all, check_all_blocking};
use crate::limiter::RateLimiter;

use super::request_parts::RequestParts;
use super::limit_rule::{LimitRule, KeyScope, KeySource};
use super::config::{LayerConfig, OnMissingKey};

/// The key of a bucket that everybody shares.
const EVERYONE: &[u8] = b"*";

/// The key of a bucket that all callers without a key share.
const NOBODY: &[u8] = b"-";

/// What a request has to ask: mostly one bucket, so that is kept without a list.
pub(super) enum BucketRequests {
    None,
    One(BucketRequest),
    Many(Vec<BucketRequest>),
}

pub(super) struct BucketRequest {
    /// The rule's place in the layer.
    pub(super) rule: usize,
    pub(super) n: u64,
    key: Key,
}

/// The key of a bucket.
pub(super) enum Key {
    Fixed(&'static [u8]),
    Client(ClientKey),
    Own(Vec<u8>),
}

/// Why there is no request to ask: a key is missing.
#[derive(Clone, Copy)]
pub(super) struct MissingKey {
    pub(super) rule: usize,
    /// What the identity said; nothing, where a closure gave no key.
    pub(super) why: Option<IdentityError>,
}

impl BucketRequests {
    #[inline]
    pub(super) fn of(config: &LayerConfig, request: &RequestParts<'_>) -> Result<Self, MissingKey> {
        if let [rule] = &*config.rules {
            return Ok(request(config, 0, rule, request)?.map_or(Self::None, Self::One));
        }
        let mut many = Vec::with_capacity(config.rules.len());
        for (index, rule) in config.rules.iter().enumerate() {
            many.extend(request(config, index, rule, request)?);
        }
        Ok(if many.is_empty() {
            Self::None
        } else {
            Self::Many(many)
        })
    }

    /// For `n` tokens of the bucket of this key, to the only rule of a layer.
    pub(super) fn only(n: u64, key: Key) -> Self {
        Self::One(BucketRequest { rule: 0, n, key })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[BucketRequest] {
        match self {
            Self::None => &[],
            Self::One(request) => std::slice::from_ref(request),
            Self::Many(requests) => requests,
        }
    }

    /// Each decision with the name of the limiter that made it.
    pub(super) fn named<'a>(
        &self,
        config: &'a LayerConfig,
        decisions: &'a [Decision],
    ) -> Vec<(&'a str, &'a Decision)> {
        let names = self.as_slice().iter();
        let names = names.map(|request| request.limiter(config).name());
        names.zip(decisions).collect()
    }

    /// Without waiting: all buckets are in this process.
    #[inline]
    pub(super) fn decide_now(&self, config: &LayerConfig) -> Decisions {
        match self {
            Self::None => Decisions::None,
            Self::One(request) => {
                let limiter = request.limiter(config).blocking();
                Decisions::One(limiter.check_n(request.key(), request.n))
            }
            Self::Many(requests) => Decisions::Many(check_all_blocking(&asks(config, requests))),
        }
    }

    pub(super) async fn decide(&self, config: &LayerConfig) -> Decisions {
        match self {
            Self::None => Decisions::None,
            Self::One(request) => {
                let limiter = request.limiter(config);
                Decisions::One(limiter.check_n(request.key(), request.n).await)
            }
            Self::Many(requests) => Decisions::Many(check_all(&asks(config, requests)).await),
        }
    }
}

impl KeyScope {
    /// The key of the bucket that a request draws on.
    #[inline]
    pub(super) fn key(
        self,
        config: &LayerConfig,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Key, IdentityError> {
        match self {
            Self::Caller => config.identity.key(headers, extensions).map(Key::Client),
            Self::Everyone => Ok(Key::Fixed(EVERYONE)),
        }
    }
}

impl Key {
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Fixed(key) => key,
            Self::Client(key) => key.as_ref(),
            Self::Own(key) => key,
        }
    }
}

impl BucketRequest {
    pub(super) fn limiter<'r>(&self, config: &'r LayerConfig) -> &'r RateLimiter {
        &config.rules[self.rule].limiter
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }
}

#[inline]
fn request(
    config: &LayerConfig,
    index: usize,
    rule: &LimitRule,
    request: &RequestParts<'_>,
) -> Result<Option<BucketRequest>, MissingKey> {
    if rule.applies.as_ref().is_some_and(|applies| !applies(request)) {
        return Ok(None);
    }
    let found = match &rule.source {
        KeySource::Scope(usual) => usual
            .key(config, request.headers(), request.extensions())
            .map_err(Some),
        KeySource::Custom(key) => key(request).map(Key::Own).ok_or(None),
    };
    let key = match (found, config.on_missing_key) {
        (Ok(key), _) => key,
        (Err(why), OnMissingKey::Deny) => return Err(MissingKey { rule: index, why }),
        (Err(_), OnMissingKey::Allow) => return Ok(None),
        (Err(_), OnMissingKey::Share) => Key::Fixed(NOBODY),
    };
    Ok(Some(BucketRequest {
        rule: index,
        n: rule.cost.as_ref().map_or(1, |cost| cost(request)),
        key,
    }))
}

fn asks<'a>(config: &'a LayerConfig, requests: &'a [BucketRequest]) -> Vec<TokenRequest<'a>> {
    let ask = |request: &'a BucketRequest| {
        request
            .limiter(config)
            .request_n(request.key(), request.n)
    };
    requests.iter().map(ask).collect()
}

/// The answers, in the order of the requests.
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
            Self::Many(joint) => joint.parts(),
        }
    }

    /// Which request was refused, where one was.
    #[inline]
    pub(super) fn refused(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(decision) => (!decision.is_allowed()).then_some(0),
            Self::Many(joint) => joint.refused_index(),
        }
    }
}
