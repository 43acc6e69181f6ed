//! The levels that DICT reports correct the mirrored buckets.

use std::collections::HashMap;
use std::time::Duration;

use balde_dict::wire::BucketState;
use balde_policy::{Policy, Subject};

use super::external_usage::{Observation, Source};
use super::spent::SpentByPolicy;
use super::{Dict, MirroredLimit, is_listed};
use crate::config::Refill;
use crate::limits::Limits;

/// What was known of a participant's buckets before DICT was asked for theirs.
#[derive(Debug)]
pub(super) struct Before {
    at_us: u64,
    spent: SpentByPolicy,
    buckets: HashMap<String, balde_policy::BucketState>,
}

impl Dict {
    /// Reads what a reconciliation compares DICT's levels with.
    pub(super) async fn before(
        &self,
        limits: &Limits,
        participant: &str,
        is_compared: impl Fn(&Policy) -> bool,
    ) -> Before {
        let at_us = self.clock.now_us();
        let spent = self.spent.of(participant);
        let mut buckets = HashMap::new();
        let subject = Subject::participant(participant);
        let profile = self.table.profile();
        for policy in profile.policies().iter().filter(|one| is_compared(one)) {
            let name = policy.name();
            if let Ok(found) = limits.engine().state(name, &subject).await {
                buckets.insert(name.to_owned(), found);
            }
        }
        Before {
            at_us,
            spent,
            buckets,
        }
    }

    /// Corrects a mirrored bucket to what is certainly there: DICT's level, less what the mirror
    /// withholds, less what others will use.
    ///
    /// The correction is the difference between DICT's level and what the mirror had when DICT was
    /// asked, so calls that end meanwhile count in the bucket as always. Calls in flight hold what they
    /// may cost: if DICT has counted them already, they count twice until the next reconciliation.
    pub(super) async fn apply_level(
        &self,
        limits: &Limits,
        participant: &str,
        state: &BucketState,
        before: &Before,
    ) {
        let policy = self.table.profile().policy(&state.name);
        if !policy.is_some_and(is_listed) {
            return;
        }
        let subject = Subject::participant(participant);
        let engine = limits.engine();
        let (Ok(found), Some(then)) = (
            engine.state(&state.name, &subject).await,
            before.buckets.get(&state.name),
        ) else {
            return;
        };
        let Some(limit) = self.limit_of(&state.name, found.value()) else {
            return;
        };
        let uncertain = i64::try_from(limit.uncertain_refill()).unwrap_or(i64::MAX);
        let certain = state.available_tokens.saturating_sub(uncertain);
        let spent = self.spent_by(participant, &state.name);
        let spent_before = before.spent.get(&state.name).copied().unwrap_or(0);
        let passed_us = self.clock.now_us().saturating_sub(before.at_us);
        let by = difference(certain, then, &found, Duration::from_micros(passed_us));
        let seen = Observation {
            source: Source::Reconciliation,
            now_us: self.clock.now_us(),
            limit: limit.of_dict,
            level: state.available_tokens,
            mirrored: found.level().saturating_add(uncertain),
            explained: found
                .held()
                .saturating_add(limit.of_dict.refilled_at_most(passed_us)),
            doubt: self.refill_doubt(&limit),
            spent_before,
            spent,
        };
        let for_others =
            self.external_usage
                .withheld(participant, &state.name, seen.mirrored, spent);
        let expected = seen
            .mirrored
            .saturating_add(i64::try_from(for_others).unwrap_or(i64::MAX));
        let drift = expected.saturating_sub(state.available_tokens);
        let for_others = self.external_usage.observe(
            participant,
            &state.name,
            &seen,
            &self.schedule(participant),
        );
        let by = by.saturating_sub(i64::try_from(for_others).unwrap_or(i64::MAX));
        if by != 0 {
            let adjusted = engine.adjust_level(&state.name, &subject, by).await;
            if let Err(error) = adjusted {
                tracing::warn!(policy = state.name, %error, "a bucket could not be corrected");
            }
        }
        self.note_drift(participant, state, drift);
    }

    /// What the calls of this gateway have cost.
    pub(crate) fn spent_by(&self, participant: &str, policy: &str) -> u64 {
        self.spent.of(participant).get(policy).copied().unwrap_or(0)
    }

    /// By how many tokens DICT's level may differ from the mirror's because it is not known when DICT
    /// refills.
    pub(super) fn refill_doubt(&self, limit: &MirroredLimit) -> u64 {
        match self.config().refill {
            Refill::Profile => 0,
            Refill::Unknown => limit.uncertain_refill().max(limit.of_dict.refill_tokens()),
        }
    }

    fn note_drift(&self, participant: &str, state: &BucketState, drift: i64) {
        let name = (participant.to_owned(), state.name.clone());
        self.drift.lock().insert(name, drift);
        let bound = state
            .capacity
            .saturating_mul(i64::try_from(self.config().drift_percent).unwrap_or(0))
            / 100;
        if drift.abs() > bound {
            tracing::warn!(
                event_type = "drift",
                participant,
                policy = state.name,
                drift,
                level = state.available_tokens,
                "DICT's bucket differs from the mirrored one by {drift} tokens; does somebody else \
                 use the same quota?"
            );
        }
    }
}

/// By how much a bucket has to change to have `certain` tokens, if it was `then` when DICT was asked and
/// is `now`.
fn difference(
    certain: i64,
    then: &balde_policy::BucketState,
    now: &balde_policy::BucketState,
    passed: Duration,
) -> i64 {
    let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    // What it would have without the calls that have ended since.
    let refilled = then.after(passed);
    let (old, new) = (then.limit().capacity(), now.limit().capacity());
    let level = if old == new {
        refilled.level()
    } else {
        // Another limit keeps the deficit, as far as it can have it.
        let grown = signed(new).saturating_sub(signed(old));
        refilled.level().saturating_add(grown).max(now.level())
    };
    match certain.saturating_sub(level) {
        0 => 0,
        by => by.saturating_sub(part_of_a_token(&refilled)),
    }
}

/// One token if a bucket has a part of one more than its level says, else zero. DICT states whole
/// tokens. A corrected bucket must not have the next one earlier than DICT's.
pub(super) fn part_of_a_token(state: &balde_policy::BucketState) -> i64 {
    let whole_us = state.limit().token_us();
    let next = state.next_token_after();
    next.map_or(0, |wait| i64::from(wait.as_micros() < whole_us.into()))
}
