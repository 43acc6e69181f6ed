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
    /// The limits of each descriptor; none for those that are not limited.
    all: Vec<Vec<Limited<'m>>>,
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
        let descriptors = message.descriptors.iter().enumerate();
        let all = descriptors.map(|(at, descriptor)| limited(message, at, descriptor, rules));
        Ok(Self {
            all: all.collect::<Result<_, _>>()?,
        })
    }

    /// How many descriptors there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Those that can refuse the request: their places, the names of their limits, and their tokens.
    pub(super) fn enforced(&self) -> (Vec<(usize, &str)>, Vec<Tokens<'_>>) {
        let all = self.limited();
        let enforced = all.filter_map(|(place, limited)| match limited.hits {
            Hits::Take(tokens) if !limited.is_shadow => {
                Some(((place, limited.name), limited.tokens(tokens)))
            }
            _ => None,
        });
        enforced.unzip()
    }

    /// The others that are limited.
    pub(super) fn others(&self) -> impl Iterator<Item = Other<'_>> {
        let all = self.limited();
        all.filter_map(|(place, limited)| {
            let tokens = match limited.hits {
                Hits::Take(_) if !limited.is_shadow => return None,
                Hits::Take(tokens) | Hits::GiveBack(tokens) => tokens,
                Hits::Read => 0,
            };
            Some(Other {
                place,
                name: limited.name,
                tokens: limited.tokens(tokens),
                hits: limited.hits,
                is_shadow: limited.is_shadow,
            })
        })
    }

    fn limited(&self) -> impl Iterator<Item = (usize, &Limited<'m>)> {
        let all = self.all.iter().enumerate();
        all.flat_map(|(place, limits)| limits.iter().map(move |limited| (place, limited)))
    }
}

/// A limit of a descriptor that cannot refuse the request.
#[derive(Debug)]
pub(super) struct Other<'d> {
    pub(super) place: usize,
    pub(super) name: &'d str,
    pub(super) tokens: Tokens<'d>,
    pub(super) hits: Hits,
    pub(super) is_shadow: bool,
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

/// All limits of a descriptor: the one that it brings along, or those of the rules that match.
fn limited<'m>(
    message: &'m RateLimitRequest,
    at: usize,
    descriptor: &'m RateLimitDescriptor,
    rules: &'m DescriptorRules,
) -> Result<Vec<Limited<'m>>, CommandError> {
    let entries = descriptor.entries.iter();
    let entries: Vec<(&str, &str)> = entries
        .map(|entry| (entry.key.as_str(), entry.value.as_str()))
        .collect();
    let hits = hits(message, descriptor);
    let rule = rules.find(&message.domain, &entries);
    if let Some(given) = &descriptor.limit {
        let limit = given_limit(given.requests_per_unit, given.unit())?;
        return Ok(vec![Limited {
            name: OVERRIDE,
            limit: LimitRef::Given(limit),
            key: bucket_key(&message.domain, &entries),
            hits,
            is_shadow: rule.is_some_and(|rule| rule.is_shadow),
        }]);
    }
    let containing = rules.containing(&message.domain, at, &entries);
    let matching = rule.into_iter().chain(containing);
    let limits = matching.filter_map(|rule| {
        let name = rule.limit.as_deref()?;
        Some(Limited {
            name,
            limit: LimitRef::Named(name),
            key: rule.bucket_key(&entries),
            hits,
            is_shadow: rule.is_shadow,
        })
    });
    Ok(limits.collect())
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
