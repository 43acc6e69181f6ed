//! Variants whose values are assigned to subjects, as a participant's category is.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::matching::Located;
use super::ruleset::{Ruleset, carry_over};
use super::subject::Subject;
use super::{Engine, State};
use crate::policy::VariantSource;
use crate::profile::Profile;

/// The most subjects that can have an assigned value, for each variant.
pub const ASSIGNED_MAX: usize = 1_000_000;

/// The values that are assigned.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    variants: Vec<(Box<str>, BySubject)>,
    /// Changes with every assignment.
    pub(super) generation: u64,
}

/// What one variant assigns, by subject.
type BySubject = HashMap<Box<str>, Assigned>;

#[derive(Debug)]
struct Assigned {
    value: Box<str>,
    /// Values that the subject had before: some of its buckets may still be under their limiters.
    earlier: SmallVec<[Box<str>; 1]>,
}

impl Assignments {
    fn get(&self, variant: &str, subject: &str) -> Option<&Assigned> {
        let variant = self.variants.iter().find(|(name, _)| **name == *variant);
        variant.and_then(|(_, subjects)| subjects.get(subject))
    }

    pub(super) fn value(&self, variant: &str, subject: &str) -> Option<&str> {
        self.get(variant, subject).map(|one| &*one.value)
    }

    fn earlier(&self, variant: &str, subject: &str) -> &[Box<str>] {
        let assigned = self.get(variant, subject);
        assigned.map_or(&[], |one| one.earlier.as_slice())
    }

    fn set(&mut self, variant: &str, subject: &str, value: &str, default: Option<&str>) {
        self.generation += 1;
        let index = self
            .variants
            .iter()
            .position(|(name, _)| **name == *variant);
        let index = index.unwrap_or_else(|| {
            self.variants.push((variant.into(), HashMap::new()));
            self.variants.len() - 1
        });
        let subjects = &mut self.variants[index].1;
        if let Some(assigned) = subjects.get_mut(subject) {
            let before = std::mem::replace(&mut assigned.value, value.into());
            assigned.earlier.retain(|one| **one != *value);
            if *before != *value && !assigned.earlier.contains(&before) {
                assigned.earlier.push(before);
            }
            return;
        }
        let earlier = default.filter(|default| *default != value);
        let assigned = Assigned {
            value: value.into(),
            earlier: earlier.into_iter().map(Into::into).collect(),
        };
        subjects.insert(subject.into(), assigned);
    }

    fn count(&self, variant: &str) -> usize {
        let variant = self.variants.iter().find(|(name, _)| **name == *variant);
        variant.map_or(0, |(_, subjects)| subjects.len())
    }
}

impl Engine {
    /// The index of a subject's value of an assigned variant among a policy's limits.
    pub(super) fn value_index(
        &self,
        state: &State,
        policy: usize,
        variant: &str,
        subject: &str,
    ) -> Option<usize> {
        let assigned = state.assignments.value(variant, subject);
        let value = assigned.or_else(|| self.0.options.default_value(variant))?;
        state.rules.policy(policy).value_index(value)
    }

    /// Assigns a value of a variant to a subject, for instance category `B` to a participant.
    ///
    /// The subject's buckets keep their deficit, in tokens: one that was 30 tokens below full stays
    /// 30 below full under the new capacity, or is empty if the new capacity is smaller than its
    /// deficit. Requests in flight are settled in the bucket of the new value. In Redis, a bucket
    /// whose key has more parts than the subject is converted when it is next written; until then
    /// it refills at the old rate.
    ///
    /// The assignment belongs to this engine and its clones: every process that shares the buckets
    /// in Redis has to make it.
    pub async fn assign(
        &self,
        variant: &str,
        subject: &str,
        value: &str,
    ) -> Result<(), AssignError> {
        let touched = self.assign_now(variant, subject, value)?;
        for (rules, policy, located) in touched {
            // Writing nothing converts the bucket.
            let limiter = rules.limiter(policy, located.value);
            limiter.charge(&located.key, 0).await?;
        }
        Ok(())
    }

    /// The value that is assigned to a subject, or the variant's default.
    pub fn assigned(&self, variant: &str, subject: &str) -> Option<Box<str>> {
        let state = self.0.state.read();
        let assigned = state.assignments.value(variant, subject);
        let value = assigned.or_else(|| self.0.options.default_value(variant));
        value.map(Into::into)
    }

