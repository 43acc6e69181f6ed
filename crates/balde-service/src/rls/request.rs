//! From the descriptors of a request to the buckets that they take from.

use std::time::Duration;

use balde::Limit;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;

use crate::decisions::{Bucket, CommandError, LimitRef, Tokens};
use crate::descriptors::{DescriptorRules, bucket_key};

/// The name that answers show for a limit that the request brought along.
const OVERRIDE: &str = "override";

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hits {
    /// So many tokens.
    Take(u64),
    /// Nothing: it is over limit if one hit would be.
    Read,
    /// To give tokens back.
    GiveBack(u64),
}

/// The descriptors of a request with their limits.
#[derive(Debug)]
pub(super) struct Descriptors<'m> {
    /// `None` for descriptors that are not limited.
    all: Vec<Option<Limited<'m>>>,
}

#[derive(Debug)]
struct Limited<'m> {
    name: &'m str,
    limit: LimitRef<'m>,
    key: Vec<u8>,
    hits: Hits,
    is_shadow: bool,
}

impl<'m> Descriptors<'m> {
    pub(super) fn new(
        message: &'m RateLimitRequest,
        rules: &'m DescriptorRules,
    ) -> Result<Self, CommandError> {
        let descriptors = message.descriptors.iter();
        let all = descriptors.map(|descriptor| limited(message, descriptor, rules));
        Ok(Self {
            all: all.collect::<Result<_, _>>()?,
        })
    }

    /// The name of each descriptor's limit; `None` for those that are not limited.
    pub(super) fn names(&self) -> impl Iterator<Item = Option<&str>> {
        let all = self.all.iter();
        all.map(|limited| limited.as_ref().map(|limited| limited.name))
    }

    /// Those that can refuse the request, with their places.
    pub(super) fn enforced(&self) -> (Vec<usize>, Vec<Tokens<'_>>) {
        let all = self.limited();
        let enforced = all.filter_map(|(place, limited)| match limited.hits {
            Hits::Take(tokens) if !limited.is_shadow => Some((place, limited.tokens(tokens))),
            _ => None,
        });
        enforced.unzip()
    }

    /// The others that are limited.
    pub(super) fn others(&self) -> impl Iterator<Item = (usize, Tokens<'_>, Hits, bool)> {
        let all = self.limited();
        all.filter_map(|(place, limited)| match limited.hits {
            Hits::Take(_) if !limited.is_shadow => None,
            Hits::Take(tokens) | Hits::GiveBack(tokens) => {
                let tokens = limited.tokens(tokens);
                Some((place, tokens, limited.hits, limited.is_shadow))
            }
            Hits::Read => Some((place, limited.tokens(0), Hits::Read, limited.is_shadow)),
        })
    }

    fn limited(&self) -> impl Iterator<Item = (usize, &Limited<'m>)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(place, limited)| Some((place, limited.as_ref()?)))
    }
}

impl Limited<'_> {
    fn tokens(&self, tokens: u64) -> Tokens<'_> {
        let bucket = Bucket {
            limit: self.limit,
            key: &self.key,
        };
        Tokens { bucket, tokens }
    }
}

fn limited<'m>(
    message: &'m RateLimitRequest,
    descriptor: &'m RateLimitDescriptor,
    rules: &'m DescriptorRules,
) -> Result<Option<Limited<'m>>, CommandError> {
    let entries = descriptor.entries.iter();
    let entries: Vec<(&str, &str)> = entries
        .map(|entry| (entry.key.as_str(), entry.value.as_str()))
        .collect();
    let rule = rules.find(&message.domain, &entries);
    let is_shadow = rule.is_some_and(|rule| rule.is_shadow);
    let (name, limit) = match (&descriptor.limit, rule) {
        (Some(given), _) => {
            let limit = given_limit(given.requests_per_unit, given.unit())?;
            (OVERRIDE, LimitRef::Given(limit))
        }
        (None, Some(rule)) => match &rule.limit {
            Some(name) => (name.as_str(), LimitRef::Named(name)),
            None => return Ok(None),
        },
        (None, None) => return Ok(None),
    };
    Ok(Some(Limited {
        name,
        limit,
        key: bucket_key(&message.domain, &entries),
        hits: hits(message, descriptor),
        is_shadow,
    }))
}

/// A descriptor's own number counts, also zero. That of the request is one if it is not set.
fn hits(message: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Hits {
    let addend = match &descriptor.hits_addend {
        Some(addend) => addend.value,
        None => u64::from(message.hits_addend).max(1),
    };
    match (addend, descriptor.is_negative_hits) {
        (0, _) => Hits::Read,
        (tokens, false) => Hits::Take(tokens),
        (tokens, true) => Hits::GiveBack(tokens),
    }
}

fn given_limit(requests: u32, unit: RateLimitUnit) -> Result<Limit, CommandError> {
    const DAY: u64 = 86_400;
    let seconds = match unit {
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => DAY,
        RateLimitUnit::Month => 30 * DAY,
        RateLimitUnit::Year => 365 * DAY,
        RateLimitUnit::Unknown => {
            let text = "the limit of a descriptor has no unit";
            return Err(CommandError::Invalid(text.to_owned()));
        }
    };
    let limit = Limit::bucket(u64::from(requests), Duration::from_secs(seconds));
    limit.map_err(|error| CommandError::Invalid(format!("the limit of a descriptor: {error}")))
}
