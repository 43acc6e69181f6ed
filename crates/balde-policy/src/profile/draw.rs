//! From a request to the buckets it draws on.

use std::fmt;

use super::Profile;
use crate::policy::{KeyError, Policy, Request};
use balde_core::Limit;

/// One bucket that a request draws on.
#[derive(Clone, Debug)]
pub struct Draw<'p> {
    policy: &'p Policy,
    value: Option<Box<str>>,
    limit: &'p Limit,
    key: Vec<u8>,
}

impl<'p> Draw<'p> {
    /// The policy that counts the request.
    pub fn policy(&self) -> &'p Policy {
        self.policy
    }

    /// The value of the variant that its limit depends on.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// The limit of the bucket.
    pub fn limit(&self) -> &'p Limit {
        self.limit
    }

    /// The bucket's key, within the policy.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Profile {
    /// The buckets that a request draws on, in the order of the policies. The request's path is
    /// [without its base](Profile::without_base).
    ///
    /// `assigned` tells the value of a variant that the request does not tell itself, as a
    /// participant's category.
    pub fn draws<'p>(
        &'p self,
        request: &Request<'_>,
        assigned: &dyn Fn(&str) -> Option<Box<str>>,
    ) -> Result<Vec<Draw<'p>>, DrawError> {
        let mut draws = Vec::new();
        for policy in &self.policies {
            let Some(rule) = policy.matching_rule(request) else {
                continue;
            };
            let fail = |why| DrawError {
                policy: policy.name().into(),
                why,
            };
            let value = policy.limits().variant().and_then(|name| {
                let told = self.variant(name).and_then(|v| v.value_of(request, rule));
                told.map(Into::into).or_else(|| assigned(name))
            });
            let limit = policy
                .limit(value.as_deref())
                .ok_or_else(|| fail(Why::NoVariant))?;
            let mut key = Vec::new();
            let written = policy.scope().write_key(request, rule, &mut key);
            written.map_err(|error| fail(Why::Key(error)))?;
            draws.push(Draw {
                policy,
                value,
                limit,
                key,
            });
        }
        Ok(draws)
    }
}

/// Why a request that a policy counts has no bucket there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawError {
    policy: Box<str>,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    NoVariant,
    Key(KeyError),
}

impl DrawError {
    /// The policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// What is wrong with the bucket's key, if that is it. Otherwise no variant of the limit fits.
    pub fn key_error(&self) -> Option<&KeyError> {
        match &self.why {
            Why::Key(error) => Some(error),
            Why::NoVariant => None,
        }
    }
}

impl fmt::Display for DrawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy {}: ", self.policy)?;
        match &self.why {
            Why::NoVariant => f.write_str("no variant of its limit fits the request"),
            Why::Key(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for DrawError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.key_error()
            .map(|error| error as &(dyn std::error::Error + 'static))
    }
}
