//! The limiters of a profile: one for each policy and each value of its variant.
//!
//! In memory a bucket belongs to one limiter, so a bucket whose limit changes with its variant has
//! to be carried over to another limiter. In Redis all limiters of a policy have the same name and
//! therefore the same buckets, and the store converts a bucket when it is next written.

use std::sync::atomic::{AtomicU64, Ordering};

use balde::{BuildError, RateLimiter};

use super::Options;
use super::matching::Matcher;
use crate::policy::{Mode, Policy};
use crate::profile::Profile;

/// The most limiters of earlier profiles that a policy keeps for buckets not yet carried over.
const RETIRED_MAX: usize = 16;

/// A profile with its limiters.
#[derive(Debug)]
pub(super) struct Ruleset {
    pub(super) matcher: Matcher,
    /// In the order of the profile's policies.
    policies: Vec<PolicyLimiters>,
}

#[derive(Debug)]
pub(super) struct PolicyLimiters {
    /// In the order of the policy's limits.
    pub(super) limiters: Vec<RateLimiter>,
    /// Limiters of values that an earlier profile had. In memory only.
    pub(super) retired: Vec<RateLimiter>,
    pub(super) is_shadow: bool,
    shadow_refusals: AtomicU64,
}

impl PolicyLimiters {
    pub(super) fn shadow_refusals(&self) -> u64 {
        self.shadow_refusals.load(Ordering::Relaxed)
    }

    pub(super) fn count_shadow_refusal(&self) {
        self.shadow_refusals.fetch_add(1, Ordering::Relaxed);
    }
}

impl Ruleset {
    pub(super) fn new(profile: Profile, options: &Options) -> Result<Self, BuildError> {
        let mut policies = Vec::new();
        for policy in profile.policies() {
            let limits = policy.limits().iter();
            let limiters = limits.map(|(_, limit)| options.limiter(policy, limit));
            policies.push(PolicyLimiters {
                limiters: limiters.collect::<Result<_, _>>()?,
                retired: Vec::new(),
                is_shadow: options.is_shadow_all || policy.mode() == Mode::Shadow,
                shadow_refusals: AtomicU64::new(0),
            });
        }
        Ok(Self {
            matcher: Matcher::new(profile),
            policies,
        })
    }

    /// Takes over the limiters, and so the buckets, of policies that the earlier profile also has.
    /// The buckets keep their deficit.
    pub(super) fn adopt(&mut self, earlier: &Self, is_redis: bool) {
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
            let is_same_store = !is_redis || before.on_failure() == policy.on_failure();
            let mut is_adopted = vec![false; old.limiters.len()];
            for ((value, limit), limiter) in policy.limits().iter().zip(&mut new.limiters) {
                let same = before.limits().iter().position(|(other, _)| other == value);
                let Some(same) = same.filter(|_| is_same_store) else {
                    continue;
                };
                let adopted = old.limiters[same].clone();
                // The new limiter was built with this limit, so the adopted one accepts it.
                if adopted.limit() == *limit || adopted.set_limit(*limit).is_ok() {
                    *limiter = adopted;
                    is_adopted[same] = true;
                }
            }
            if is_redis {
                continue;
            }
            let left = old.limiters.iter().zip(&is_adopted);
            let left = left.filter(|(_, is_adopted)| !**is_adopted);
            let left = left.map(|(limiter, _)| limiter).chain(&old.retired);
            let is_used = |limiter: &&RateLimiter| {
                limiter.sweep();
                limiter.memory_stats().keys > 0
            };
            new.retired = left.filter(is_used).take(RETIRED_MAX).cloned().collect();
        }
    }

    pub(super) fn profile(&self) -> &Profile {
        self.matcher.profile()
    }

    pub(super) fn policy(&self, index: usize) -> &Policy {
        &self.profile().policies()[index]
    }

    pub(super) fn limiters(&self, policy: usize) -> &PolicyLimiters {
        &self.policies[policy]
    }

    pub(super) fn limiter(&self, policy: usize, value: usize) -> &RateLimiter {
        &self.policies[policy].limiters[value]
    }

    pub(super) fn all_limiters(&self) -> impl Iterator<Item = &RateLimiter> {
        self.policies.iter().flat_map(|policy| &policy.limiters)
    }

    pub(super) fn index(&self, name: &str) -> Option<usize> {
        let mut policies = self.profile().policies().iter();
        policies.position(|policy| policy.name() == name)
    }

    fn named(&self, name: &str) -> Option<(&Policy, &PolicyLimiters)> {
        let index = self.index(name)?;
        Some((self.policy(index), &self.policies[index]))
    }
}

/// Carries a bucket over to another limiter in memory. It keeps its deficit, rounded up to whole
/// tokens. A debt stays, and does not grow.
pub(super) fn carry_over(from: &RateLimiter, to: &RateLimiter, key: &[u8]) {
    let Ok(found) = from.blocking().peek(key) else {
        return;
    };
    let whole = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let level = found.level();
    let below_full = whole(from.limit().capacity()) - level;
    if below_full <= 0 {
        return;
    }
    let kept = whole(to.limit().capacity()) - below_full;
    // In memory only a bad key can fail, and this one was just used.
    let _set = to.blocking().set_level(key, kept.max(level.min(0)));
    let _full_again = from
        .blocking()
        .set_level(key, whole(from.limit().capacity()));
}
