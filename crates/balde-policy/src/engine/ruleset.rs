//! The limiters of a profile: one for each policy, with a tier for each value of its variant.

use std::sync::atomic::{AtomicU64, Ordering};

use balde::{BuildError, Limit, RateLimiter, Tier, TokenRequest};

use super::Options;
use super::matching::{Located, Matcher};
use crate::policy::{Mode, Policy};
use crate::profile::Profile;

/// The tiers of a limiter. Their limits change with the profile, but not their number, so there are
/// enough for values that later profiles add.
const TIERS_MIN: usize = 64;

/// A profile with its limiters.
#[derive(Debug)]
pub(super) struct Ruleset {
    pub(super) matcher: Matcher,
    /// In the order of the profile's policies.
    policies: Vec<PolicyLimiter>,
}

/// The limiter of a policy. A key has one bucket there, whatever the value of its variant is.
#[derive(Debug)]
pub(super) struct PolicyLimiter {
    pub(super) limiter: RateLimiter,
    /// All tiers of the limiter.
    tiers: Vec<Tier>,
    /// The index of each limit's tier, in the order of the policy's limits.
    in_use: Vec<usize>,
    pub(super) is_shadow: bool,
    shadow_refusals: AtomicU64,
}

impl PolicyLimiter {
    fn new(policy: &Policy, options: &Options) -> Result<Self, BuildError> {
        let limits: Vec<Limit> = policy.limits().iter().map(|(_, limit)| *limit).collect();
        let count = TIERS_MIN.max(limits.len() * 2);
        let first = limits[0];
        let limit_of = |index: usize| limits.get(index).copied().unwrap_or(first);
        let limits = (0..count).map(|index| (tier_name(index), limit_of(index)));
        let limiter = options.limiter(policy, first, limits)?;
        let found = |index| limiter.find_tier(&tier_name(index));
        let tiers = (0..count).map(|index| found(index).expect("it was just built with this tier"));
        Ok(Self {
            tiers: tiers.collect(),
            limiter,
            in_use: (0..policy.limits().iter().count()).collect(),
            is_shadow: options.is_shadow_all || policy.mode() == Mode::Shadow,
            shadow_refusals: AtomicU64::new(0),
        })
    }

    /// A request for tokens of a bucket.
    pub(super) fn request<'a>(&'a self, located: &'a Located, n: u64) -> TokenRequest<'a> {
        let request = self.limiter.request_n(&located.key, n);
        request.in_tier(self.tier(located.value))
    }

    /// The tier of the limit with this index among the policy's limits.
    pub(super) fn tier(&self, value: usize) -> Tier {
        self.tiers[self.in_use[value]]
    }

    pub(super) fn shadow_refusals(&self) -> u64 {
        self.shadow_refusals.load(Ordering::Relaxed)
    }

    pub(super) fn count_shadow_refusal(&self) {
        self.shadow_refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Uses the same tier for each value that the earlier policy also has.
    fn assign_tiers(&mut self, policy: &Policy, before: &Policy, old: &Self) {
        let same = |value: Option<&str>| {
            let at = before.limits().iter().position(|(other, _)| other == value);
            at.map(|at| old.in_use[at])
        };
        let values = || policy.limits().iter().map(|(value, _)| value);
        let kept: Vec<usize> = values().filter_map(same).collect();
        let mut unused = (0..self.tiers.len()).filter(|tier| !kept.contains(tier));
        let tier = |value| same(value).or_else(|| unused.next());
        self.in_use = values().map_while(tier).collect();
    }

    /// Sets the limits of a limiter that has these tiers.
    fn set_limits(&self, policy: &Policy, limiter: &RateLimiter) {
        for ((_, limit), tier) in policy.limits().iter().zip(&self.in_use) {
            let name = tier_name(*tier);
            if limiter.tier_limit(&name).ok() != Some(*limit) {
                // A limiter was just built with this limit, so it is accepted.
                limiter.set_tier_limit(&name, *limit).ok();
            }
        }
    }
}

fn tier_name(index: usize) -> String {
    index.to_string()
}

impl Ruleset {
    pub(super) fn new(profile: Profile, options: &Options) -> Result<Self, BuildError> {
        let policies = profile.policies().iter();
        let policies = policies.map(|policy| PolicyLimiter::new(policy, options));
        Ok(Self {
            policies: policies.collect::<Result<_, _>>()?,
            matcher: Matcher::new(profile),
        })
    }

    /// Takes over the limiters, and so the buckets, of policies that the earlier profile also has.
    /// The buckets keep their deficit.
    ///
    /// Fails, and changes nothing, if a policy has got more values than its limiter has tiers.
    pub(super) fn adopt(&mut self, earlier: &Self, options: &Options) -> Result<(), BuildError> {
        for (index, new) in self.policies.iter().enumerate() {
            let name = self.policy(index).name();
            let earlier = earlier.named(name).map(|(_, old)| old);
            if let Some(old) = earlier.filter(|old| old.limiter.is_in_memory())
                && new.in_use.len() > old.tiers.len()
            {
                let tiers_max = old.tiers.len();
                return Err(BuildError::TooManyTiers { tiers_max });
            }
        }
        for (index, new) in self.policies.iter_mut().enumerate() {
            let policy = &self.matcher.profile().policies()[index];
            let Some((before, old)) = earlier.named(policy.name()) else {
                continue;
            };
            new.shadow_refusals = AtomicU64::new(old.shadow_refusals());
            // Another scope means other keys.
            if before.scope().parts() != policy.scope().parts() {
                continue;
            }
            let has_enough_tiers = new.in_use.len() <= old.tiers.len();
            let is_same = before.on_failure() == policy.on_failure()
                && before.lease_share == policy.lease_share;
            if has_enough_tiers && (is_same || old.limiter.is_in_memory()) {
                new.limiter = old.limiter.clone();
                new.limiter.set_denials(options.denials_of(policy));
                new.tiers.clone_from(&old.tiers);
            }
            // Otherwise the buckets are in Redis, where both limiters find them. Requests in flight are
            // settled by the old one, so a value has the same tier and limit in both.
            if has_enough_tiers && new.tiers.len() == old.tiers.len() {
                new.assign_tiers(policy, before, old);
                new.set_limits(policy, &new.limiter);
                new.set_limits(policy, &old.limiter);
            }
        }
        Ok(())
    }

    pub(super) fn profile(&self) -> &Profile {
        self.matcher.profile()
    }

    pub(super) fn policy(&self, index: usize) -> &Policy {
        &self.profile().policies()[index]
    }

    pub(super) fn limiter(&self, policy: usize) -> &PolicyLimiter {
        &self.policies[policy]
    }

    pub(super) fn all_limiters(&self) -> impl Iterator<Item = &RateLimiter> {
        self.policies.iter().map(|policy| &policy.limiter)
    }

    pub(super) fn index(&self, name: &str) -> Option<usize> {
        let mut policies = self.profile().policies().iter();
        policies.position(|policy| policy.name() == name)
    }

    fn named(&self, name: &str) -> Option<(&Policy, &PolicyLimiter)> {
        let index = self.index(name)?;
        Some((self.policy(index), &self.policies[index]))
    }
}
