//! A 429 of DICT: the bucket is empty there, so the mirror was wrong.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use balde_policy::BucketState;
use parking_lot::Mutex;

use super::call::CallFacts;
use super::external_usage::{self, Observation, Source};
use super::{Dict, is_listed, level};

/// The most payers whose refusals are counted. Beyond it, counting begins anew.
const PAYERS_MAX: usize = 100_000;

/// How often DICT refused a payer since it last admitted one of the payer's lookups, by bucket. DICT
/// does not list payers' buckets, so nothing else shows that somebody else uses one.
#[derive(Debug, Default)]
pub(super) struct Streaks {
    refusals: Mutex<HashMap<u64, u32>>,
    /// The same as the length of the map, to be read without locking it.
    count: AtomicUsize,
}

impl Streaks {
    /// Counts a refusal, and returns how many there were in a row.
    fn refused(&self, bucket: u64) -> u32 {
        let mut refusals = self.refusals.lock();
        if refusals.len() >= PAYERS_MAX && !refusals.contains_key(&bucket) {
            refusals.clear();
        }
        let count = refusals.entry(bucket).or_default();
        *count = count.saturating_add(1);
        let count = *count;
        self.count.store(refusals.len(), Ordering::Relaxed);
        count
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn admitted(&self, bucket: u64) {
        let mut refusals = self.refusals.lock();
        refusals.remove(&bucket);
        self.count.store(refusals.len(), Ordering::Relaxed);
    }
}

impl Dict {
    /// DICT answered 429: one of the buckets is empty there, and the response does not say which.
    ///
    /// A single bucket is emptied. Of a payer's and the participant's, it is the one with fewer tokens
    /// left; once a second payer is refused, both are. A reconciliation follows at once, as far as its
    /// budget allows. If DICT refuses again, somebody else takes what it refills: that is withheld,
    /// too.
    pub(super) async fn correct_after_refusal(&self, facts: &CallFacts) {
        let Some(engine) = self.engine.get() else {
            return;
        };
        let payer = facts.payer.as_deref().unwrap_or_default();
        let subject = Self::payer_subject(&facts.participant, payer);
        let has_payer = facts
            .policies
            .iter()
            .any(|policy| self.is_of_payers(policy));
        let is_second = {
            let mut refused = self.refused.lock();
            let payers = refused.entry(facts.participant.clone()).or_default();
            payers.insert(self.hashing.hash_one(payer));
            payers.len() > 1
        };
        self.look_who_reconciled(&facts.participant).await;
        let mut found = Vec::new();
        for policy in &facts.policies {
            // Nothing can be done about a store that is unavailable; its failure is logged.
            if let Ok(state) = engine.state(policy, &subject).await {
                let held = i64::try_from(state.held()).unwrap_or(i64::MAX);
                found.push((policy, state.level().saturating_sub(held), state));
            }
        }
        let lowest = found.iter().map(|(_, free, _)| *free).min();
        for (policy, free, state) in found {
            let is_lowest = lowest == Some(free);
            if has_payer && !is_second && !is_lowest {
                continue;
            }
            let by = self.refused_level(&state);
            let Some(by) = by else { continue };
            let for_others = if self.is_of_payers(policy) {
                // The participant's bucket is the likelier one, if it has fewer tokens.
                let bucket = self
                    .hashing
                    .hash_one((&**policy, &facts.participant, payer));
                let refusals = if is_lowest {
                    self.streaks.refused(bucket)
                } else {
                    0
                };
                external_usage::doubled(refusals).min(state.limit().capacity())
            } else {
                self.refused_by_others(&facts.participant, &state)
            };
            let for_others = i64::try_from(for_others).unwrap_or(i64::MAX);
            let by = by.saturating_sub(for_others);
            let _as_far_as_possible = engine.adjust_level(policy, &subject, by).await;
        }
        self.trigger.notify_one();
    }

    /// Notes that DICT admitted a lookup of a payer.
    pub(super) fn note_admitted(&self, facts: &CallFacts) {
        // Nearly always, and for every lookup.
        if self.streaks.is_empty() {
            return;
        }
        let payer = facts.payer.as_deref().unwrap_or_default();
        for policy in &facts.policies {
            if self.is_of_payers(policy) {
                let bucket = (&**policy, &facts.participant, payer);
                self.streaks.admitted(self.hashing.hash_one(bucket));
            }
        }
    }

    fn is_of_payers(&self, policy: &str) -> bool {
        let policy = self.table.profile().policy(policy);
        policy.is_some_and(|policy| !is_listed(policy))
    }

    /// By how many tokens a mirrored bucket has to change, so that it has none before DICT's has one;
    /// `None` if it need not.
    fn refused_level(&self, state: &BucketState) -> Option<i64> {
        let policy = state.policy().name();
        let limit = self.limit_of(policy, state.value());
        let withheld = limit.map_or(0, |limit| limit.uncertain_refill());
        let below = i64::try_from(withheld).unwrap_or(i64::MAX);
        let surplus = state.level().saturating_add(below);
        (surplus > 0).then(|| -surplus - level::part_of_a_token(state))
    }

    /// Adds what the mirror had, and DICT had not, to what others use; returns what is withheld for them.
    fn refused_by_others(&self, participant: &str, state: &BucketState) -> u64 {
        let policy = state.policy().name();
        let Some(limit) = self.limit_of(policy, state.value()) else {
            return 0;
        };
        let withheld = i64::try_from(limit.uncertain_refill()).unwrap_or(i64::MAX);
        let spent = self.spent_by(participant, policy);
        let seen = Observation {
            source: Source::Refusal,
            now_us: self.clock.now_us(),
            limit: limit.of_dict,
            level: 0,
            mirrored: state.level().saturating_add(withheld),
            explained: state.held(),
            doubt: self.refill_doubt(&limit),
            spent_before: spent,
            spent,
        };
        let schedule = self.schedule(participant);
        self.external_usage
            .observe(participant, policy, &seen, &schedule)
    }
}