    /// Assigns, and returns the buckets in Redis that have to be written once.
    fn assign_now(
        &self,
        variant: &str,
        subject: &str,
        value: &str,
    ) -> Result<Vec<(std::sync::Arc<Ruleset>, usize, Located)>, AssignError> {
        let state = &mut *self.0.state.write();
        let rules = std::sync::Arc::clone(&state.rules);
        let part = match rules.profile().variant(variant) {
            Some(known) => match known.source() {
                VariantSource::Assigned { part, values } => {
                    if !values.iter().any(|known| **known == *value) {
                        return Err(AssignError::UnknownValue);
                    }
                    part.clone()
                }
                _ => return Err(AssignError::NotAssigned),
            },
            None => return Err(AssignError::UnknownVariant),
        };
        let is_new = state.assignments.value(variant, subject).is_none();
        if is_new && state.assignments.count(variant) >= ASSIGNED_MAX {
            return Err(AssignError::TooMany);
        }
        let default = self.0.options.default_value(variant);
        let before = state.assignments.value(variant, subject).or(default);
        if before == Some(value) {
            state.assignments.set(variant, subject, value, default);
            return Ok(Vec::new());
        }
        let had_a_value = before.is_some();
        state.assignments.set(variant, subject, value, default);
        let named = Subject::new().with(part, subject);
        let mut written = Vec::new();
        for (index, policy) in rules.profile().policies().iter().enumerate() {
            if policy.limits().variant() != Some(variant) {
                continue;
            }
            let assigned = |_: &str, _: &str| policy.value_index(value);
            // Buckets with other parts in their keys are carried over when they are next used.
            let Ok(located) = rules.matcher.locate(index, &named, &assigned) else {
                continue;
            };
            if self.0.options.is_redis() {
                if had_a_value {
                    written.push((std::sync::Arc::clone(&rules), index, located));
                }
            } else {
                self.bring_up_to_date(&rules, &state.assignments, index, &located);
            }
        }
        Ok(written)
    }

    /// Carries a bucket in memory over from the limiters that it may have been under before.
    pub(super) fn bring_up_to_date(
        &self,
        rules: &Ruleset,
        assignments: &Assignments,
        policy: usize,
        located: &Located,
    ) {
        let limiters = rules.limiters(policy);
        if limiters.retired.is_empty() && assignments.generation == 0 {
            return;
        }
        let earlier = earlier_values(rules.profile(), assignments, policy, located);
        if limiters.retired.is_empty() && earlier.is_empty() {
            return;
        }
        let to = &limiters.limiters[located.value];
        let values = earlier.iter().filter_map(|value| {
            let index = rules.policy(policy).value_index(value)?;
            (index != located.value).then(|| &limiters.limiters[index])
        });
        // Two requests must not carry the same bucket over.
        let _one_at_a_time = self.0.carrying.lock();
        for from in limiters.retired.iter().chain(values) {
            carry_over(from, to, &located.key);
        }
    }
}

fn earlier_values<'s>(
    profile: &Profile,
    assignments: &'s Assignments,
    policy: usize,
    located: &Located,
) -> &'s [Box<str>] {
    let (Some(subject), Some(variant)) = (
        &located.subject,
        profile.policies()[policy].limits().variant(),
    ) else {
        return &[];
    };
    let subject = std::str::from_utf8(subject).unwrap_or_default();
    assignments.earlier(variant, subject)
}

/// Why a value could not be assigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssignError {
    /// The profile has no such variant.
    #[error("the profile has no such variant")]
    UnknownVariant,
    /// The variant's value is derived from the request and cannot be assigned.
    #[error("the value of this variant follows from the request and cannot be assigned")]
    NotAssigned,
    /// The variant has no such value.
    #[error("the variant has no such value")]
    UnknownValue,
    /// [`ASSIGNED_MAX`] subjects have a value already.
    #[error("{ASSIGNED_MAX} subjects have a value of this variant already")]
    TooMany,
    /// The value is assigned, but a bucket in the store could not be converted; assign it again.
    #[error("a bucket could not be converted: {0}")]
    Store(#[from] balde::Error),
}
