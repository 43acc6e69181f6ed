//! The levels that DICT reports correct the mirrored buckets.

use std::collections::HashMap;
use std::time::Duration;

use balde_dict::wire::BucketState;
use balde_policy::{Policy, Subject};
use tokio::time::Instant;

use super::external_usage::{Observation, Source, refilled};
use super::spent::TokensByPolicy;
use super::{Dict, MirroredLimit, is_listed};
use crate::config::Refill;
use crate::limits::Limits;

/// What was known of a participant's buckets before DICT was asked for theirs.
#[derive(Debug)]
pub(super) struct Before {
    at: Instant,
    at_us: u64,
    tokens: TokensByPolicy,
    /// The levels of buckets in Redis.
    levels: HashMap<String, Reading>,
}

/// A bucket in Redis, as it was read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    level: i64,
    capacity: u64,
    /// The highest prices of the calls in flight that are in the level, or more.
    held: u64,
}

impl Dict {
    /// Reads what a reconciliation compares DICT's levels with.
    pub(super) async fn before(
        &self,
        limits: &Limits,
        participant: &str,
        is_compared: impl Fn(&Policy) -> bool,
    ) -> Before {
        let at = Instant::now();
        let at_us = self.clock.now_us();
        let tokens = self.spent.of(participant);
        let mut levels = HashMap::new();
        if self.is_redis {
            let subject = Subject::participant(participant);
            let profile = self.table.profile();
            for policy in profile.policies().iter().filter(|one| is_compared(one)) {
                let name = policy.name();
                if let Ok(found) = limits.engine().state(name, &subject).await {
                    let reading = Reading {
                        level: found.level(),
                        capacity: found.limit().capacity(),
                        held: 0,
                    };
                    levels.insert(name.to_owned(), reading);
                }
            }
            // Calls that began meanwhile may be in the levels, too.
            for (name, now) in self.spent.of(participant) {
                if let Some(reading) = levels.get_mut(&name) {
                    let earlier = tokens.get(&name).copied().unwrap_or_default();
                    reading.held = now.held_since(&earlier);
                }
            }
        }
        Before {
            at,
            at_us,
            tokens,
            levels,
        }
    }

    /// Corrects a mirrored bucket to what is certainly there: DICT's level, less what the mirror
    /// withholds, less what DICT may not have counted, less what others will use.
    ///
    /// In memory the bucket is read before the sums of tokens, and changed by a difference. So a call
    /// that ends meanwhile counts at least once: in the sums, or in the bucket.
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
        let Ok(found) = engine.state(&state.name, &subject).await else {
            return;
        };
        let Some(limit) = self.limit_of(&state.name, found.value()) else {
            return;
        };
        let uncertain = i64::try_from(limit.uncertain_refill()).unwrap_or(i64::MAX);
        let certain = state.available_tokens.saturating_sub(uncertain);
        let spent = self.spent_by(participant, &state.name);
        let spent_before = before.tokens.get(&state.name).map_or(0, |own| own.spent);
        let by = if self.is_redis {
            let Some(reading) = before.levels.get(&state.name) else {
                return;
            };
            let held_by_others = self.held_by_other_gateways_max(engine, &state.name, participant);
            let passed = before.at.elapsed();
            certain.saturating_sub(reading.level_at_most(&found, held_by_others, passed))
        } else {
            let since = i64::try_from(spent - spent_before).unwrap_or(i64::MAX);
            let level = found.level().saturating_add(since);
            match certain.saturating_sub(level) {
                0 => 0,
                by => by.saturating_sub(part_of_a_token(&found)),
            }
        };
        let seen = Observation {
            source: Source::Reconciliation,
            now_us: self.clock.now_us(),
            limit: limit.of_dict,
            level: state.available_tokens,
            mirrored: found.level().saturating_add(uncertain),
            explained: found
                .held()
                .saturating_add(refilled(&limit.of_dict, self.passed_us(before))),
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

    /// The time since DICT was asked, by the clock of the buckets.
    fn passed_us(&self, before: &Before) -> u64 {
        if self.is_redis {
            u64::try_from(before.at.elapsed().as_micros()).unwrap_or(u64::MAX)
        } else {
            self.clock.now_us().saturating_sub(before.at_us)
        }
    }

    /// What the calls of this gateway have cost.
    pub(crate) fn spent_by(&self, participant: &str, policy: &str) -> u64 {
        let tokens = self.spent.of(participant);
        tokens.get(policy).map_or(0, |own| own.spent)
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

impl Reading {
    /// The most that the bucket would have had when DICT reported its level, if DICT had counted none
    /// of the calls in flight by then. What DICT has less or more is corrected by a difference, so
    /// calls that began or ended since the reading count in the bucket as always.
    fn level_at_most(
        &self,
        now: &balde_policy::BucketState,
        held_by_others: u64,
        passed: Duration,
    ) -> i64 {
        let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let limit = now.limit();
        let level = if limit.capacity() == self.capacity {
            self.level
        } else {
            // Another limit keeps the deficit, as far as it can have it.
            let grown = signed(limit.capacity()).saturating_sub(signed(self.capacity));
            self.level.saturating_add(grown).max(now.level())
        };
        let passed_us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        // Levels are whole tokens: there may be a part of one more.
        level
            .saturating_add(1)
            .saturating_add(signed(self.held))
            .saturating_add(signed(held_by_others))
            .saturating_add(signed(refilled(limit, passed_us)))
    }
}

/// One token if a bucket has a part of one more than its level says, else zero. DICT states whole
/// tokens. A corrected bucket must not have the next one earlier than DICT's.
pub(super) fn part_of_a_token(state: &balde_policy::BucketState) -> i64 {
    let limit = state.limit();
    let whole_us = limit.period_us().div_ceil(limit.refill_tokens());
    let next = state.next_token_after();
    next.map_or(0, |wait| i64::from(wait.as_micros() < whole_us.into()))
}
