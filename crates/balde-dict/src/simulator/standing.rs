//! Buckets outside of any request: how they stand, and what somebody sets them to.

use balde::{Decision, Error as BucketError, RateLimiter};
use balde_policy::KeyPart;

use super::buckets::{Buckets, By};
use crate::PayerKind;

/// A bucket outside of any request.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) policy: usize,
    pub(crate) participant: String,
    pub(crate) payer: Option<(String, PayerKind)>,
}

impl Buckets {
    /// How a bucket stands; nothing, where the policy has no such bucket.
    pub(crate) async fn look_at(&self, bucket: &Bucket) -> Result<Option<Decision>, BucketError> {
        match (self.limiter_of(bucket), self.key_of(bucket)) {
            (Some(limiter), Some(key)) => limiter.peek(key).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Sets a bucket's level; nothing, where the policy has no such bucket.
    pub(crate) async fn set_level(
        &self,
        bucket: &Bucket,
        level: i64,
    ) -> Result<Option<Decision>, BucketError> {
        match (self.limiter_of(bucket), self.key_of(bucket)) {
            (Some(limiter), Some(key)) => limiter.set_level(key, level).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Whether a policy has a bucket for each participant and payer.
    pub(crate) fn is_per_payer(&self, policy: usize) -> bool {
        let parts = self.table.policy(policy).scope().parts();
        parts
            .iter()
            .any(|part| matches!(part, KeyPart::Header(_) | KeyPart::User))
    }

    /// Writes a participant's buckets once under the limits of its category: Redis converts a bucket
    /// when it is next written, and until then goes on filling it at the rate of the old one.
    pub(crate) async fn touch(&self, participant: &str) -> Result<(), BucketError> {
        for (policy, of_policy) in self.policies.iter().enumerate() {
            let bucket = Bucket {
                policy,
                participant: participant.to_owned(),
                payer: None,
            };
            if of_policy.by == By::Category
                && let (Some(limiter), Some(key)) = (self.limiter_of(&bucket), self.key_of(&bucket))
            {
                limiter.charge(key, 0).await?;
            }
        }
        Ok(())
    }

    fn limiter_of(&self, bucket: &Bucket) -> Option<&RateLimiter> {
        let category = self.category(&bucket.participant);
        let payer = bucket.payer.as_ref().map(|(_, kind)| *kind);
        self.limiter(bucket.policy, category, payer)
    }

    /// The same key that a request's draw has.
    pub(super) fn key_of(&self, bucket: &Bucket) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        for part in self.table.policy(bucket.policy).scope().parts() {
            if !key.is_empty() {
                key.push(b'/');
            }
            match part {
                KeyPart::Participant => key.extend(bucket.participant.as_bytes()),
                KeyPart::Constant(text) => key.extend(text.as_bytes()),
                _ => key.extend(bucket.payer.as_ref()?.0.as_bytes()),
            }
        }
        Some(key)
    }
}

/// Microseconds until the bucket has one whole token more than now; nothing, where it is full.
pub(crate) fn next_token(decision: &Decision) -> Option<u64> {
    let limit = decision.limit();
    let capacity = i64::try_from(limit.capacity()).unwrap_or(i64::MAX);
    if decision.level() >= capacity {
        return None;
    }
    let full_us = u64::try_from(decision.full_after().as_micros()).unwrap_or(u64::MAX);
    let steps_missing = u64::try_from(capacity - decision.level() - 1).unwrap_or(0);
    let later_us = if limit.strategy() == balde::Strategy::Stepwise {
        // All of a period's tokens come at its end.
        let periods = (steps_missing + 1).div_ceil(limit.refill_tokens().max(1)) - 1;
        periods.saturating_mul(limit.period_us())
    } else {
        let units = u128::from(steps_missing) * u128::from(limit.token_units());
        u64::try_from(units / u128::from(limit.refill_units().max(1))).unwrap_or(u64::MAX)
    };
    Some(full_us.saturating_sub(later_us))
}
