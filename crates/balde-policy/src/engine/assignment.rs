//! Variants whose values are assigned to subjects, as a participant's category is.

use std::collections::HashMap;
use std::sync::Arc;

use super::matching::Located;
use super::ruleset::Ruleset;
use super::subject::Subject;
use super::{Engine, State};
use crate::policy::VariantSource;

/// The most subjects that can have an assigned value, for each variant.
pub const ASSIGNED_MAX: usize = 1_000_000;

/// The values that are assigned.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    variants: Vec<(Box<str>, BySubject)>,
}

/// Buckets of a profile by policy, which have other limits now.
type Moved = (Arc<Ruleset>, Vec<(usize, Located)>);

/// What one variant assigns, by subject.
type BySubject = HashMap<Box<str>, Box<str>>;

impl Assignments {
    pub(super) fn value(&self, variant: &str, subject: &str) -> Option<&str> {
        let variant = self.variants.iter().find(|(name, _)| **name == *variant);
        variant.and_then(|(_, subjects)| subjects.get(subject).map(|value| &**value))
    }

    fn set(&mut self, variant: &str, subject: &str, value: &str) {
        let index = self
            .variants
            .iter()
            .position(|(name, _)| **name == *variant);
        let index = index.unwrap_or_else(|| {
            self.variants.push((variant.into(), HashMap::new()));
            self.variants.len() - 1
        });
        let subjects = &mut self.variants[index].1;
        subjects.insert(subject.into(), value.into());
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
    /// deficit. Requests in flight are settled under the new limit. A bucket whose key has more parts
    /// than the subject is converted when it is next written; until then it refills at the old rate.
    ///
    /// The assignment belongs to this engine and its clones: every process that shares the buckets
    /// in Redis has to make it.
    pub async fn assign(
        &self,
        variant: &str,
        subject: &str,
        value: &str,
    ) -> Result<(), AssignError> {
        let (rules, moved) = self.assign_now(variant, subject, value)?;
        for (policy, located) in moved {
            // Writing nothing converts the bucket.
            let request = rules.limiter(policy).request(&located, 0);
            request.charge(0).await?;
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

    /// Assigns, and returns the buckets that have to be written once, with the indices of their policies.
    fn assign_now(&self, variant: &str, subject: &str, value: &str) -> Result<Moved, AssignError> {
        let state = &mut *self.0.state.write();
        let rules = Arc::clone(&state.rules);
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
        let assigned = state.assignments.value(variant, subject);
        if assigned.is_none() && state.assignments.count(variant) >= ASSIGNED_MAX {
            return Err(AssignError::TooMany);
        }
        let before = assigned.or_else(|| self.0.options.default_value(variant));
        let has_changed = before.is_some_and(|before| before != value);
        state.assignments.set(variant, subject, value);
        if !has_changed {
            return Ok((rules, Vec::new()));
        }
        let named = Subject::new().with(part, subject);
        let policies = rules.profile().policies().iter().enumerate();
        let moved = policies.filter(|(_, policy)| policy.limits().variant() == Some(variant));
        let moved = moved.filter_map(|(index, policy)| {
            let assigned = |_: &str, _: &str| policy.value_index(value);
            let located = rules.matcher.locate(index, &named, &assigned).ok()?;
            Some((index, located))
        });
        let moved = moved.collect();
        Ok((rules, moved))
    }
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
